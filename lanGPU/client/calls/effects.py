"""What a hand-written client call may ask for. It yields one of these and is resumed with the result.

Whatever fails is thrown into the generator as a LanGPUError; one that it does not catch ends the call with the error's CUresult.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from lanGPU.constants import MAX_CSTRING_BYTES
from lanGPU.errors import LanGPUError
from lanGPU.wire.records import Value

CUDA_ERROR_FILE_NOT_FOUND: Final = 301
CUDA_ERROR_OPERATING_SYSTEM: Final = 304


class CallError(LanGPUError):
    """A call ends with this CUresult."""

    exit_code = 94

    def __init__(self, result: int, message: str = "") -> None:
        super().__init__(message or f"CUresult {result}")
        self.cu_result = result  # type: ignore[misc]  # of the instance, here


class FileError(LanGPUError):
    """A file that the program names cannot be read."""

    cu_result = CUDA_ERROR_FILE_NOT_FOUND
    exit_code = 95


@dataclass(frozen=True, slots=True)
class ReadMemory:
    """Result: the bytes (bytearray). With `staged` a view of a buffer that the next effect may overwrite."""

    address: int
    length: int
    staged: bool = False


@dataclass(frozen=True, slots=True)
class ReadString:
    """Result: the bytes before the NUL. ProgramFaultError where there is none within `maximum`."""

    address: int
    maximum: int = MAX_CSTRING_BYTES


@dataclass(frozen=True, slots=True)
class WriteMemory:
    """Result: None. Small writes are carried out by the calling thread when the call returns, unless `now`."""

    address: int
    data: bytes | bytearray | memoryview
    now: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """Send a record that nobody waits for. Result: CUDA_SUCCESS; in blocking mode the call's own result."""

    name: str
    values: Sequence[Value]
    flags: int | None = None
    """Record flags; None: those of the call."""
    slot: int | None = None
    """The thread that the record is of; None: the caller."""


@dataclass(frozen=True, slots=True)
class Request:
    """Send a record and wait. Result: Reply."""

    name: str
    values: Sequence[Value]
    flags: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered; `outputs` are empty unless `result` is 0."""

    result: int
    outputs: bytes = b""


@dataclass(frozen=True, slots=True)
class Piece:
    """One record whose BYTES_OUT land at `address` of the program; `length` bytes are kept of them."""

    name: str
    values: Sequence[Value]
    address: int
    length: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send all pieces at once; their bytes are written to the program as they arrive. Result: first non-zero CUresult, or 0."""

    pieces: Sequence[Piece]
    flags: int | None = None


@dataclass(frozen=True, slots=True)
class Syscall:
    """A system call in the program. Result: its raw value (negative: -errno)."""

    name: str
    """Key of `syscalls.NUMBERS`."""
    args: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Result: the contents of a file as the program sees it (its working directory, its root). Raises FileError."""

    path: bytes


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file as the program would (its working directory, its root), with the agent's rights. Raises CallError OPERATING_SYSTEM."""

    path: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class CallProgram:
    """Call `function(args…)` in the program, on the calling thread. Result: what it returned (u64)."""

    function: int
    args: Sequence[int]


@dataclass(frozen=True, slots=True)
class StartThread:
    """Make the thread in the program that calls its functions. Result: 0, or an errno (ENOSYS: the program has no pthread_create)."""


@dataclass(frozen=True, slots=True)
class NextHostCall:
    """Wait until a function of the program is to be called. Result: HostCallReceived."""


@dataclass(frozen=True, slots=True)
class HostDone:
    """Tell the server that the function of that call returned. Result: None."""

    call: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the session's connection if it is not open. Result: Welcome. Raises ConnectError and its like."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the user's log. Result: None."""

    level: str
    text: str
    once: str = field(default="")
    """Not empty: lines with the same key are written only once a process."""


Effect: TypeAlias = (
    ReadMemory
    | ReadString
    | WriteMemory
    | Post
    | Request
    | Fetch
    | Syscall
    | ReadFile
    | WriteFile
    | CallProgram
    | StartThread
    | NextHostCall
    | HostDone
    | Connect
    | LogLine
)
Steps: TypeAlias = Generator[Effect, Any, int]
"""A call in progress; its value is the CUresult."""
_T = TypeVar("_T")
Part: TypeAlias = Generator[Effect, Any, _T]
"""A part of a call, used with ``yield from``."""
