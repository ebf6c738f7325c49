"""Memory of the emulated devices."""

import ctypes
from collections.abc import Iterator

import pytest

from lanGPU.emulator.mapping import HUGE_PAGE, REGION_END, REGION_START
from lanGPU.emulator.memory import GRANULARITY, SMALL_MAX, Kind, Memory
from lanGPU.emulator.results import HOST_MEMORY_ALREADY_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY, CuError

MIB = 1 << 20


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory([64 * MIB, 32 * MIB])
    yield made
    made.release_all()


def free(memory: Memory, allocation: object) -> None:
    memory.forget(allocation)  # type: ignore[arg-type]
    memory.reclaim(allocation)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, SMALL_MAX, SMALL_MAX + 1, 3 * MIB])
def test_memory_can_be_written_to_its_end(memory: Memory, size: int) -> None:
    allocation = memory.allocate(size, 0)
    ctypes.memset(allocation.address, 0xAB, size)
    assert REGION_START <= allocation.address < REGION_END
    assert allocation.address % 256 == 0
    assert memory.contains(allocation.address, size)
    assert not memory.contains(allocation.address, size + 1)


def test_addresses_are_not_used_again(memory: Memory) -> None:
    seen: set[int] = set()
    for size in [100, SMALL_MAX, MIB, 4 * MIB] * 50:
        allocation = memory.allocate(size, 0)
        assert allocation.address not in seen
        seen.add(allocation.address)
        free(memory, allocation)
        assert memory.find(allocation.address) is None


def test_blocks_of_small_pieces_go_back_whole(memory: Memory) -> None:
    pieces = [memory.allocate(SMALL_MAX, 0) for _ in range(HUGE_PAGE // SMALL_MAX)]
    other = memory.allocate(SMALL_MAX, 0)
    assert other.block is not pieces[0].block
    for piece in pieces:
        ctypes.memset(piece.address, 1, piece.size)
        free(memory, piece)
    assert _mapped(other.address)
    assert not _mapped(pieces[0].address)


def _mapped(address: int) -> bool:
    with open("/proc/self/maps") as file:
        ranges = [tuple(int(x, 16) for x in line.split()[0].split("-")) for line in file]
    return any(start <= address < end for start, end in ranges)


def test_each_device_has_a_budget(memory: Memory) -> None:
    first = memory.allocate(40 * MIB, 0)
    with pytest.raises(CuError) as refused:
        memory.allocate(40 * MIB, 0)
    assert refused.value.result == OUT_OF_MEMORY
    with pytest.raises(CuError):
        memory.allocate(40 * MIB, 1)
    assert memory.info(0) == (24 * MIB, 64 * MIB)
    free(memory, first)
    assert memory.info(0) == (64 * MIB, 64 * MIB)
    memory.allocate(40 * MIB, 0)


def test_host_memory_is_not_the_devices(memory: Memory) -> None:
    host = memory.allocate_host(10 * MIB, 0, 0, None)
    assert memory.info(0)[0] == 64 * MIB
    assert memory.contains(host.address, host.size)


def test_registered_memory_may_not_overlap(memory: Memory) -> None:
    buffer = ctypes.create_string_buffer(10_000)
    address = ctypes.addressof(buffer)
    allocation = memory.register_host(address + 1000, 1000, 0, 0, None)
    for start, size in [(1500, 10), (0, 2000), (0, 5000), (1999, 1)]:
        with pytest.raises(CuError) as refused:
            memory.register_host(address + start, size, 0, 0, None)
        assert refused.value.result == HOST_MEMORY_ALREADY_REGISTERED
    memory.forget(allocation)
    memory.forget(memory.register_host(address, 5000, 0, 0, None))


def test_nothing_is_no_allocation(memory: Memory) -> None:
    with pytest.raises(CuError) as refused:
        memory.allocate(0, 0)
    assert refused.value.result == INVALID_VALUE


def test_physical_memory_lives_while_it_is_mapped(memory: Memory) -> None:
    physical = memory.create_physical(GRANULARITY, 0, b"")
    base = memory.reserve(2 * GRANULARITY, 0, 0)
    memory.map_physical(base, GRANULARITY, physical)
    assert not memory.contains(base, 1)  # no access yet
    memory.set_access(base, GRANULARITY, True)
    ctypes.memset(base, 7, 100)
    memory.drop_physical(physical)
    assert memory.info(0)[0] == 64 * MIB - GRANULARITY
    assert ctypes.string_at(base, 2) == b"\x07\x07"
    memory.unmap_physical(base, GRANULARITY)
    assert memory.info(0)[0] == 64 * MIB
    assert memory.find(base) is None
    memory.free_reservation(base, 2 * GRANULARITY)


def test_new_physical_memory_is_zero(memory: Memory) -> None:
    base = memory.reserve(GRANULARITY, 0, 0)
    for _ in range(2):
        physical = memory.create_physical(GRANULARITY, 0, b"")
        memory.map_physical(base, GRANULARITY, physical)
        memory.set_access(base, GRANULARITY, True)
        assert ctypes.string_at(base, 64) == bytes(64)
        ctypes.memset(base, 0xFF, GRANULARITY)
        memory.unmap_physical(base, GRANULARITY)
        memory.drop_physical(physical)


def test_mappings_must_be_taken_whole(memory: Memory) -> None:
    base = memory.reserve(4 * GRANULARITY, 0, 0)
    physical = memory.create_physical(2 * GRANULARITY, 0, b"")
    memory.map_physical(base, 2 * GRANULARITY, physical)
    for start, size in [(base, GRANULARITY), (base + GRANULARITY, GRANULARITY), (base, 3 * GRANULARITY)]:
        with pytest.raises(CuError):
            memory.set_access(start, size, True)
        with pytest.raises(CuError):
            memory.unmap_physical(start, size)
    memory.drop_physical(physical)


def test_a_hint_is_kept_to_and_not_run_over(memory: Memory) -> None:
    somewhere = memory.reserve(GRANULARITY, 0, 0)
    hint = somewhere + 8 * GRANULARITY
    assert memory.reserve(4 * GRANULARITY, 0, hint) == hint
    others = [memory.allocate(3 * MIB, 0).address for _ in range(8)]
    assert all(not hint - 3 * MIB < address < hint + 4 * GRANULARITY for address in others)
    assert memory.find(others[0]) is not None
    assert memory.find(others[0]).kind is Kind.DEVICE  # type: ignore[union-attr]
