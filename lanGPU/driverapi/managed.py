"""Advice and prefetches of managed memory: checked, kept, and told by cuMemRangeGetAttribute. Used by the client and the emulated driver.

They are hints: where the memory lies is decided by others, and what a program reads never depends on them.
Source: driver API, cuMemAdvise, cuMemPrefetchAsync, cuMemRangeGetAttribute.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

ATTACH_GLOBAL: Final = 1
ATTACH_HOST: Final = 2
ATTACH_SINGLE: Final = 4
CPU: Final = -1
"""CU_DEVICE_CPU"""
NOWHERE: Final = -2
"""CU_DEVICE_INVALID"""
LOCATION_DEVICE: Final = 1
LOCATION_HOST: Final = 2
_LOCATION_NUMA: Final = 3
_LOCATION_NUMA_CURRENT: Final = 4

_READ_MOSTLY, _PREFERRED, _ACCESSED, _PREFETCHED = 1, 3, 5, 100
"""Kinds of entries; the first three are the advice that sets, the next number is the one that unsets."""
_READ_MOSTLY_ATTRIBUTE, _PREFERRED_ATTRIBUTE, _ACCESSED_ATTRIBUTE, _PREFETCHED_ATTRIBUTE = 1, 2, 3, 4
_TYPES_AND_IDS: Final = {5: (_PREFERRED, 0), 6: (_PREFERRED, 1), 7: (_PREFETCHED, 0), 8: (_PREFETCHED, 1)}

Location = tuple[int, int]
"""(CUmemLocationType, id)"""
_NO_LOCATION: Final[Location] = (0, NOWHERE)


def location_of_device(device: int) -> Location:
    """The location that a CUdevice (or CU_DEVICE_CPU) means."""
    return (LOCATION_HOST, 0) if device == CPU else (LOCATION_DEVICE, device)


def location_of_word(word: int) -> Location:
    """A CUmemLocation, which is passed by value in one register."""
    kind, number = struct.unpack("<Ii", (word & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little"))
    return kind, number


def is_location(location: Location, devices: int) -> bool:
    """Whether there is such a place."""
    kind, number = location
    return kind in (LOCATION_HOST, _LOCATION_NUMA, _LOCATION_NUMA_CURRENT) or (kind == LOCATION_DEVICE and 0 <= number < devices)


def valid_advice(advice: int, location: Location, devices: int) -> bool:
    """Whether cuMemAdvise takes it; read-mostly and unset-preferred ignore the location."""
    if advice not in range(1, 7):
        return False
    return advice in (1, 2, 4) or is_location(location, devices)


@dataclass(slots=True)
class Hints:
    """What was advised for one allocation. Addresses are absolute."""

    entries: list[tuple[int, int, int, Location | None]] = field(default_factory=list)
    """(start, end, kind, location or None for unset), oldest first."""

    def advise(self, start: int, end: int, advice: int, location: Location) -> None:
        """cuMemAdvise of [start, end)."""
        kind, unset = (advice, False) if advice % 2 else (advice - 1, True)
        self._add(start, end, kind, location if not unset or kind == _ACCESSED else None, unset=unset)

    def prefetched(self, start: int, end: int, location: Location) -> None:
        """cuMemPrefetchAsync of [start, end)."""
        self._add(start, end, _PREFETCHED, location, unset=False)

    def _add(self, start: int, end: int, kind: int, location: Location | None, *, unset: bool) -> None:
        same = [e for e in self.entries if e[2] in (kind, -kind) and (kind != _ACCESSED or e[3] == location)]
        for entry in same:
            if start <= entry[0] and entry[1] <= end:
                self.entries.remove(entry)
        self.entries.append((start, end, -kind if unset else kind, location))

    def _at(self, address: int, kind: int) -> list[Location | None]:
        """The settings of one kind that hold at an address."""
        found: dict[Location | None, Location | None] = {}
        for start, end, entry, location in self.entries:
            if start <= address < end and abs(entry) == kind:
                key = location if kind == _ACCESSED else None
                found.pop(key, None)
                if entry > 0:
                    found[key] = location
        return list(found.values())

    def attribute(self, attribute: int, start: int, end: int, size: int) -> bytes | None:
        """The value of a CUmem_range_attribute for [start, end) in `size` bytes; None: an attribute or size that cannot be."""
        cuts = sorted({start, *(e for entry in self.entries for e in entry[:2] if start < e < end)})
        if attribute == _ACCESSED_ATTRIBUTE:
            if not size or size % 4:
                return None
            every = [{_device(place) for place in self._at(cut, _ACCESSED) if place} for cut in cuts]
            devices = sorted(set.intersection(*every))[: size // 4]
            return struct.pack(f"<{size // 4}i", *devices, *[NOWHERE] * (size // 4 - len(devices)))
        if size != 4:
            return None
        if attribute == _READ_MOSTLY_ATTRIBUTE:
            return struct.pack("<i", all(self._at(cut, _READ_MOSTLY) for cut in cuts))
        if attribute in (_PREFERRED_ATTRIBUTE, _PREFETCHED_ATTRIBUTE):
            return struct.pack("<i", _device(self._same(cuts, _PREFERRED if attribute == _PREFERRED_ATTRIBUTE else _PREFETCHED)))
        if attribute in _TYPES_AND_IDS:
            kind, part = _TYPES_AND_IDS[attribute]
            return struct.pack("<i", self._same(cuts, kind)[part])
        return None

    def _same(self, cuts: list[int], kind: int) -> Location:
        """The one location that holds everywhere; else none."""
        found = {(self._at(cut, kind) or [None])[0] for cut in cuts}
        return (found.pop() or _NO_LOCATION) if len(found) == 1 else _NO_LOCATION


def _device(location: Location) -> int:
    """The location as a CUdevice."""
    return location[1] if location[0] == LOCATION_DEVICE else NOWHERE if location == _NO_LOCATION else CPU
