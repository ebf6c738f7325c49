"""The heap of kernels' malloc, against a model."""

from hypothesis import given
from hypothesis import strategies as st

from lanGPU.emulator.device_heap import DeviceHeap

BASE, SIZE = 1 << 20, 4096


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 900)), max_size=80))
def test_pieces_never_overlap_and_lie_in_the_heap(steps: list[tuple[bool, int]]) -> None:
    heap = DeviceHeap(BASE, SIZE)
    live: dict[int, int] = {}
    for take, number in steps:
        if take or not live:
            address = heap.allocate(number)
            if not address:
                continue
            assert address % 16 == 0
            assert address >= BASE
            assert address + number <= BASE + SIZE
            assert all(address + max(number, 1) <= a or a + max(s, 1) <= address for a, s in live.items())
            live[address] = number
        else:
            address = sorted(live)[number % len(live)]
            assert heap.free(address)
            del live[address]
            assert not heap.free(address)
    for address in live:
        assert heap.free(address)
    assert heap.allocate(SIZE) == BASE  # all of it is free again, in one piece


def test_a_full_heap() -> None:
    heap = DeviceHeap(BASE, SIZE)
    assert heap.allocate(SIZE + 1) == 0
    pieces = [heap.allocate(1000) for _ in range(4)]
    assert 0 not in pieces
    assert heap.allocate(1000) == 0
    heap.free(pieces[1])
    heap.free(pieces[2])
    assert heap.allocate(1500) == pieces[1]  # two neighbours, joined
    assert heap.allocate(400) == pieces[1] + 1504


def test_what_was_never_given_out_cannot_be_freed() -> None:
    heap = DeviceHeap(BASE, SIZE)
    address = heap.allocate(64)
    assert not heap.free(address + 16)
    assert not heap.free(BASE + 1024)
