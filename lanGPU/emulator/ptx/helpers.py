"""Small pieces of IR that several instruction groups need: half formats, flushing, NaNs, the carry flag."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from lanGPU.emulator.ptx.syntax import Operand

F32_MIN_NORMAL: Final = "0x3810000000000000"
"""2^-126 as LLVM writes a float."""
F64_MIN_NORMAL: Final = "0x0010000000000000"
F16_MIN_NORMAL: Final = "0x3F10000000000000"
"""2^-14 as LLVM writes a float."""


class Helpers:
    """Mixed into FunctionLowering."""

    uses_carry = False

    @abstractmethod
    def op(self, text: str) -> str: ...

    @abstractmethod
    def emit(self, line: str) -> None: ...

    @abstractmethod
    def value(self, operand: Operand, kind: str, *, extend: bool = False) -> str: ...

    # --- plain operations ---------------------------------------------------------------------------------------------

    def bin(self, word: str, kind: str, a: str, b: str | int) -> str:
        """A binary operation."""
        return self.op(f"{word} {kind} {a}, {b}")

    def cast(self, word: str, have: str, value: str, want: str) -> str:
        """A conversion."""
        return self.op(f"{word} {have} {value} to {want}")

    def call(self, kind: str, name: str, *arguments: str) -> str:
        """A call with a result; arguments carry their types."""
        return self.op(f"call {kind} @{name}({', '.join(arguments)})")

    def select(self, condition: str, kind: str, yes: str, no: str) -> str:
        return self.op(f"select i1 {condition}, {kind} {yes}, {kind} {no}")

    def join64(self, low: str, high: str) -> str:
        """Two i32 as one i64."""
        shifted = self.bin("shl", "i64", self.cast("zext", "i32", high, "i64"), 32)
        return self.bin("or", "i64", self.cast("zext", "i32", low, "i64"), shifted)

    # --- the condition code register ------------------------------------------------------------------------------------

    def load_carry(self) -> str:
        self.uses_carry = True
        return self.op("load i1, ptr %carry")

    def store_carry(self, value: str) -> None:
        self.uses_carry = True
        self.emit(f"store i1 {value}, ptr %carry")

    # --- subnormals, saturation, NaNs -----------------------------------------------------------------------------------

    def flush(self, value: str, kind: str = "f32") -> str:
        """`value` with subnormals replaced by zero of the same sign."""
        t, least = ("float", F32_MIN_NORMAL) if kind == "f32" else ("double", F64_MIN_NORMAL)
        size = self.call(t, f"llvm.fabs.{kind}", f"{t} {value}")
        zero = self.call(t, f"llvm.copysign.{kind}", f"{t} 0.0", f"{t} {value}")
        return self.select(self.bin("fcmp olt", t, size, least), t, zero, value)

    def flush_half(self, value: str) -> str:
        """As flush, for an f16 that was widened to float."""
        size = self.call("float", "llvm.fabs.f32", f"float {value}")
        zero = self.call("float", "llvm.copysign.f32", "float 0.0", f"float {value}")
        return self.select(self.bin("fcmp olt", "float", size, F16_MIN_NORMAL), "float", zero, value)

    def saturate(self, value: str) -> str:
        """Clamped to [0, 1]; NaN becomes +0."""
        positive = self.bin("fcmp ogt", "float", value, "0.0")
        value = self.select(positive, "float", value, "0.0")
        over = self.bin("fcmp ogt", "float", value, "1.0")
        return self.select(over, "float", "1.0", value)

    def canonical(self, value: str, kind: str) -> str:
        """A NaN becomes PTX's canonical NaN (0x7fffffff; f64 0x7fffffffffffffff)."""
        t, bits = ("float", 32) if kind == "f32" else ("double", 64)
        nan = self.bin("fcmp uno", t, value, value)
        return self.select(nan, t, self.cast("bitcast", f"i{bits}", str((1 << bits - 1) - 1), t), value)

    # --- halves ---------------------------------------------------------------------------------------------------------

    def half_to_float(self, kind: str, value: str) -> str:
        """An f16 or bf16 (i16) as a float, exactly."""
        if kind == "bf16":
            wide = self.bin("shl", "i32", self.cast("zext", "i16", value, "i32"), 16)
            return self.cast("bitcast", "i32", wide, "float")
        return self.cast("fpext", "half", self.cast("bitcast", "i16", value, "half"), "float")

    def float_to_half(self, kind: str, value: str) -> str:
        """A float rounded to nearest even as an i16."""
        if kind == "bf16":
            return self.call("i16", "ptx.bf16", f"float {value}")
        return self.cast("bitcast", "half", self.cast("fptrunc", "float", value, "half"), "i16")

    def canonical_half(self, kind: str, value: str) -> str:
        """As float_to_half, NaN as 0x7fff."""
        half = self.float_to_half(kind, value)
        return self.select(self.bin("fcmp uno", "float", value, value), "i16", "32767", half)

    def map_halves(self, kind: str, operands: list[Operand], function: Callable[[str, list[str]], str]) -> str:
        """Applies a function of i16 values to halves or to both lanes of packed halves; the result has `kind`'s width."""
        values = [self.value(operand, kind) for operand in operands]
        if not kind.endswith("x2"):
            return function(kind, values)
        lanes = []
        for n in range(2):
            parts = [self.cast("trunc", "i32", self.bin("lshr", "i32", v, 16 * n), "i16") for v in values]
            lanes.append(self.cast("zext", "i16", function(kind[:-2], parts), "i32"))
        return self.bin("or", "i32", lanes[0], self.bin("shl", "i32", lanes[1], 16))
