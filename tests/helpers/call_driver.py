"""Drives hand-written client calls without any process: memory is a dict of regions, the server a function."""

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lanGPU.client.calls import BEFORE_INIT, HANDLERS, effects, fallback, start
from lanGPU.client.calls.state import Call, SessionState
from lanGPU.client.memory import ProgramFaultError
from lanGPU.constants import CUDA_ERROR_NOT_INITIALIZED
from lanGPU.driverapi.table import BY_NAME
from lanGPU.errors import LanGPUError
from lanGPU.wire.handshake import DeviceInfo, Welcome

PAGE = 4096
Server = Callable[[str, tuple[Any, ...]], effects.Reply | int | bytes]

DEVICE = DeviceInfo(
    name="Test GPU",
    uuid=bytes(range(16)),
    total_bytes=8 << 30,
    pci_bus_id="0000:65:00.0",
    attributes={1: 1024, 2: 1024, 3: 1024, 4: 64, 75: 8, 76: 6},
)
WELCOME = Welcome(session="0a", server="desk", driver_version=13000, devices=(DEVICE,))


class Symbols:
    """Entry points at made-up addresses."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def address(self, symbol: str) -> int | None:
        return self.known.get(symbol)


class Table:
    """Remembers what was made known to the shim; layouts by handle index."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}
        self.contexts: list[tuple[int, int]] = []
        self.primaries: dict[int, tuple[int, bool]] = {}
        self.attributes: dict[int, dict[int, int]] = {}
        self.storage: dict[tuple[int, int], int] = {}
        self.shared = (False, False)
        self.layouts: dict[int, tuple[tuple[tuple[int, int], ...], int]] = {}

    def set_function(self, index: int, generation: int, params: tuple[tuple[int, int], ...], packed_bytes: int) -> bool:
        self.layouts[index] = params, packed_bytes
        return True

    def current_context(self, slot: int) -> int:
        return self.current.get(slot, 0)

    def set_current_context(self, slot: int, context: int) -> None:
        self.current[slot] = context

    def set_contexts(self, contexts: Sequence[tuple[int, int]]) -> None:
        self.contexts = list(contexts)

    def set_primary(self, device: int, flags: int, active: bool) -> None:
        self.primaries[device] = flags, active

    def set_attributes(self, device: int, attributes: Mapping[int, int]) -> None:
        self.attributes[device] = dict(attributes)

    def set_storage(self, context: int, key: int, value: int) -> None:
        self.storage[context, key] = value

    def remove_storage(self, context: int, key: int) -> None:
        self.storage.pop((context, key), None)

    def set_shared(self, shared: bool, *, device_phase: bool) -> None:
        self.shared = shared, device_phase

    def capturing(self) -> bool:
        return False

    def position(self) -> int:
        return 0


class Program:
    """A program's memory, a server, and one way to call."""

    def __init__(self, server: Server | None = None, *, initialised: bool = True) -> None:
        self.symbols = Symbols()
        self.table = Table()
        self.state = SessionState(self.symbols, self.table, process_id=1)
        self.server = server or (lambda name, values: 0)
        self.regions: dict[int, bytearray] = {}
        self.files: dict[bytes, bytes] = {}
        self.sent: list[tuple[str, tuple[Any, ...]]] = []
        self.log: list[str] = []
        self._addresses = itertools.count(0x7000_0000_0000, 1 << 24)
        self.welcome: Welcome | LanGPUError = WELCOME
        if initialised:
            self.state.welcome = WELCOME
            self.state.initialised = True

    # --- memory ---
    def put(self, data: bytes | bytearray | int) -> int:
        """Place bytes (or so many zero bytes) in memory; their address."""
        address = next(self._addresses)
        self.regions[address] = bytearray(data)
        return address

    def _find(self, address: int, length: int) -> tuple[bytearray, int]:
        for base, data in self.regions.items():
            if base <= address and address + length <= base + len(data):
                return data, address - base
        raise ProgramFaultError(f"{length} bytes at {address:#x}")

    def read(self, address: int, length: int) -> bytes:
        """As real memory: what follows a region in its last page is there, and zero."""
        for base, data in self.regions.items():
            mapped = (len(data) + PAGE - 1) & -PAGE
            if base <= address and address + length <= base + mapped:
                return bytes(data[address - base :][:length]).ljust(length, b"\0")
        raise ProgramFaultError(f"{length} bytes at {address:#x}")

    def u32(self, address: int) -> int:
        return int.from_bytes(self.read(address, 4), "little")

    def u64(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def string(self, address: int) -> bytes:
        out = bytearray()
        while (byte := self.read(address + len(out), 1)) != b"\0":
            out += byte
        return bytes(out)

    # --- calls ---
    def call(self, name: str, *args: int, thread: int = 0, flags: int = 0) -> int:
        """Call a driver function; its CUresult."""
        row = BY_NAME[name]
        words = tuple(a & 0xFFFF_FFFF_FFFF_FFFF for a in args) + (0,) * (16 - len(args))
        if not self.state.initialised and name not in BEFORE_INIT:
            return CUDA_ERROR_NOT_INITIALIZED
        call = Call(self.state, self.state.thread(thread), row, words, flags)
        gen = start(call, HANDLERS.get(name, fallback.generic))
        value: Any = None
        while True:
            try:
                effect = gen.throw(value) if isinstance(value, BaseException) else gen.send(value)
            except StopIteration as stop:
                return int(stop.value)
            except LanGPUError as exc:
                return exc.cu_result
            try:
                value = self._perform(effect)
            except LanGPUError as exc:
                value = exc

    def _ask(self, name: str, values: Sequence[Any]) -> effects.Reply:
        plain = tuple(bytes(v) if isinstance(v, bytearray | memoryview) else v for v in values)
        self.sent.append((name, plain))
        answer = self.server(name, plain)
        if isinstance(answer, bytes):
            return effects.Reply(0, answer)
        return effects.Reply(answer) if isinstance(answer, int) else answer

    def _perform(self, effect: effects.Effect) -> Any:
        match effect:
            case effects.ReadMemory(address, length):
                return bytearray(self.read(address, length))
            case effects.ReadString(address, maximum):
                text = self.string(address)
                assert len(text) < maximum
                return text
            case effects.WriteMemory(address, data):
                if not address:
                    raise ProgramFaultError("NULL")
                target, at = self._find(address, len(data))
                target[at : at + len(data)] = data
                return None
            case effects.Post(name, values):
                return self._ask(name, values).result
            case effects.Request(name, values):
                return self._ask(name, values)
            case effects.Fetch(pieces):
                result = 0
                for piece in pieces:
                    reply = self._ask(piece.name, piece.values)
                    result = result or reply.result
                    if not reply.result:
                        self._perform(effects.WriteMemory(piece.address, reply.outputs[: piece.length]))
                return result
            case effects.Syscall("mmap", args):
                return self.put(args[1])
            case effects.Syscall("munmap", args):
                del self.regions[args[0]]
                return 0
            case effects.ReadFile(path):
                if path not in self.files:
                    raise effects.FileError(f"{path!r}")
                return self.files[path]
            case effects.Connect():
                if isinstance(self.welcome, LanGPUError):
                    raise self.welcome
                self.state.welcome = self.welcome
                return self.welcome
            case effects.LogLine(_, text):
                self.log.append(text)
                return None
        raise AssertionError(effect)


def pack_words(*words: int) -> bytes:
    """u64 each."""
    return struct.pack(f"<{len(words)}Q", *(w & 0xFFFF_FFFF_FFFF_FFFF for w in words))
