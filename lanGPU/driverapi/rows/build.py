"""Short names for writing rows. What the headers say (version, per-thread variant) is looked up, never written."""

from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, HandleType, Replay
from lanGPU.driverapi.signatures import SIGNATURES

POST = CallClass.POST
POST_NAMED = CallClass.POST_NAMED
LOCAL = CallClass.LOCAL
SYNC = CallClass.SYNC

PURE = Replay.PURE
RECREATE = Replay.RECREATE
CONTENT = Replay.CONTENT
NEVER = Replay.NEVER

CONTEXT = HandleType.CONTEXT
MODULE = HandleType.MODULE
FUNCTION = HandleType.FUNCTION
STREAM = HandleType.STREAM
EVENT = HandleType.EVENT
LIBRARY = HandleType.LIBRARY
GRAPH = HandleType.GRAPH
GRAPH_NODE = HandleType.GRAPH_NODE
GRAPH_EXEC = HandleType.GRAPH_EXEC
MEM_POOL = HandleType.MEM_POOL
MEM_ALLOCATION = HandleType.MEM_ALLOCATION
LINK_STATE = HandleType.LINK_STATE
GREEN_CONTEXT = HandleType.GREEN_CONTEXT
USER_OBJECT = HandleType.USER_OBJECT


def scalar(name: str) -> Arg:
    """An integer, enum or small struct passed by value in one register."""
    return Arg(name, ArgKind.SCALAR)


def size(name: str) -> Arg:
    """A byte count or another length."""
    return Arg(name, ArgKind.SIZE)


def dptr(name: str) -> Arg:
    """A device address."""
    return Arg(name, ArgKind.DPTR)


def handle(name: str, kind: HandleType) -> Arg:
    """A handle that the call uses."""
    return Arg(name, ArgKind.HANDLE, kind)


def handle_out(name: str, kind: HandleType) -> Arg:
    """Where the call stores the handle it creates."""
    return Arg(name, ArgKind.HANDLE_OUT, kind)


def handle_destroy(name: str, kind: HandleType) -> Arg:
    """A handle that the call ends."""
    return Arg(name, ArgKind.HANDLE_DESTROY, kind)


def handle_query(name: str, kind: HandleType) -> Arg:
    """Where the call stores a handle that exists already."""
    return Arg(name, ArgKind.HANDLE_QUERY, kind)


def bytes_in(name: str, unit: int = 0, *, size_from: str = "") -> Arg:
    """Memory read: `unit` bytes, or `unit` (at least 1) times the argument `size_from`; neither: only hand-written code knows."""
    return Arg(name, ArgKind.BYTES_IN, size_from=size_from, size_const=unit or int(bool(size_from)))


def bytes_out(name: str, unit: int = 0, *, size_from: str = "") -> Arg:
    """Memory filled; sizes as in `bytes_in`."""
    return Arg(name, ArgKind.BYTES_OUT, size_from=size_from, size_const=unit or int(bool(size_from)))


def bytes_inout(name: str, unit: int = 0, *, size_from: str = "") -> Arg:
    """Memory read and then filled; sizes as in `bytes_in`."""
    return Arg(name, ArgKind.BYTES_INOUT, size_from=size_from, size_const=unit or int(bool(size_from)))


def cstring(name: str) -> Arg:
    """A NUL-terminated string."""
    return Arg(name, ArgKind.CSTRING)


def kernel_params(name: str) -> Arg:
    """``void **kernelParams``; `kernel_extra` must follow."""
    return Arg(name, ArgKind.KERNEL_PARAMS)


def kernel_extra(name: str) -> Arg:
    """``void **extra``."""
    return Arg(name, ArgKind.KERNEL_EXTRA)


def null_only(name: str) -> Arg:
    """A pointer of which only NULL is supported."""
    return Arg(name, ArgKind.NULL_ONLY)


def host_ptr(name: str) -> Arg:
    """A pointer into the program that only hand-written client code understands."""
    return Arg(name, ArgKind.HOST_PTR)


NEW_NODE = (
    handle_out("phGraphNode", GRAPH_NODE),
    handle("hGraph", GRAPH),
    bytes_in("dependencies", 8, size_from="numDependencies"),
    size("numDependencies"),
)
"""The first arguments of most calls that add a node to a graph."""


def row(
    name: str,
    api_id: int,
    call_class: CallClass,
    replay: Replay,
    *args: Arg,
    blocking: bool = False,
    client: str = "",
    server: str = "",
    large: str = "",
    aliases: tuple[str, ...] = (),
    note: str = "",
) -> ApiFunction:
    """The row of a function that the headers declare."""
    signature = SIGNATURES[name]
    return ApiFunction(
        name,
        api_id,
        call_class,
        replay,
        args,
        since=signature.since,
        blocking=blocking,
        client=client,
        server=server,
        large=large,
        aliases=aliases,
        per_thread=signature.per_thread,
        source="cuda.h",
        note=note,
    )
