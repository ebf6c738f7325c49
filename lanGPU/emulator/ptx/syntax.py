"""What the parser makes of PTX text: operands, instructions, variables, functions. Plain data.

Source: PTX ISA, chapters "Syntax", "State Spaces, Types, and Variables" and "Instruction Operands".
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from lanGPU.errors import LanGPUError

TYPE_BITS = {
    "pred": 1,
    "b8": 8, "u8": 8, "s8": 8,
    "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "tf32": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64,
    "b128": 128,
}  # fmt: skip
"""Fundamental types and their widths."""


class PtxSyntaxError(LanGPUError):
    """The text is not PTX; becomes CUDA_ERROR_INVALID_PTX."""

    cu_result = 218
    exit_code = 91

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Register:
    """A register or special register (``%tid.x``); ``negated`` is the ``!`` of predicates."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant: its bits and whether it was written as single (``0f``) or double."""

    bits: int
    single: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, function or label by name, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]``, or ``[object, coordinates]`` of textures and surfaces."""

    base: "Register | Symbol | Integer"
    offset: int = 0
    coordinates: "Operand | None" = None


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, …}``."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b, …)`` of a call."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: the result is not wanted."""


Operand: TypeAlias = Register | Integer | Float | Symbol | Memory | Vector | Pair | Group | Sink


@dataclass(slots=True)
class Instruction:
    """One instruction; ``parts`` is the opcode split at its dots."""

    line: int
    predicate: Register | None
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]

    @property
    def opcode(self) -> str:
        return ".".join(self.parts)


@dataclass(slots=True)
class Variable:
    """A declared variable of a state space; ``count`` elements of ``type``."""

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: bytes = b""
    relocations: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(offset, width in bytes, symbol, addend)."""
    extern: bool = False
    managed: bool = False


@dataclass(slots=True)
class Body:
    """The inside of a function."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """Label → index of the instruction it stands before."""
    registers: dict[str, str] = field(default_factory=dict)
    """Register → type."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """Local, shared and parameter variables declared inside."""
    targets: dict[str, list[str]] = field(default_factory=dict)
    """``.branchtargets`` lists."""


@dataclass(slots=True)
class Function:
    """A kernel (``.entry``) or device function (``.func``), its body still text."""

    name: str
    line: int
    entry: bool
    params: list[Variable]
    returns: list[Variable]
    directives: dict[str, tuple[int, ...]]
    text: str | None
    """Body between its braces; None for a mere declaration."""
    text_line: int = 0
