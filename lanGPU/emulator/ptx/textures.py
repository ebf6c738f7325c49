"""Texture and surface objects as compiled kernels see them: a native table of descriptors. Offsets in bytes.

A handle is generation << 16 | slot. Table: one pointer a slot, 0 where there is none. Kernels compare the handle with the one in the
descriptor, so a stale or made-up number is a fault. Descriptors are never given back, only used again: a kernel that still runs
reads no freed memory.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAX_OBJECTS: Final = 1 << 16
"""Live objects of one driver; handles carry the slot in 16 bits."""
MAX_LEVELS: Final = 18
"""Levels of the largest mipmapped array (131,072 elements)."""

# --- descriptor -------------------------------------------------------------------------------------------------------
HANDLE: Final = 0  # i64
KIND: Final = 8  # i32: TEXTURE or SURFACE
READ: Final = 12  # i32: Read
ELEMENT_BYTES: Final = 16  # i32
CHANNELS: Final = 20  # i32
ADDRESS_MODES: Final = 24  # 3 x i32: CUaddress_mode
NORMALIZED: Final = 36  # i32: coordinates are in [0, 1)
LINEAR: Final = 40  # i32: linear filtering
SRGB: Final = 44  # i32
LEVELS: Final = 48  # i32
MIP_LINEAR: Final = 52  # i32: between levels
BIAS: Final = 56  # f32
MIN_LEVEL: Final = 60  # f32
MAX_LEVEL: Final = 64  # f32
MEMORY: Final = 68  # i32: plain device memory, which may be freed while the object lives
BORDER: Final = 72  # 4 x i32: the border's value as the read returns it
LAYERS: Final = 88  # i32: layers (or faces) of a layered array; 0: none, the depth is a depth
CHANNEL_TYPE: Final = 92  # i32: CUarray_format
EXTENT_BYTES: Final = 96  # i64: of plain device memory, from the first level's base
LEVEL_TABLE: Final = 104  # MAX_LEVELS x level
# --- level ------------------------------------------------------------------------------------------------------------
BASE: Final = 0  # i64
PITCH: Final = 8  # i64
SLICE: Final = 16  # i64
SIZES: Final = 24  # 3 x i32: width, height, depth in texels; at least 1
LEVEL_BYTES: Final = 40
DESCRIPTOR_BYTES: Final = LEVEL_TABLE + MAX_LEVELS * LEVEL_BYTES

TEXTURE: Final = 1
SURFACE: Final = 2

WRAP, CLAMP, MIRROR, BORDER_MODE = range(4)
"""CUaddress_mode"""


class Read(IntEnum):
    """What becomes of a channel that is read."""

    UNSIGNED = 0
    SIGNED = 1
    UNORM = 2
    SNORM = 3
    HALF = 4
    FLOAT = 5


@dataclass(frozen=True, slots=True)
class Level:
    """Where one level's texels lie; sizes in texels, at least 1."""

    base: int
    pitch: int
    slice_pitch: int
    width: int
    height: int
    depth: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An object's contents."""

    kind: int
    read: Read
    element_bytes: int
    channels: int
    format: int
    levels: tuple[Level, ...]
    layers: int = 0
    address_modes: tuple[int, int, int] = (CLAMP, CLAMP, CLAMP)
    normalized: bool = False
    linear: bool = False
    srgb: bool = False
    mip_linear: bool = False
    bias: float = 0.0
    min_level: float = 0.0
    max_level: float = 0.0
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Bits of the value of each channel."""
    memory_bytes: int = 0
    """Not 0: plain device memory of so many bytes."""

    def pack(self, handle: int) -> bytes:
        """The native form."""
        head = struct.pack(
            "<QiiiiiiiiiiiifffI4IiiQ",
            handle,
            self.kind,
            self.read,
            self.element_bytes,
            self.channels,
            *self.address_modes,
            self.normalized,
            self.linear,
            self.srgb,
            len(self.levels),
            self.mip_linear,
            self.bias,
            self.min_level,
            self.max_level,
            bool(self.memory_bytes),
            *self.border,
            self.layers,
            self.format,
            self.memory_bytes,
        )
        levels = b"".join(
            struct.pack("<QQQiiii", lv.base, lv.pitch, lv.slice_pitch, lv.width, lv.height, lv.depth, 0) for lv in self.levels
        )
        return head + levels


class ObjectTable:
    """The objects of one driver. Thread-safe."""

    def __init__(self) -> None:
        self._table = (ctypes.c_uint64 * MAX_OBJECTS)()
        self._memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._generations: dict[int, int] = {}
        self._free: list[int] = []
        self._next = 1
        self._owners: dict[int, object] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> int:
        """Of the native table."""
        return ctypes.addressof(self._table)

    def add(self, descriptor: Descriptor, owner: object) -> int:
        """A new object's handle.

        Raises:
            MemoryError: there are MAX_OBJECTS already.
        """
        with self._lock:
            if self._free:
                slot = self._free.pop()
            elif self._next < MAX_OBJECTS:
                slot = self._next
                self._next += 1
                self._memory[slot] = ctypes.create_string_buffer(DESCRIPTOR_BYTES)
            else:
                raise MemoryError("too many texture and surface objects")
            generation = self._generations[slot] = self._generations.get(slot, 0) + 1
            handle = generation << 16 | slot
            data = descriptor.pack(handle)
            ctypes.memmove(self._memory[slot], data, len(data))
            self._table[slot] = ctypes.addressof(self._memory[slot])
            self._owners[handle] = owner
            return handle

    def get(self, handle: int) -> object | None:
        """What `add` was given with it."""
        return self._owners.get(handle)

    def remove(self, handle: int) -> None:
        """Ends an object; unknown ones are ignored."""
        with self._lock:
            if self._owners.pop(handle, None) is not None:
                slot = handle & 0xFFFF
                self._table[slot] = 0
                self._free.append(slot)

    def remove_where(self, condition: Callable[[object], bool]) -> None:
        """Ends all objects whose owner fulfils `condition`."""
        for handle, owner in list(self._owners.items()):
            if condition(owner):
                self.remove(handle)
