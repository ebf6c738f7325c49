"""What a server says about itself, for `langpu status`."""

from lanGPU.client.link import ask_status
from lanGPU.constants import CONNECT_TIMEOUT_S


def query(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> dict[str, object]:
    """The server's STATUS map (JSON-like, texts printable).

    Raises:
        ConnectError, TransportTimeoutError, RemoteProtocolError, VersionMismatchError, RefusedError.
    """
    return ask_status(host, port, timeout_s)
