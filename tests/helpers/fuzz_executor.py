"""Throws damaged batches at the machine-code executor, each right before memory that may not be touched. A process of its own.

Prints the reasons for which the executor stopped; a crash is the process's end by a signal.
"""

import ctypes
import mmap
import random
import sys

from lanGPU.constants import MAX_THREADS
from lanGPU.driverapi import table
from lanGPU.driverapi.model import ApiFunction, ArgKind, HandleType
from lanGPU.native import jit
from lanGPU.server.executor import MachineExecutor
from lanGPU.server.reference import Reason
from lanGPU.wire.records import MAX_OUTPUT_BYTES, NULL_WORD, Value, encode, make_handle

ENTRY = "define i32 @entry(i64 %a) {\n  %b = lshr i64 %a, 3\n  %c = and i64 %b, 1\n  %d = trunc i64 %c to i32\n  ret i32 %d\n}\n"
"""A driver function that touches nothing and fails for every second argument."""
BATCH_BYTES = 1 << 16
ODD_WORDS = (0, 1, 7, 8, 255, NULL_WORD, NULL_WORD - 1, 1 << 63, 1 << 32, 0x7FFF_FFFF, MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES + 1)


class Guarded:
    """Memory that ends where an access is the end of the process."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._size = size
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if libc.mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes) -> memoryview:
        """`data`, its last byte before the guard."""
        start = self._size - len(data)
        self._map[start : self._size] = data
        return memoryview(self._map)[start : self._size]


def random_values(rng: random.Random, row: ApiFunction) -> list[Value]:
    values: list[Value] = []
    for arg in row.args:
        value: Value
        if arg.kind in (ArgKind.HANDLE, ArgKind.HANDLE_DESTROY, ArgKind.HANDLE_OUT):
            value = rng.choice((0, make_handle(rng.randrange(1, 40), 0)))
        elif arg.kind in (ArgKind.BYTES_IN, ArgKind.BYTES_INOUT, ArgKind.KERNEL_PARAMS):
            value = rng.choice((None, rng.randbytes(arg.size_const), rng.randbytes(rng.randrange(100))))
        elif arg.kind is ArgKind.CSTRING:
            value = rng.choice((None, b"name\0"))
        elif arg.kind is ArgKind.BYTES_OUT:
            value = rng.choice((None, arg.size_const, rng.randrange(200), 4 << 20))
        else:
            value = rng.choice((0, 1, rng.randrange(16)))
        values.append(value)
    return values


def batch(rng: random.Random, rows: list[ApiFunction]) -> bytearray:
    """Some records, most of them whole, with a few bytes or words changed."""
    out = bytearray()
    for _ in range(rng.randrange(1, 20)):
        row = rng.choice(rows)
        out += encode(row, random_values(rng, row), thread=rng.randrange(MAX_THREADS), token=rng.choice((0, rng.randrange(1, 9))))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        if rng.randrange(2):
            out[rng.randrange(len(out))] = rng.randrange(256)
        else:
            at = rng.randrange(0, len(out), 8)
            out[at : at + 8] = rng.choice(ODD_WORDS).to_bytes(8, "little")
    if not rng.randrange(4):
        del out[rng.randrange(len(out)) :]
    return out


def main(count: int) -> None:
    rng = random.Random(20_761)
    entry = jit.load(ENTRY, ["entry"])
    executor = MachineExecutor(lambda symbol: 0 if symbol == "cuMemFree_v2" else entry["entry"], table.ROWS)
    for handle_type in HandleType:
        if handle_type:
            executor.define(make_handle(handle_type, 0), 0x1000 + handle_type, handle_type)
    memory = Guarded(BATCH_BYTES)
    rows = [row for row in table.ROWS if not row.server]
    some = [*rows, *rng.sample(table.ROWS, 20)]
    seen: set[Reason] = set()
    for _ in range(count):
        view = memory.put(bytes(batch(rng, some)[:BATCH_BYTES]))
        while len(view):
            stop = executor.run(view)
            seen.add(stop.reason)
            assert stop.consumed <= len(view)
            if stop.reason is not Reason.OUTPUT_FULL:
                break
            view = view[stop.consumed :]
            executor.take_output()
        executor.failures()
    print(*(reason.name for reason in seen))


if __name__ == "__main__":
    main(int(sys.argv[1]))
