"""Machine code that calls a driver function in a loop, for programs under test: no interpreter between two calls."""

import ctypes
from typing import Any

from lanGPU.native import jit

_IR = """
define i64 @post(ptr %fn, i64 %n, i64 %tag, ptr %unused) {{
enter:
  br label %top
top:
  %i = phi i64 [0, %enter], [%next, %bottom]
  %bad = phi i64 [0, %enter], [%sum, %bottom]
  %value = or i64 %tag, %i
  %r = call i32 %fn(i64 %value, i64 1, i64 1)
  %wide = zext i32 %r to i64
  %sum = or i64 %bad, %wide
  %next = add i64 %i, 1
  br label %bottom
bottom:
  %end = icmp uge i64 %next, %n
  br i1 %end, label %out, label %top
out:
  ret i64 %sum
}}
define i64 @launch(ptr %fn, i64 %n, i64 %function, ptr %params) {{
enter:
  br label %top
top:
  %i = phi i64 [0, %enter], [%next, %top]
  %bad = phi i64 [0, %enter], [%sum, %top]
  %r = call i32 %fn(i64 %function, i64 1, i64 1, i64 1, i64 32, i64 1, i64 1, i64 0, i64 0, ptr %params, ptr null)
  %wide = zext i32 %r to i64
  %sum = or i64 %bad, %wide
  %next = add i64 %i, 1
  %end = icmp uge i64 %next, %n
  br i1 %end, label %out, label %top
out:
  ret i64 %sum
}}
""".replace("{{", "{").replace("}}", "}")

_code = jit.load(_IR, ("post", "launch"))
_LOOP = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


def post(function: Any, count: int, tag: int) -> int:
    """`count` calls of a function of three words, whose first is tag | 0, 1, 2, …; the results, or-ed."""
    return int(_LOOP(_code["post"])(ctypes.cast(function, ctypes.c_void_p).value, count, tag, None))


def launch(function: Any, count: int, kernel: int, params: Any) -> int:
    """`count` calls of cuLaunchKernel; the results, or-ed."""
    return int(_LOOP(_code["launch"])(ctypes.cast(function, ctypes.c_void_p).value, count, kernel, params))
