"""The generated library with a slot for every name."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from lanGPU.native.jump_table import CLOSE_SYMBOL, SLOTS_SYMBOL, build

NAMES = [f"function_{i}" for i in range(3000)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("library") / "libtable.so.1"
    path.write_bytes(build("libtable.so.1", NAMES, 801))
    return ctypes.CDLL(str(path))


def test_an_empty_slot_returns_the_constant(library: ctypes.CDLL) -> None:
    assert library[NAMES[0]]() == library[NAMES[-1]](1, 2, 3) == 801


def test_a_filled_slot_gets_the_call_with_all_its_arguments(library: ctypes.CDLL) -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)
    def total(*args: int) -> int:
        return sum(i * value for i, value in enumerate(args, 1))

    slots = (ctypes.c_uint64 * len(NAMES)).in_dll(library, SLOTS_SYMBOL)
    slots[1234] = ctypes.cast(total, ctypes.c_void_p).value
    function = library[NAMES[1234]]
    function.argtypes = [ctypes.c_uint64] * 11
    assert function(*range(11)) == sum(i * (i - 1) for i in range(1, 12))
    assert library[NAMES[1233]]() == library[NAMES[1235]]() == 801
    library[CLOSE_SYMBOL]()
    assert function(*range(11)) == 801


def test_a_name_that_is_not_there(library: ctypes.CDLL) -> None:
    with pytest.raises(AttributeError):
        library["function_3000"]


def test_a_process_finds_it_by_its_soname(tmp_path: Path) -> None:
    (tmp_path / "other-name").write_bytes(build("libnowhere.so.9", ["f"], 7))
    code = f"import ctypes\nctypes.CDLL({str(tmp_path / 'other-name')!r})\nprint(ctypes.CDLL('libnowhere.so.9').f())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout == "7\n"
