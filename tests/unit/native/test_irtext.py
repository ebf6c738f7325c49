"""The IR writer: what it writes runs as it reads."""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from lanGPU.native import jit
from lanGPU.native.irtext import Function

_kept: list[Any] = []


def build(head: str, body: Callable[[Function], None]) -> Any:
    """The function, callable with integers."""
    f = Function(head)
    body(f)
    code = jit.load_object(jit.compile_object(f.text()), ["f"])
    _kept.append(code)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(code["f"])


def test_branches() -> None:
    def body(f: Function) -> None:
        out = f.var("i64", 1)
        with f.when(f.cmp("slt", "%a", 10)):
            f.set(out, f.add(f.get(out), 10))
            with f.unless(f.cmp("eq", "%b", 0)):
                f.set(out, f.add(f.get(out), 100))
        with f.when(f.both(f.cmp("eq", "%a", 7), f.either(f.cmp("eq", "%b", 1), f.cmp("eq", "%b", 2)))):
            f.ret("i64", -1)
        f.ret("i64", f.get(out))

    call = build("i64 @f(i64 %a, i64 %b)", body)
    for a, b in itertools.product((5, 7, 20), (0, 1, 2)):
        expected = -1 if a == 7 and b else 1 + (10 + (100 if b else 0) if a < 10 else 0)
        assert call(a, b, 0) == expected


@pytest.mark.parametrize("n", [0, 1, 5, 1000])
def test_loops(n: int) -> None:
    def body(f: Function) -> None:
        out = f.var("i64", 0)
        with f.count("%n") as i, f.count(i) as j, f.when(f.cmp("eq", f.land(j, 1), 0)):  # the pairs j < i with even j
            f.set(out, f.add(f.get(out), f.mul(i, j)))
        left = f.var("i64", "%n")
        with f.loop():
            f.leave(f.cmp("eq", f.get(left), 0))
            with f.loop():
                f.leave()
            f.set(left, f.sub(f.get(left), 1))
        f.ret("i64", f.add(f.get(out), f.get(left)))

    assert build("i64 @f(i64 %n)", body)(n, 0, 0) == sum(i * j for i in range(n) for j in range(0, i, 2))


def test_memory() -> None:
    def body(f: Function) -> None:
        f.store("i32", f.trunc("%value"), "%place", 1)
        f.store_atomic("i64", f.add(f.load_atomic("i64", "%place", 8), 1), "%place", 8)
        f.atomic_add("i32", 5, "%place", 16)
        old = f.exchange("i32", 77, "%place", 20)
        changed = f.compare_exchange("i32", 9, 10, "%place", 24)
        kept = f.compare_exchange("i32", 1, 2, "%place", 24)
        flags = f.add(f.zext(changed, "i1"), f.mul(f.zext(kept, "i1"), 2))
        scratch = f.array("i64", 4)
        f.store("i64", f.select(changed, "i64", 1000, 2000), scratch, 24)
        f.ret("i64", f.add(f.add(f.load("i64", f.pointer(f.address(scratch)), 24), flags), f.zext(old, "i32")))

    call = build("i64 @f(ptr %place, i64 %value)", body)
    memory = (ctypes.c_uint8 * 32)()
    view = memoryview(memory).cast("B")
    words = view.cast("I")
    words[2], words[4], words[5], words[6] = 41, 1, 600, 9
    assert call(ctypes.addressof(memory), 0x1_1234_5678, 0) == 1000 + 1 + 600
    assert bytes(view[1:5]) == (0x1234_5678).to_bytes(4, "little")
    assert (words[2], words[4], words[5], words[6]) == (42, 6, 77, 10)


def test_calls() -> None:
    f = Function("i64 @f(i64 %a)")
    f.call("void", "twice", f"ptr {(place := f.array('i64', 1))}", "i64 %a")
    f.ret("i64", f.call("i64", "same", f"i64 {f.load('i64', place)}"))
    twice = Function("internal void @twice(ptr %out, i64 %a)")
    twice.store("i64", twice.mul("%a", 2), "%out")
    twice.ret()
    same = Function("internal i64 @same(i64 %a)")
    same.ret("i64", "%a")
    code = jit.load_object(jit.compile_object(f.text() + twice.text() + same.text()), ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code["f"])(21) == 42


def test_a_block_that_needs_another_value_is_refused() -> None:
    f = Function("i64 @f(i64 %a)")
    f.ret("i64", "%unknown")
    with pytest.raises(jit.CompileError, match="unknown"):
        jit.compile_object(f.text())
