"""What a Connection reports. Views in events live until the next `get_buffer` or `receive_data`; copy what must outlive that."""

from dataclasses import dataclass
from typing import TypeAlias

from lanGPU.wire.handshake import Hello, Refusal, Welcome


@dataclass(slots=True)
class HelloReceived:
    """Server: a client introduced itself."""

    hello: Hello


@dataclass(slots=True)
class WelcomeReceived:
    """Client: the session is open."""

    welcome: Welcome


@dataclass(slots=True)
class RefuseReceived:
    """Client: the server said no; it closes the connection."""

    refusal: Refusal


@dataclass(slots=True)
class StatusReceived:
    """Client: the answer to purpose "status"; JSON-like and printable."""

    status: dict[str, object]


@dataclass(slots=True)
class RecordsReceived:
    """Server: the next bytes of the record stream; records may begin and end anywhere in them."""

    data: memoryview


@dataclass(slots=True)
class ReplyReceived:
    """Client: one reply. `data` is the whole reply, its 16-byte header included (the slot takes it as it is)."""

    thread: int
    token: int
    result: int
    failed_api: int
    """api_id of the posted call whose failure `result` is; 0: the call's own result."""
    data: memoryview

    @property
    def outputs(self) -> memoryview:
        """The output bytes behind the header."""
        return self.data[16:]


@dataclass(slots=True)
class LogReceived:
    """Client: a line for the user's log."""

    level: str
    text: str


@dataclass(slots=True)
class KernelOutputReceived:
    """Client: kernels printed `data` for the program's standard output (`descriptor` 1) or standard error (2)."""

    descriptor: int
    data: bytes


@dataclass(slots=True)
class GoodbyeReceived:
    """The peer sends nothing more; `reason` a short word."""

    reason: str


@dataclass(slots=True)
class PingReceived:
    """To be answered with `send_pong(id)` by whoever sends on this side."""

    id: int


@dataclass(slots=True)
class PongReceived:
    """The answer to our ping `id`."""

    id: int


@dataclass(slots=True)
class HostCallReceived:
    """Client: the device came to where a function of the program is to be called."""

    call: int
    """To be named in HOST_DONE when the function returned; 0: nobody waits."""
    callback: int
    """The number that the client gave the function when it registered it."""
    status: int
    """CUresult, for functions that take one."""


@dataclass(slots=True)
class HostDoneReceived:
    """Server: the function of that HOST_CALL returned."""

    call: int


@dataclass(slots=True)
class ConnectionClosed:
    """End of the peer's bytes. `orderly`: the protocol allowed it here (after REFUSE, STATUS, GOODBYE or before any frame)."""

    orderly: bool


Event: TypeAlias = (
    HelloReceived
    | WelcomeReceived
    | RefuseReceived
    | StatusReceived
    | RecordsReceived
    | ReplyReceived
    | LogReceived
    | KernelOutputReceived
    | GoodbyeReceived
    | PingReceived
    | PongReceived
    | HostCallReceived
    | HostDoneReceived
    | ConnectionClosed
)
