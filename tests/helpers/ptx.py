"""Runs PTX on the emulator's compiler, without a driver around it, and compares instructions with their definition.

`launch` runs one kernel over NumPy arrays. A `Group` is a set of instructions over the same operands: they share one kernel, one
thread for each combination of operands, so that hundreds of cases cost one compilation; if that kernel cannot be compiled each case
gets its own, so that one missing instruction fails alone.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lanGPU.emulator.ptx import AllocationMap, Fault, parse_module
from lanGPU.errors import LanGPUError

HEADER: Final = ".version 8.6\n.target sm_90\n.address_size 64\n"
"""New enough for every instruction that the tests use."""


@dataclass(frozen=True)
class Pointer:
    """An argument: the address of `array` plus `offset_bytes`."""

    array: np.ndarray
    offset_bytes: int = 0


def pack_arguments(layout: Sequence[tuple[int, int]], arguments: Sequence[np.ndarray | Pointer | int | float | bytes]) -> bytes:
    """The kernel's parameter block. Integers are cut to the parameter's size, floats go in as f32 or f64 by size."""
    data = bytearray(max((offset + size for offset, size in layout), default=0))
    for (offset, size), argument in zip(layout, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            value = struct.pack("<Q", argument.ctypes.data)
        elif isinstance(argument, Pointer):
            value = struct.pack("<Q", argument.array.ctypes.data + argument.offset_bytes)
        elif isinstance(argument, bytes):
            value = argument
        elif isinstance(argument, float):
            value = struct.pack("<f" if size == 4 else "<d", argument)
        else:
            value = (argument & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
        assert len(value) == size
        data[offset : offset + size] = value
    return bytes(data)


def run(
    source: str,
    kernel: str,
    grid: int | tuple[int, int, int],
    block: int | tuple[int, int, int],
    arguments: Sequence[np.ndarray | Pointer | int | float | bytes],
    *,
    shared_bytes: int = 0,
    known: Sequence[np.ndarray] | None = None,
    global_names: dict[str, np.ndarray] | None = None,
) -> Fault | None:
    """Launch `kernel` of `source` (HEADER is put in front); arrays are device memory as they are.

    Args:
        known: which arrays the kernel may touch; by default those among the arguments and in `global_names`.
        global_names: memory of the module's global variables.
    """
    module = parse_module((HEADER + source).encode())
    arrays = [a.array if isinstance(a, Pointer) else a for a in arguments if isinstance(a, np.ndarray | Pointer)]
    places = global_names or {}
    if places:
        module.bind({name: array.ctypes.data for name, array in places.items()})
    allocations = AllocationMap()
    for array in {a.ctypes.data: a for a in [*(arrays if known is None else known), *places.values()]}.values():
        allocations.add(array.ctypes.data, array.nbytes)
    params = pack_arguments(module.kernels[kernel].params, arguments)
    grid3, block3 = ((x, 1, 1) if isinstance(x, int) else x for x in (grid, block))
    return module.compile(kernel).launch(grid3, block3, shared_bytes, params, allocations)


def launch(source: str, kernel: str, grid: Any, block: Any, arguments: Sequence[Any], **more: Any) -> None:
    """As `run`, for kernels that must end well."""
    fault = run(source, kernel, grid, block, arguments, **more)
    assert fault is None, f"the kernel ended with {fault}"


# --- instructions over operands ---------------------------------------------------------------------------------------

WIDTHS: Final = {
    **{f"{kind}{bits}": bits for kind in "bsu" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f16x2": 32,
    "bf16x2": 32,
    "f32": 32,
    "f64": 64,
}


def register_type(kind: str) -> str:
    """What a register for that type is declared as: sub-word types live in wider registers, halves are untyped."""
    if kind in ("f16", "bf16"):
        return "b16"
    if WIDTHS[kind] == 8:
        return "b32"
    return kind if kind[0] != "b" and not kind.endswith("x2") else f"b{WIDTHS[kind]}"


@dataclass(frozen=True)
class Case:
    """One instruction, or a few, from operands to one result.

    `text` is PTX with {d} for the result's register and {a}, {b}, {c} for the operands'; it may declare registers of its
    own. `expected` takes the operands' bits and returns the result's, or None where PTX does not say. With `close`
    the result may differ: it is called with (expected bits, found bits).
    """

    id: str
    result: str
    text: str
    expected: Callable[..., int | None]
    close: Callable[[int, int], bool] | None = None


@dataclass
class Group:
    """Cases over the same operands; `operands` maps a, b, c to (type, bit patterns), all of one length."""

    name: str
    operands: dict[str, tuple[str, list[int]]]
    cases: list[Case] = field(default_factory=list)
    _results: dict[str, list[int] | Exception] | None = None

    def __post_init__(self) -> None:
        assert len({len(values) for _, values in self.operands.values()}) == 1, "operands of one length"
        assert len({case.id for case in self.cases}) == len(self.cases), "case ids are unique"

    @property
    def count(self) -> int:
        return len(next(iter(self.operands.values()))[1])

    def source(self, cases: Sequence[Case]) -> str:
        """A kernel `k` that runs `cases` on every combination of operands; results lie in slots of 8 bytes, case by case."""
        lines = [
            ".visible .entry k(.param .u64 out, .param .u32 count" + "".join(f", .param .u64 in_{n}" for n in self.operands) + ")",
            "{",
        ]
        lines += [".reg .pred %outside; .reg .b32 %i, %n, %t; .reg .b64 %out, %offset, %place;"]
        for name, (kind, _) in self.operands.items():
            lines += [f".reg .{register_type(kind)} %{name}; .reg .b64 %in_{name};"]
        lines += [f".reg .{register_type(case.result)} %d{k};" for k, case in enumerate(cases)]
        lines += [
            "mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;",
            "ld.param.u32 %n, [count]; setp.ge.u32 %outside, %i, %n; @%outside bra DONE;",
            "ld.param.u64 %out, [out]; mul.wide.u32 %offset, %i, 8; add.u64 %out, %out, %offset;",
        ]
        for name, (kind, _) in self.operands.items():
            load = kind if WIDTHS[kind] == 8 else f"b{WIDTHS[kind]}"
            lines += [f"ld.param.u64 %in_{name}, [in_{name}]; add.u64 %place, %in_{name}, %offset; ld.global.{load} %{name}, [%place];"]
        registers = {name: f"%{name}" for name in self.operands}
        for k, case in enumerate(cases):
            lines += ["{", case.text.format(d=f"%d{k}", **registers), "}"]
            lines += [f"st.global.b{WIDTHS[case.result]} [%out+{8 * k * self.count}], %d{k};"]
        return "\n".join([*lines, "DONE:", "ret;", "}"])

    def _run(self, cases: Sequence[Case]) -> dict[str, list[int]]:
        out = np.zeros(len(cases) * self.count, dtype=np.uint64)
        arrays = [np.array(values, dtype=np.uint64) for _, values in self.operands.values()]
        block = 128
        launch(self.source(cases), "k", -(-self.count // block), block, [out, self.count, *arrays])
        return {case.id: row.tolist() for case, row in zip(cases, out.reshape(len(cases), self.count), strict=True)}

    def results(self) -> dict[str, list[int] | Exception]:
        """Result bits by case, or the error that kept the case from running. Computed once."""
        if self._results is None:
            try:
                self._results = dict(self._run(self.cases))
            except LanGPUError:
                self._results = {}
                for case in self.cases:
                    try:
                        self._results.update(self._run([case]))
                    except LanGPUError as error:
                        self._results[case.id] = error
        return self._results

    def check(self, case: Case) -> None:
        """Compare one case's results with what the instruction's definition says."""
        found = self.results()[case.id]
        if isinstance(found, Exception):
            raise AssertionError(f"{case.text.strip()}: {found}") from found
        mask = (1 << WIDTHS[case.result]) - 1
        wrong = []
        for *operands, result in zip(*(values for _, values in self.operands.values()), found, strict=True):
            expected = case.expected(*operands)
            if expected is None or expected & mask == result & mask:
                continue
            if case.close is None or not case.close(expected & mask, result & mask):
                shown = ", ".join(f"{name}={value:#x}" for name, value in zip(self.operands, operands, strict=True))
                wrong.append(f"{shown}: expected {expected & mask:#x}, found {result & mask:#x}")
        assert not wrong, f"{case.text.strip()}: {len(wrong)} of {self.count} wrong:\n" + "\n".join(wrong[:8])


def parameters(*groups: Group) -> list[Any]:
    """(group, case) for pytest.mark.parametrize, with readable ids."""
    import pytest

    return [pytest.param(group, case, id=f"{group.name}-{case.id}") for group in groups for case in group.cases]
