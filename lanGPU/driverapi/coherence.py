"""What calls mean for memory that the program and the device share (managed, mapped): pure functions of rows.

Before *device work* the device must see what the program wrote; after a *synchronizing* call that succeeded the program must see what
the device wrote. Source: driver API, "Unified Memory" of the programming guide and "API synchronization behavior".
"""

from typing import Final

from lanGPU.driverapi.model import ApiFunction, ArgKind

_AREAS: Final = range(0x0380, 0x0400)
"""api_ids of copies and memsets (`lanGPU.driverapi.table`)."""
_LAUNCHES: Final = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch")
_STREAM_MEMORY: Final = ("cuStreamWriteValue", "cuStreamWaitValue", "cuStreamBatchMemOp")
_WAITS: Final = ("Synchronize", "Synchronize_v2", "Query", "ElapsedTime", "ElapsedTime_v2")
_ENDS: Final = ("cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2", "cuMemFreeHost", "cuModuleUnload")
OWNED: Final = ("cuMemFree_v2", "cuMemFreeAsync", "cuMemGetAddressRange_v2")
"""Calls whose address may lie in memory that only the client knows as an allocation."""


def is_work(row: ApiFunction) -> bool:
    """The call makes the device read or write memory."""
    return row.api_id in _AREAS or row.name in _LAUNCHES or row.name.startswith(_STREAM_MEMORY)


def is_synchronizing(row: ApiFunction) -> bool:
    """When the call succeeded, work that came before it may be done and the program may look at the results.

    Copies with a side in host memory are, too: those from or to pageable memory return only when the stream got there.
    """
    if row.name.startswith(("cuStream", "cuEvent", "cuCtx")) and row.name.endswith(_WAITS):
        return True
    host_side = row.name.startswith("cuMemcpy") and any(
        arg.kind in (ArgKind.BYTES_IN, ArgKind.BYTES_OUT) or arg.name in ("dst", "src") for arg in row.args
    )
    return host_side or row.name == "cuMemHostUnregister"


def may_wait(row: ApiFunction) -> bool:
    """The driver may wait inside the call for work that was given before, though that is not what the call is for."""
    if row.name.endswith(_WAITS):
        return False
    return is_synchronizing(row) or row.name in OWNED or row.name in _ENDS


def is_looked_at(row: ApiFunction) -> bool:
    """The agent must see the call while the program and the device share memory."""
    return is_work(row) or is_synchronizing(row) or row.name in OWNED
