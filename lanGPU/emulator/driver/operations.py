"""What the device does: operations of streams, and what the nodes of graphs carry out."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanGPU.emulator.driver.cabi import memmove, memset
from lanGPU.emulator.queue import Program
from lanGPU.emulator.results import (
    ASSERT,
    HARDWARE_STACK_ERROR,
    ILLEGAL_ADDRESS,
    ILLEGAL_INSTRUCTION,
    INVALID_PC,
    LAUNCH_FAILED,
    MISALIGNED_ADDRESS,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.objects import Context, Function, Recording
    from lanGPU.emulator.memory import Allocation, Memory
    from lanGPU.emulator.ptx import Fault

_PATTERN_BYTES: Final = 1024 * 1024
_HOST_FUNCTION: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
_STREAM_CALLBACK: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)
_SUCCESS: Final = 0
_FAULTS: Final = {
    "illegal address": ILLEGAL_ADDRESS,
    "misaligned address": MISALIGNED_ADDRESS,
    "trap": ILLEGAL_INSTRUCTION,
    "failed assertion": ASSERT,
    "stack overflow": HARDWARE_STACK_ERROR,
    "local memory overflow": HARDWARE_STACK_ERROR,
    "call through a bad function pointer": INVALID_PC,
}
"""Kinds of `Fault`; any other (a deadlock of a block's threads) is LAUNCH_FAILED."""


@dataclass(slots=True)
class Launch:
    """A kernel launch; parameters were copied when it was made."""

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes
    memory: Memory
    cooperative: bool = False

    @property
    def label(self) -> str:
        return f"kernel {self.function.name}"

    @property
    def context(self) -> Context:
        """The context that the kernel belongs to."""
        return self.function.module.context

    def run(self) -> None:
        """Runs the kernel; a fault is CUDA's error for it."""
        compiled = self.function.compiled
        assert compiled is not None  # launches compile before they are queued
        services = self.context.services if compiled.uses_system else None
        fault = compiled.launch(
            self.grid, self.block, self.shared_bytes, self.parameters, self.memory.map, services, cooperative=self.cooperative
        )
        if fault is not None:
            raise CuError(fault_result(fault), describe_fault(fault))


def fault_result(fault: Fault) -> int:
    """The CUresult of a kernel's fault."""
    return _FAULTS.get(fault.kind, LAUNCH_FAILED)


def describe_fault(fault: Fault) -> str:
    """Where a kernel failed, for people."""
    return f"{fault.kind} at {fault.address:#x}, block {fault.block}, thread {fault.thread}, PTX line {fault.line}"


@dataclass(slots=True)
class Copy:
    """`size` bytes between any two places. Device ranges are checked again when it runs: a stream-ordered free may be ahead of it."""

    destination: int
    source: int
    size: int
    memory: Memory
    check_destination: bool
    check_source: bool

    @property
    def label(self) -> str:
        return f"copy of {self.size} bytes from {self.source:#x} to {self.destination:#x}"

    def run(self) -> None:
        """Copies; overlapping ranges are as memmove has them."""
        if self.check_destination and not self.memory.contains(self.destination, self.size):
            raise CuError(ILLEGAL_ADDRESS, "the destination was freed")
        if self.check_source and not self.memory.contains(self.source, self.size):
            raise CuError(ILLEGAL_ADDRESS, "the source was freed")
        memmove(self.destination, self.source, self.size)


@dataclass(slots=True)
class BytesCopy:
    """Bytes that were taken from pageable host memory when the call was made, to a device range."""

    destination: int
    data: bytes
    memory: Memory

    @property
    def label(self) -> str:
        return f"copy of {len(self.data)} bytes to {self.destination:#x}"

    def run(self) -> None:
        """Copies."""
        if not self.memory.contains(self.destination, len(self.data)):
            raise CuError(ILLEGAL_ADDRESS, "the destination was freed")
        memmove(self.destination, self.data, len(self.data))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pitched copy: address of its first byte, and the distances between rows and slices in bytes."""

    address: int
    pitch: int
    slice_pitch: int
    device: bool
    array: int = 0
    """The CUarray that it lies in, and where: (x in bytes, y, z)."""
    corner: tuple[int, int, int] = (0, 0, 0)

    def extent(self, width: int, height: int, depth: int) -> int:
        """Bytes from the first byte to behind the last one."""
        return (depth - 1) * self.slice_pitch + (height - 1) * self.pitch + width


@dataclass(slots=True)
class PitchedCopy:
    """A 2D or 3D copy of `width` bytes x `height` x `depth`."""

    destination: Side
    source: Side
    width: int
    height: int
    depth: int
    memory: Memory

    @property
    def label(self) -> str:
        return f"pitched copy of {self.width} x {self.height} x {self.depth} bytes"

    def run(self) -> None:
        """Copies row by row, or whole slices where rows touch."""
        for side in (self.destination, self.source):
            if side.device and not self.memory.contains(side.address, side.extent(self.width, self.height, self.depth)):
                raise CuError(ILLEGAL_ADDRESS, "the memory was freed")
        if self.width == self.destination.pitch == self.source.pitch:
            rows, row_bytes = 1, self.width * self.height
        else:
            rows, row_bytes = self.height, self.width
        for z in range(self.depth):
            to = self.destination.address + z * self.destination.slice_pitch
            start = self.source.address + z * self.source.slice_pitch
            for y in range(rows):
                memmove(to + y * self.destination.pitch, start + y * self.source.pitch, row_bytes)


@dataclass(slots=True)
class Fill:
    """Sets `width` elements of `element_bytes` in each of `height` rows."""

    destination: int
    pitch: int
    value: int
    element_bytes: int
    width: int
    height: int
    memory: Memory

    @property
    def label(self) -> str:
        return f"memset of {self.width} x {self.height} elements at {self.destination:#x}"

    def run(self) -> None:
        """Fills."""
        row_bytes = self.width * self.element_bytes
        if not self.memory.contains(self.destination, (self.height - 1) * self.pitch + row_bytes):
            raise CuError(ILLEGAL_ADDRESS, "the destination was freed")
        if row_bytes == self.pitch or self.height == 1:
            self._row(self.destination, row_bytes * self.height)
            return
        for y in range(self.height):
            self._row(self.destination + y * self.pitch, row_bytes)

    def _row(self, address: int, size: int) -> None:
        pattern = (self.value & (1 << 8 * self.element_bytes) - 1).to_bytes(self.element_bytes, "little")
        if pattern.count(pattern[0]) == self.element_bytes:
            memset(address, pattern[0], size)
            return
        first = min(size, _PATTERN_BYTES)
        memmove(address, pattern * (first // self.element_bytes), first)
        done = first
        while done < size:  # doubling: each copy reads what the ones before it wrote
            step = min(done, size - done)
            memmove(address + done, address, step)
            done += step


@dataclass(slots=True)
class Record:
    """Takes the time for an event."""

    recording: Recording

    @property
    def label(self) -> str:
        return "event record"

    def run(self) -> None:
        """Stores the time; the queue's number says that it was reached."""
        self.recording.time_ns = time.perf_counter_ns()


@dataclass(slots=True)
class Nothing:
    """Takes a place in the order: waits between streams, empty nodes."""

    @property
    def label(self) -> str:
        return "empty operation"

    def run(self) -> None:
        """Does nothing: the queue's order is the whole effect."""


def _call_program(before: Callable[[], None] | None, call: Callable[[], None]) -> None:
    """What every call of a function of the program needs around it."""
    if before is not None:
        before()
    Program.called = True
    try:
        call()
    finally:
        Program.called = False


@dataclass(slots=True)
class HostFunction:
    """A function of the program's, called with its argument."""

    address: int
    user_data: int
    before: Callable[[], None] | None = None
    """Prints what kernels ahead of it wrote (CUDA C++ Programming Guide, "Formatted Output")."""

    @property
    def label(self) -> str:
        return f"host function {self.address:#x}"

    def run(self) -> None:
        """Calls it, without the interpreter's lock."""
        _call_program(self.before, lambda: _HOST_FUNCTION(self.address)(self.user_data))


@dataclass(slots=True)
class StreamCallback:
    """A function of the program's that is also given its stream and how the work went."""

    address: int
    stream: int
    user_data: int
    before: Callable[[], None] | None = None
    """As a HostFunction's."""

    @property
    def label(self) -> str:
        return f"stream callback {self.address:#x}"

    def run(self) -> None:
        """Calls it, without the interpreter's lock. Work that failed takes its context along: no callback comes after it."""
        _call_program(self.before, lambda: _STREAM_CALLBACK(self.address)(self.stream, _SUCCESS, self.user_data))


@dataclass(slots=True)
class WriteValue:
    """A stream memory operation that writes 4 or 8 bytes."""

    address: int
    value: int
    size: int
    memory: Memory

    @property
    def label(self) -> str:
        return f"write of {self.size} bytes at {self.address:#x}"

    def run(self) -> None:
        """Writes, in one access."""
        if not self.memory.contains(self.address, self.size):
            raise CuError(ILLEGAL_ADDRESS, "the memory was freed")
        kind = ctypes.c_uint64 if self.size == 8 else ctypes.c_uint32
        kind.from_address(self.address).value = self.value


@dataclass(slots=True)
class Free:
    """A stream-ordered free: the memory ends where the stream has got to."""

    allocation: Allocation
    memory: Memory

    @property
    def label(self) -> str:
        return f"free of {self.allocation.address:#x}"

    def run(self) -> None:
        """Forgets the allocation and gives the memory back."""
        if self.memory.allocations.get(self.allocation.address) is self.allocation:
            self.memory.forget(self.allocation)
            self.memory.reclaim(self.allocation)
