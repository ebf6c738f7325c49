"""What the agent knows about one process: devices, contexts, names, functions, host memory. Pure data; no I/O.

`SessionState` belongs to the forwarder thread.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lanGPU.client.layout import AGENT_HANDLE_BASE
from lanGPU.constants import CUDA_ERROR_OUT_OF_MEMORY, MAX_HANDLES
from lanGPU.driverapi.model import ApiFunction
from lanGPU.errors import LanGPUError
from lanGPU.wire.handshake import DeviceInfo, Welcome
from lanGPU.wire.records import HANDLE_GENERATION_SHIFT, HANDLE_INDEX_MASK, HANDLE_TAG, HANDLE_TAG_MASK, make_handle

Layout = tuple[tuple[int, int], ...]
"""(offset, size) in bytes of each kernel parameter."""


class TooManyHandlesError(LanGPUError):
    """More live handles than MAX_HANDLES allows."""

    cu_result = CUDA_ERROR_OUT_OF_MEMORY
    exit_code = 93


class Symbols(Protocol):
    """Where the shim's entry points and strings lie in the program."""

    def address(self, symbol: str) -> int | None:
        """Address of an exported symbol, or None."""


class SharedTables(Protocol):
    """What is made known to the shim, so that it need not ask (`Ring`)."""

    def set_function(self, index: int, generation: int, params: Layout, packed_bytes: int) -> bool:
        """A kernel's parameters; False: there is no room for the layout."""

    def current_context(self, slot: int) -> int:
        """The slot's current context, which the shim may have replaced."""

    def set_current_context(self, slot: int, context: int) -> None:
        """The slot's current context, 0 for none."""

    def set_contexts(self, contexts: Sequence[tuple[int, int]]) -> None:
        """The contexts that live: (handle, device ordinal)."""

    def set_primary(self, device: int, flags: int, active: bool) -> None:
        """State of a device's primary context."""

    def set_attributes(self, device: int, attributes: Mapping[int, int]) -> None:
        """A device's attributes."""

    def set_storage(self, context: int, key: int, value: int) -> None:
        """An entry of context-local storage."""

    def set_shared(self, shared: bool, *, device_phase: bool) -> None:
        """Whether memory is shared, and whether the device has all that the program wrote."""

    def capturing(self) -> bool:
        """A stream capture may be going on."""

    def position(self) -> int:
        """Bytes of records that the program ever made."""

    def remove_storage(self, context: int, key: int) -> None:
        """The entry is gone."""


class HandleNames:
    """Names that the agent gives to handles. Indexes are its own half of the table."""

    def __init__(self, base: int = AGENT_HANDLE_BASE, limit: int = MAX_HANDLES) -> None:
        self._next = base
        self._limit = limit
        self._free: list[int] = []
        self._generations: dict[int, int] = {}

    def take(self) -> int:
        """A fresh name. Raises TooManyHandlesError."""
        if self._free:
            index = self._free.pop()
        elif self._next < self._limit:
            index = self._next
            self._next += 1
        else:
            raise TooManyHandlesError("the program holds too many CUDA handles")
        return make_handle(index, self._generations.get(index, 0))

    def give_back(self, handle: int) -> None:
        """The handle does not exist (any more); a name that is not current is ignored."""
        index = handle & HANDLE_INDEX_MASK
        if make_handle(index, self._generations.get(index, 0)) != handle or index >= self._next:
            return
        self._generations[index] = (self._generations.get(index, 0) + 1) & 0xFFFF
        self._free.append(index)


@dataclass(slots=True)
class Context:
    """A CUDA context by its name."""

    handle: int
    device: int
    flags: int
    id: int
    api_version: int = 3020
    primary: bool = False


@dataclass(slots=True)
class Primary:
    """A device's primary context."""

    handle: int = 0
    """Its name, given at the first retain and kept for good; 0: not yet."""
    retains: int = 0
    """References of the program."""
    server_retains: int = 0
    """References that the server holds for us."""
    active: bool = False
    flags: int = 0


