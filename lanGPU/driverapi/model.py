"""The shape of a table row: argument kinds, call classes, replay rules.

Plain data with checks; imports no I/O. What a row means on the wire is in `lanGPU.wire.records`; how it is packed for machine
code in `lanGPU.driverapi.descriptor`.
"""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from lanGPU.constants import MAX_ARGS


class CallClass(StrEnum):
    """When the application may go on (DESIGN: call classes)."""

    POST = "post"
    """Recorded; CUDA_SUCCESS at once; a failure comes back with the next call that waits."""
    POST_NAMED = "post-named"
    """As POST; the client invents the handles that the call creates."""
    LOCAL = "local"
    """Answered on the client, no network."""
    SYNC = "sync"
    """Sent, and its reply waited for."""


class Replay(StrEnum):
    """What may be done with the call when its server was lost."""

    PURE = "pure"
    RECREATE = "recreate"
    CONTENT = "content"
    NEVER = "never"


class ArgKind(IntEnum):
    """How one argument is carried. The values are part of the descriptor format: append only."""

    SCALAR = 0
    """Integers, enums, flags, CUdevice ordinals: the 64-bit register value as it is."""
    SIZE = 1
    """A byte count; carried as SCALAR."""
    DPTR = 2
    """A device address; carried as SCALAR."""
    HANDLE = 3
    """A handle used: virtual on the wire, translated by the server; 0 and special values (streams 1, 2) pass."""
    HANDLE_OUT = 4
    """``T *out``: the client names the new handle, the server binds the driver's value to that name."""
    HANDLE_DESTROY = 5
    """A handle that ceases to exist when the call succeeds."""
    HANDLE_QUERY = 6
    """``T *out`` that reports an existing handle: the server maps the driver's value back to its name."""
    BYTES_IN = 7
    """``const void *`` to memory that the driver reads; the length by the size rule."""
    BYTES_OUT = 8
    """``void *`` to memory that the driver fills; the length by the size rule."""
    CSTRING = 9
    """NUL-terminated ``const char *``; carried with its NUL."""
    KERNEL_PARAMS = 10
    """``void **kernelParams``, always followed by KERNEL_EXTRA: both become one packed parameter buffer."""
    KERNEL_EXTRA = 11
    """``void **extra``."""
    NULL_ONLY = 12
    """A pointer for which only NULL is carried by the generic path; anything else answers NOT_SUPPORTED."""
    BYTES_INOUT = 13
    """Memory that the driver reads and then fills; carried both ways."""
    HOST_PTR = 14
    """A client-side address that only hand-written code interprets; generic code must never meet it."""


class HandleType(IntEnum):
    """What a handle names. Values are part of the wire format: append only."""

    NONE = 0
    CONTEXT = 1
    MODULE = 2
    FUNCTION = 3
    """CUfunction and CUkernel: the API lets one stand for the other."""
    STREAM = 4
    EVENT = 5
    LIBRARY = 6
    GRAPH = 7
    GRAPH_NODE = 8
    GRAPH_EXEC = 9
    MEM_POOL = 10
    MEM_ALLOCATION = 11
    LINK_STATE = 12
    ARRAY = 13
    MIPMAPPED_ARRAY = 14
    TEX_OBJECT = 15
    SURF_OBJECT = 16
    USER_OBJECT = 17
    GREEN_CONTEXT = 18
    DEV_RESOURCE_DESC = 19
    EXTERNAL_MEMORY = 20
    EXTERNAL_SEMAPHORE = 21
    TEXREF = 22


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: its cuda.h name and how it is carried.

    Size rule (BYTES_*): ``size_const`` bytes if ``size_from`` is empty, else ``value of argument size_from * size_const``.
    An argument counted with is a SIZE (64 bits) or a SCALAR (a 32-bit count: the upper half of its register may hold anything).
    """

    name: str
    kind: ArgKind
    handle: HandleType = HandleType.NONE
    size_from: str = ""
    size_const: int = 0


@dataclass(frozen=True, slots=True)
class ApiFunction:
    """One row of the table. ``name`` is the exported ABI symbol (``cuMemAlloc_v2``), ``api_id`` permanent and never reused."""

    name: str
    api_id: int
    call_class: CallClass
    replay: Replay
    args: tuple[Arg, ...]
    since: int
    """CUDA version (e.g. 3020) in which this ABI variant appeared; what cuGetProcAddress is asked for."""
    blocking: bool = False
    """The driver may block in this call until the device got somewhere: the worker never does so on its issuing thread."""
    client: str = ""
    """Reason why the client's side is hand-written (lanGPU.client.calls); empty: the shim does it from the descriptor."""
    server: str = ""
    """Reason why the server's side is hand-written (lanGPU.server.calls); empty: the executor does it from the descriptor."""
    large: str = ""
    """Reason why calls with more bytes than fit a record inline are hand-written on the client; small ones stay with the shim."""
    aliases: tuple[str, ...] = ()
    """Other exported symbols with the same ABI and meaning (``cuStreamDestroy`` for ``cuStreamDestroy_v2``)."""
    per_thread: str = ""
    """Suffix of the per-thread-default-stream variant ("_ptsz" or "_ptds"); empty where cuda.h has none."""
    source: str = ""
    note: str = ""
    arg_index: dict[str, int] = field(init=False, compare=False, repr=False, hash=False, default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.args) > MAX_ARGS:
            raise ValueError(f"{self.name}: {len(self.args)} arguments, the descriptor holds {MAX_ARGS}")
        self.arg_index.update({arg.name: i for i, arg in enumerate(self.args)})

    @property
    def reports_earlier(self) -> bool:
        """Whether a reply may carry the failure of an earlier posted call instead of a success: not where the call made or ended
        something, whose owner would then believe that it did not, and not where no driver function was called."""
        named = any(arg.kind in (ArgKind.HANDLE_OUT, ArgKind.HANDLE_DESTROY) for arg in self.args)
        driver_function = not self.name.startswith("langpu")
        return driver_function and self.call_class is CallClass.SYNC and self.replay is not Replay.RECREATE and not named

    @property
    def base_name(self) -> str:
        """The name in cuda.h's documentation: without ABI version suffix."""
        head, _, tail = self.name.rpartition("_v")
        return head if head and tail.isdigit() else self.name
