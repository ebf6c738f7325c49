"""Shared objects made from object code, loaded by the system's own loader."""

import ctypes
import platform
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from lanGPU.client.shim import compile_object
from lanGPU.errors import ConfigError
from lanGPU.native import x86_64
from lanGPU.native.elf import LinkError, align, hash_table, shared_object, string_table

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the images are for x86-64")

TABLES = """
@image_start = external hidden global i8
@zeros = internal global [3000 x i64] zeroinitializer
@counter = internal global i64 40
@words = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]
"""
DISPATCH = (
    TABLES
    + """
define i64 @dispatch(i32 %index, ptr %registers, ptr %stack) {
  %wide = zext i32 %index to i64
  switch i32 %index, label %arguments [
    i32 0, label %start
    i32 1, label %count
    i32 2, label %constant
    i32 3, label %zero
  ]
start:
  %address = ptrtoint ptr @image_start to i64
  ret i64 %address
count:
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret i64 %new
constant:
  %which = load i64, ptr %registers
  %place = getelementptr i64, ptr @words, i64 %which
  %word = load i64, ptr %place
  ret i64 %word
zero:
  %at = load i64, ptr %registers
  %zero.place = getelementptr i64, ptr @zeros, i64 %at
  %was = load i64, ptr %zero.place
  store i64 7, ptr %zero.place
  ret i64 %was
arguments:
  %r0 = load i64, ptr %registers
  %p5 = getelementptr i64, ptr %registers, i64 5
  %r5 = load i64, ptr %p5
  %s0 = load i64, ptr %stack
  %p4 = getelementptr i64, ptr %stack, i64 4
  %s4 = load i64, ptr %p4
  %a = mul i64 %r5, 10
  %b = mul i64 %s0, 100
  %c = mul i64 %s4, 1000
  %d = add i64 %r0, %a
  %e = add i64 %b, %c
  %f = add i64 %d, %e
  %g = mul i64 %wide, 1000000
  %h = add i64 %f, %g
  ret i64 %h
}
"""
)
NAMES = [f"function_{i}" for i in range(2000)]


def build(ir: str, names: Sequence[str] = ("f",)) -> tuple[bytes, dict[str, int]]:
    code = compile_object(f'target triple = "{x86_64.TRIPLE}"\n' + ir)
    return shared_object("libmade.so.1", names, code, "dispatch")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[str, int]]:
    image, symbols = build(DISPATCH, NAMES)
    path = tmp_path_factory.mktemp("library") / "other-name.so"
    path.write_bytes(image)
    return ctypes.CDLL(str(path)), symbols


def _call(library: ctypes.CDLL, name: str, *words: int) -> int:
    function = library[name]
    function.restype = ctypes.c_uint64
    return int(function(*map(ctypes.c_uint64, words)))


def test_every_name_is_found_and_knows_its_number(made: tuple[ctypes.CDLL, dict[str, int]]) -> None:
    library, _ = made
    for i, name in enumerate(NAMES[4:], 4):
        assert _call(library, name, *range(1, 12)) == 1 + 60 + 700 + 11_000 + 1_000_000 * i


def test_offsets_are_from_the_load_address(made: tuple[ctypes.CDLL, dict[str, int]]) -> None:
    library, symbols = made
    start = _call(library, NAMES[0])
    assert ctypes.string_at(start, 4) == b"\x7fELF"
    for name in (NAMES[0], NAMES[777], NAMES[-1]):
        assert start + symbols[name] == ctypes.cast(library[name], ctypes.c_void_p).value


def test_data(made: tuple[ctypes.CDLL, dict[str, int]]) -> None:
    library, _ = made
    assert [_call(library, NAMES[1]) for _ in range(3)] == [41, 42, 43]
    assert [_call(library, NAMES[2], i) for i in range(4)] == [11, 22, 33, 44]
    assert [_call(library, NAMES[3], i) for i in (0, 511, 2999, 0)] == [0, 0, 0, 7]


def test_a_name_that_is_not_there(made: tuple[ctypes.CDLL, dict[str, int]]) -> None:
    with pytest.raises(AttributeError):
        made[0]["function_2000"]
    with pytest.raises(AttributeError):
        made[0]["dispatch"]


def test_imports(tmp_path: Path) -> None:
    ir = """@import.environ = external hidden global i64
@import.nobody_has_this = external hidden global i64
define i64 @dispatch(i32 %index, ptr %registers, ptr %stack) {
  %first = icmp eq i32 %index, 0
  %place = select i1 %first, ptr @import.environ, ptr @import.nobody_has_this
  %value = load i64, ptr %place
  ret i64 %value
}"""
    code = compile_object(f'target triple = "{x86_64.TRIPLE}"\n' + ir)
    image, _ = shared_object("libmade.so.1", ["f", "g"], code, "dispatch", imports=("environ", "nobody_has_this"))
    (tmp_path / "made.so").write_bytes(image)
    library = ctypes.CDLL(str(tmp_path / "made.so"))
    assert _call(library, "f") == ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"))
    assert _call(library, "g") == 0
    with pytest.raises(LinkError, match=r"import\.environ"):
        build(ir)


def test_nothing_is_writable_and_executable(tmp_path: Path) -> None:
    image, _ = build(DISPATCH)
    count = struct.unpack_from("<H", image, 56)[0]
    flags = [struct.unpack_from("<II", image, 64 + 56 * i) for i in range(count)]
    assert all(f & 3 != 3 for _, f in flags)
    assert (0x6474E551, 6) in flags  # no executable stack


@pytest.mark.parametrize(
    ("ir", "name"),
    [
        ("declare void @missing()\ndefine i32 @dispatch() {\n call void @missing()\n ret i32 0\n}", "missing"),
        ("@elsewhere = external hidden global i32\ndefine i32 @dispatch() {\n %v = load i32, ptr @elsewhere\n ret i32 %v\n}", "elsewhere"),
        ("define i32 @another() {\n ret i32 0\n}", "dispatch"),
    ],
)
def test_what_is_missing_is_named(ir: str, name: str) -> None:
    with pytest.raises(LinkError, match=name):
        build(ir)


@pytest.mark.parametrize(
    ("ir", "kind"),
    [
        ("@far = external global i32\ndefine i32 @dispatch() {\n %v = load i32, ptr @far\n ret i32 %v\n}", "far"),
        ("@here = internal global i32 5\n@there = internal global ptr @here\ndefine ptr @dispatch() {\n ret ptr @there\n}", "1"),
        ("@t = internal thread_local global i32 1\ndefine ptr @dispatch() {\n ret ptr @t\n}", "19|20"),
    ],
    ids=["global offset table", "absolute address", "thread local"],
)
def test_what_cannot_be_relocated_is_refused(ir: str, kind: str) -> None:
    with pytest.raises((ConfigError, LinkError), match=kind):
        build(ir)


def test_tables() -> None:
    table, offsets = string_table(["a", "bc"])
    assert (table, offsets) == (b"\0a\0bc\0", {"a": 1, "bc": 3})
    buckets, chains = struct.unpack_from("<II", hash_table(["a"]))
    assert (buckets, chains) == (1, 2)
    assert [align(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