@dataclass(slots=True)
class Thread:
    """One application thread: its slot and its context stack (last is current)."""

    slot: int
    stack: list[int] = field(default_factory=list)
    announced: int = 0
    """The current context the server knows of for this slot."""
    capture_mode: int = 0

    @property
    def current(self) -> int:
        """The current context's handle; 0: none."""
        return self.stack[-1] if self.stack else 0


@dataclass(slots=True)
class HostRange:
    """Host memory that CUDA knows: allocated by us or registered by the program."""

    start: int
    size: int
    flags: int
    mapped_bytes: int
    """What to unmap; 0: registered memory, which is the program's."""


class RangeMap:
    """Disjoint address ranges."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[HostRange] = []

    def add(self, item: HostRange) -> None:
        """The range must overlap no other."""
        at = bisect.bisect(self._starts, item.start)
        self._starts.insert(at, item.start)
        self._ranges.insert(at, item)

    def find(self, address: int) -> HostRange | None:
        """The range that holds `address`."""
        at = bisect.bisect(self._starts, address) - 1
        if at >= 0 and address < self._starts[at] + self._ranges[at].size:
            return self._ranges[at]
        return None

    def overlaps(self, start: int, size: int) -> bool:
        """Some range has a byte in common with [start, start + size)."""
        at = bisect.bisect_left(self._starts, start + size) - 1
        return at >= 0 and self._starts[at] + self._ranges[at].size > start

    def remove(self, item: HostRange) -> None:
        """Forget the range."""
        at = bisect.bisect(self._starts, item.start) - 1
        del self._starts[at], self._ranges[at]


@dataclass(slots=True, eq=False)
class SharedRange:
    """Memory that lies in the program and on the device (`lanGPU.client.calls.shared`)."""

    start: int
    """Where the program has it."""
    size: int
    device: int
    """Where the device has it."""
    context: int
    """The context that it dies with."""


class SharedRanges:
    """The shared ranges of a process, few in number."""

    def __init__(self) -> None:
        self._items: list[SharedRange] = []
        self.streams: dict[int, int] = {}
        """Context -> the stream of our copies."""
        self.pages: set[int] = set()
        """Pages of the program that were mapped for variables of libraries."""
        self.worked = False
        """Device work was sent that no pull has seen."""
        self.seen = 0
        """How far the program's records had come at the last pull."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> "Iterator[Any]":
        return iter(self._items)

    def add(self, item: SharedRange) -> None:
        """A range was made."""
        self._items.append(item)

    def remove(self, item: SharedRange) -> None:
        """A range ended."""
        self._items.remove(item)

    def find(self, address: int) -> SharedRange | None:
        """The range that holds a program address."""
        return next((item for item in self._items if item.start <= address < item.start + item.size), None)

    def drop_context(self, context: int) -> int:
        """Ranges of a destroyed context are no more; returns the stream of our copies in it, or 0."""
        self._items = [item for item in self._items if item.context != context]
        return self.streams.pop(context, 0)


@dataclass(frozen=True, slots=True)
class Callback:
    """A function of the program's that the device's work calls, with its argument."""

    function: int
    data: int
    context: int
    """The context that was current when it was registered; 0: none."""
    stream: int | None
    """Not None: a CUstreamCallback, which is given this stream and a status."""
    lasting: bool
    """It belongs to a graph and may be called any number of times."""
    destructor: bool = False


