"""The client: shim generation, the shared ring, the agent and the launcher."""
