"""What the driver's handles stand for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lanGPU.emulator.results import INVALID_HANDLE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.cubin import RecordedKernel
    from lanGPU.emulator.driver.capture import Capture
    from lanGPU.emulator.driver.images import LoadedImage
    from lanGPU.emulator.driver.nodes import Node
    from lanGPU.emulator.driver.services import KernelServices
    from lanGPU.emulator.memory import Allocation
    from lanGPU.emulator.ptx import CompiledKernel, KernelInfo

logger = logging.getLogger(__name__)

T = TypeVar("T")

_HANDLE_BASE: Final = 0x4500_0000_0000
"""Handles are canonical addresses at which nothing is ever mapped; below lanGPU's virtual handles, above device memory."""

STREAM_LEGACY: Final = 1
STREAM_PER_THREAD: Final = 2
STREAM_NON_BLOCKING: Final = 1
EVENT_DISABLE_TIMING: Final = 2
EVENT_INTERPROCESS: Final = 4


class HandleTable:
    """Handle -> object. A handle is never given out twice, so a stale one is always found out."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._next = count(_HANDLE_BASE, 16)

    def add(self, value: Any) -> int:
        """A new handle for `value`."""
        handle = next(self._next)
        self._objects[handle] = value
        return handle

    def get(self, handle: int, kind: type[T], error: int = INVALID_HANDLE) -> T:
        """The object behind `handle`; CuError(error) if there is none of that kind."""
        value = self._objects.get(handle)
        if not isinstance(value, kind):
            raise CuError(error)
        return value

    def peek(self, handle: int) -> Any:
        """The object behind `handle`, or None."""
        return self._objects.get(handle)

    def remove(self, handle: int) -> None:
        """Forgets `handle`; unknown ones are ignored."""
        self._objects.pop(handle, None)

    def all(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        """All (handle, object) of a kind."""
        return iter([(h, v) for h, v in self._objects.items() if isinstance(v, kind)])


@dataclass(slots=True, eq=False)
class Device:
    """One emulated GPU."""

    ordinal: int
    attributes: dict[int, int]
    uuid: bytes
    primary: Context | None = None
    primary_references: int = 0
    primary_flags: int = 0
    default_pool: Pool = None  # type: ignore[assignment]
    pool: Pool = None  # type: ignore[assignment]


@dataclass(slots=True, eq=False)
class Context:
    """A CUcontext. `error` is the sticky one: not 0 means that every further call answers it."""

    device: Device
    flags: int
    id: int
    primary: bool = False
    handle: int = 0
    error: int = 0
    alive: bool = True
    api_version: int = 3020
    cache_config: int = 0
    shared_config: int = 1
    limits: dict[int, int] = field(default_factory=dict)
    peers: set[Context] = field(default_factory=set)
    legacy: Stream = None  # type: ignore[assignment]
    per_thread: dict[int, Stream] = field(default_factory=dict)
    streams: set[Stream] = field(default_factory=set)
    modules: dict[int, Module] = field(default_factory=dict)
    kernels: dict[tuple[int, str], int] = field(default_factory=dict)
    """(library id, name) -> CUfunction that cuKernelGetFunction made for this context."""
    libraries: dict[int, int] = field(default_factory=dict)
    """Library handle -> CUmodule that stands for it here."""
    storage: dict[int, tuple[int, int]] = field(default_factory=dict)
    services: KernelServices | None = None
    """Made by the first launch of a kernel that prints, asserts or allocates."""

    def fail(self, result: int, detail: str) -> None:
        """Keeps the first sticky error and logs what happened."""
        if not self.error:
            self.error = result
            logger.error("%s; every call in this context answers CUresult %d from now on", detail, result)


@dataclass(slots=True, eq=False)
class Stream:
    """A CUstream. `last` is the number of its newest operation in the device's queue."""

    context: Context
    id: int
    flags: int = 0
    priority: int = 0
    handle: int = 0
    last: int = 0
    capture: Capture | None = None
    attributes: dict[int, bytes] = field(default_factory=dict)

    @property
    def blocking(self) -> bool:
        """Whether the legacy default stream and this one wait for each other."""
        return not self.flags & STREAM_NON_BLOCKING


@dataclass(slots=True, eq=False)
class Recording:
    """One cuEventRecord: its place in the queue and, once carried out, the time."""

    number: int = 0
    time_ns: int = 0


@dataclass(slots=True, eq=False)
class Event:
    """A CUevent."""

    context: Context
    flags: int
    recording: Recording | None = None
    capture: Capture | None = None
    capture_nodes: frozenset[Node] = frozenset()


@dataclass(slots=True, eq=False)
class Module:
    """A CUmodule: an image loaded in one context, with its globals in device memory."""

    context: Context
    image: LoadedImage
    handle: int = 0
    functions: dict[str, int] = field(default_factory=dict)
    library: Library | None = None


@dataclass(slots=True, eq=False)
class Function:
    """A CUfunction: a kernel in one context."""

    module: Module
    name: str
    info: KernelInfo
    handle: int = 0
    kernel: Kernel | None = None
    compiled: CompiledKernel | RecordedKernel | None = None
    max_dynamic_shared: int = -1
    """-1: what is left of 48 KiB beside the static part."""
    carveout: int = -1
    cache_config: int = 0


@dataclass(slots=True, eq=False)
class Library:
    """A CUlibrary: an image that is loaded into contexts on demand."""

    make_image: Callable[[], LoadedImage]
    image: LoadedImage
    """The image as parsed; each context loads its own from the same text."""
    handle: int = 0
    kernels: dict[str, int] = field(default_factory=dict)
    managed: dict[str, Allocation] | None = None
    """Its `__managed__` variables, once somebody asked for one or a context loaded it."""
    alive: bool = True


@dataclass(slots=True, eq=False)
class Kernel:
    """A CUkernel: a kernel of a library, in no context yet."""

    library: Library
    name: str
    info: KernelInfo
    handle: int = 0
    max_dynamic_shared: dict[int, int] = field(default_factory=dict)
    """Device ordinal -> value of cuKernelSetAttribute."""
    carveout: int = -1


@dataclass(slots=True, eq=False)
class Pool:
    """A CUmemoryPool: accounting only, memory goes back to the device as it is freed."""

    device: Device
    max_size: int = 0
    handle: int = 0
    is_default: bool = False
    used: int = 0
    used_high: int = 0
    attributes: dict[int, int] = field(default_factory=dict)
    access: dict[int, int] = field(default_factory=dict)
    alive: bool = True