class Callbacks:
    """The registered functions by the numbers that the server knows."""

    def __init__(self) -> None:
        self.started = False
        """The thread that calls them was made."""
        self._by_number: dict[int, Callback] = {}
        self._numbers: dict[Callback, int] = {}
        self._last = 0
        self._pending = 0
        self._lasting = False

    @property
    def pending(self) -> bool:
        """Some function may still write memory that copies, which the program has already asked for, read."""
        return self._lasting or self._pending > 0

    def add(self, callback: Callback) -> int:
        """A number for it; one that is lasting has the same each time."""
        if callback.lasting:
            self._lasting = True
            known = self._numbers.get(callback)
            if known is not None:
                return known
        elif not callback.destructor:
            self._pending += 1
        self._last += 1
        self._by_number[self._last] = callback
        if callback.lasting:
            self._numbers[callback] = self._last
        return self._last

    def find(self, number: int) -> Callback | None:
        """The callback of that number."""
        return self._by_number.get(number)

    def begin(self, number: int) -> Callback | None:
        """It is called now; the number of one that is not lasting means nothing from here on."""
        callback = self._by_number.get(number)
        if callback is not None and not callback.lasting:
            del self._by_number[number]
        return callback

    def end(self, callback: Callback) -> None:
        """It returned."""
        if not callback.lasting and not callback.destructor:
            self._pending -= 1

    def remove(self, number: int) -> None:
        """It was refused and will never be called."""
        callback = self.begin(number)
        if callback is not None:
            self.end(callback)


@dataclass(slots=True)
class Function:
    """A kernel (CUkernel or CUfunction) by its name. `layout` None: not known, only `extra` launches work."""

    handle: int
    owner: int
    name: str
    layout: Layout | None
    packed_bytes: int = 0


class Children:
    """Handles that live in another one: functions of a module, kernels of a library; asked for twice they get the same name."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, str], int] = {}
        self._by_owner: dict[int, list[tuple[str, int]]] = {}

    def find(self, owner: int, key: str) -> int | None:
        """The name given before."""
        return self._by_key.get((owner, key))

    def add(self, owner: int, key: str, handle: int) -> None:
        """Remember the name."""
        self._by_key[owner, key] = handle
        self._by_owner.setdefault(owner, []).append((key, handle))

    def drop(self, owner: int) -> list[int]:
        """The owner died: its children's handles, forgotten."""
        gone = self._by_owner.pop(owner, [])
        for key, _ in gone:
            self._by_key.pop((owner, key), None)
        return [handle for _, handle in gone]


