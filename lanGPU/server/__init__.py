"""The machine with the GPU: a daemon that accepts clients and one worker process per session. Never imports the client."""
