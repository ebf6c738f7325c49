"""The rows of the API table, one module an area; `api_id` blocks are listed in `lanGPU.driverapi.table`."""
