"""Loading machine code: from text, from what was kept on disk, and what is refused."""

import ctypes
import os
from pathlib import Path

import pytest

from lanGPU.native import jit

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}\n"
FILL = """declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @fill(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
  ret void
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "jit")
    return tmp_path / "jit"


def add(code: jit.Code, a: int, b: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code["add"])(a, b))


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(jit, "compile_object", refuse)


def test_the_second_time_nothing_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(jit.load(ADD, ["add"]), 2, 3) == 5
    (kept,) = folder.iterdir()
    no_compiler(monkeypatch)
    assert add(jit.load(ADD, ["add"]), -2, 3) == 1
    assert list(folder.iterdir()) == [kept]
    with pytest.raises(AssertionError):
        jit.load(ADD + "; another text\n", ["add"])


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_not_run_but_made_again(folder: Path, damage: str) -> None:
    jit.load(ADD, ["add"])
    (kept,) = folder.iterdir()
    good = kept.read_bytes()
    flipped = bytearray(good)
    flipped[-40] ^= 1
    kept.write_bytes({"cut": good[:-1], "flipped": bytes(flipped), "empty": b""}[damage])
    assert add(jit.load(ADD, ["add"]), 2, 3) == 5
    assert kept.read_bytes() == good


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert add(jit.load(ADD, ["add"]), 2, 3) == 5
    assert list(folder.iterdir()) == []


def test_no_place_to_keep_it_is_no_error(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert add(jit.load(ADD, ["add"]), 2, 3) == 5


def test_memory_intrinsics_work() -> None:
    buffer = ctypes.create_string_buffer(100)
    code = jit.load(FILL, ["fill"])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(code["fill"])(ctypes.addressof(buffer), 99)
    assert buffer.raw == b"\7" * 99 + b"\0"


def test_wrong_text_is_named() -> None:
    with pytest.raises(jit.CompileError, match="IR text"):
        jit.load("define nonsense", ["add"])


def test_symbols_that_nobody_has_are_named() -> None:
    with pytest.raises(jit.CompileError, match="puts_elsewhere"):
        jit.load(
            "declare i32 @puts_elsewhere(ptr)\ndefine i32 @f(ptr %p) {\n  %r = call i32 @puts_elsewhere(ptr %p)\n  ret i32 %r\n}\n", ["f"]
        )


def test_functions_that_are_not_there_are_named() -> None:
    with pytest.raises(jit.CompileError, match="sub"):
        jit.load(ADD, ["sub"])