class SessionState:
    """Everything hand-written calls may look at and change."""

    def __init__(self, symbols: Symbols, table: SharedTables, *, process_id: int = 0) -> None:
        self.symbols = symbols
        self.table = table
        self.process_id = process_id
        self.welcome: Welcome | None = None
        self.initialised = False
        self.threads: dict[int, Thread] = {}
        self.contexts: dict[int, Context] = {}
        self.primaries: dict[int, Primary] = {}
        self.names = HandleNames()
        self.functions: dict[int, Function] = {}
        self.accepted_launches: set[tuple[int, ...]] = set()
        """(function, cooperative, sizes) of launches that were waited for and not refused."""
        self.children = Children()
        self.host = RangeMap()
        self.shared = SharedRanges()
        self.callbacks = Callbacks()
        self.strings: dict[bytes, int] = {}
        """Where NUL-terminated strings lie in the program."""
        self.string_room: tuple[int, int] = (0, 0)
        """Free part of the page that strings are put in: address, bytes."""
        self.pools: dict[tuple[str, int], int] = {}
        self.links: dict[int, object] = {}
        self.log_buffers: dict[int, object] = {}
        self.storage: dict[tuple[int, int], tuple[int, int]] = {}
        """Context-local storage: (context, key) -> (value, destructor)."""
        self.private_tables: dict[bytes, int] = {}
        """Identifier -> where that table lies in the program."""
        self.capture_rooms: dict[int, tuple[int, int]] = {}
        """Slot -> where arrays of captured nodes are shown to that thread: address, bytes."""
        self.node_rooms: dict[int, tuple[int, int]] = {}
        """Kernel node -> where its parameters are shown to the program: address, bytes."""
        self.next_context_id = 1
        self.nvml_users = 0
        """nvmlInit calls that were not undone."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """The served devices; empty before cuInit."""
        return self.welcome.devices if self.welcome is not None and self.initialised else ()

    def device(self, ordinal: int) -> DeviceInfo | None:
        """The device with that CUdevice, or None."""
        devices = self.devices
        return devices[ordinal] if 0 <= ordinal < len(devices) else None

    def thread(self, slot: int) -> Thread:
        """The thread of a slot."""
        found = self.threads.get(slot)
        if found is None:
            found = self.threads[slot] = Thread(slot)
        elif found.stack:
            current = self.table.current_context(slot)
            if current != found.stack[-1] and current in self.contexts:
                # The shim replaced one living context by another, and posted the record that says so.
                found.stack[-1] = found.announced = current
        return found

    def all_threads(self) -> Iterator[Thread]:
        """Every thread that made a call, as it is now."""
        for slot in list(self.threads):
            yield self.thread(slot)

    def publish_thread(self, thread: Thread) -> None:
        """The thread's stack changed."""
        self.table.set_current_context(thread.slot, thread.current)

    def publish_contexts(self) -> None:
        """Contexts were made or ended."""
        self.table.set_contexts([(c.handle, c.device) for c in self.contexts.values()])

    def publish_primary(self, ordinal: int) -> None:
        """A primary context's flags or state changed."""
        primary = self.primaries.get(ordinal) or Primary()
        self.table.set_primary(ordinal, primary.flags, primary.active)

    def publish_devices(self) -> None:
        """After cuInit: what the shim may say of the devices."""
        for ordinal, device in enumerate(self.devices):
            self.table.set_attributes(ordinal, device.attributes)
            self.publish_primary(ordinal)

    def publish_looks(self) -> None:
        """Shared memory or host functions came or went: which calls the agent must see."""
        shared = bool(self.shared)
        self.table.set_shared(shared or self.callbacks.pending, device_phase=not shared)

    def current_context(self, thread: Thread) -> Context | None:
        """The thread's current context, if it still exists."""
        return self.contexts.get(thread.current)

    def new_context(self, handle: int, device: int, flags: int, *, primary: bool = False, api_version: int = 3020) -> Context:
        """Remember a context that the server made."""
        context = Context(handle, device, flags, self.next_context_id, api_version, primary)
        self.next_context_id += 1
        self.contexts[handle] = context
        self.publish_contexts()
        return context

    def publish_function(self, function: Function) -> bool:
        """Make a function's parameters known to the shim; False where there is no room (then `extra` launches only)."""
        self.functions[function.handle] = function
        if function.layout is None:
            return False
        index = function.handle & HANDLE_INDEX_MASK
        generation = function.handle >> HANDLE_GENERATION_SHIFT & 0xFFFF
        return self.table.set_function(index, generation, function.layout, function.packed_bytes)

    def release_name(self, handle: int) -> None:
        """The handle is gone; its name is free again if it was ours to give."""
        if handle & HANDLE_TAG_MASK == HANDLE_TAG and handle & HANDLE_INDEX_MASK >= AGENT_HANDLE_BASE:
            self.names.give_back(handle)

    def drop_children(self, owner: int) -> None:
        """A module or library died, and what lives in it."""
        for handle in self.children.drop(owner):
            self.functions.pop(handle, None)
            self.drop_children(handle)  # a library's module, a kernel's function
            self.names.give_back(handle)


@dataclass(slots=True)
class Call:
    """One call of the program: who called what with which raw arguments."""

    state: SessionState
    thread: Thread
    row: ApiFunction
    args: tuple[int, ...]
    flags: int = 0
    thread_pointer: int = 0

    def pointer(self, name: str) -> int:
        """Raw argument by its cuda.h name."""
        return self.args[self.row.arg_index[name]]


def i32(word: int) -> int:
    """A register's low half as C int."""
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word & 0x8000_0000 else word


def u32(word: int) -> int:
    """A register's low half as unsigned int."""
    return word & 0xFFFF_FFFF
