"""The allocation map against a plain model, and its native table."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanGPU.emulator.ptx import AllocationMap

INTERVALS = st.tuples(st.integers(0, 200), st.integers(0, 30))


@given(st.lists(st.tuples(st.booleans(), INTERVALS), max_size=40))
def test_it_behaves_like_a_dict_of_intervals(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    known: dict[int, int] = {}
    table = AllocationMap()
    for add, (start, size) in steps:
        if add:
            overlaps = any(start < s + n and s < start + size for s, n in known.items())
            if size and overlaps:
                with pytest.raises(ValueError, match="overlaps"):
                    table.add(start, size)
            else:
                table.add(start, size)
                if size:
                    known[start] = size
        elif start in known:
            table.remove(start)
            del known[start]
        else:
            with pytest.raises(KeyError):
                table.remove(start)
    for address in range(240):
        expected = next(((s, n) for s, n in known.items() if s <= address < s + n), None)
        assert table.find(address) == expected
    words = table.hold()
    flat = [word for start in sorted(known) for word in (start, start + known[start])]
    assert list(words) == [len(known), *flat]


def test_a_held_table_outlives_changes() -> None:
    table = AllocationMap()
    table.add(0x1000, 16)
    held = table.hold()
    table.remove(0x1000)
    assert list(held) == [1, 0x1000, 0x1010]
    assert ctypes.c_uint64.from_address(table.address).value == 0
