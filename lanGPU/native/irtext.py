"""A small writer of LLVM IR text with structured control flow: variables are allocas, which LLVM promotes.

For code that is machine code by nature (the shim): `Function` gives expressions as methods and ``with`` blocks for branches and loops.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Variable:
    """A mutable local of one LLVM type."""

    __slots__ = ("kind", "place")

    def __init__(self, place: str, kind: str) -> None:
        self.place = place
        self.kind = kind


class Function:
    """The text of one function; values are strings as LLVM writes them."""

    def __init__(self, head: str, attributes: str = "nounwind") -> None:
        self._head = f"define {head} {attributes} {{"
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._breaks: list[str] = []

    # --- text -----------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole definition."""
        return "\n".join([self._head, "enter.:", *self._allocas, "  br label %begin.", "begin.:", *self._lines, "  unreachable", "}", ""])

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def emit(self, line: str) -> None:
        self._lines.append("  " + line)

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def op(self, text: str) -> str:
        name = "%" + self.fresh("v")
        self.emit(f"{name} = {text}")
        return name

    # --- values ---------------------------------------------------------------------------------------------------------

    def var(self, kind: str, value: str | int | None = None) -> Variable:
        """A local variable."""
        place = "%" + self.fresh("x")
        self._allocas.append(f"  {place} = alloca {kind}, align 8")
        variable = Variable(place, kind)
        if value is not None:
            self.set(variable, value)
        return variable

    def array(self, kind: str, count: int) -> str:
        """A local array; its address."""
        place = "%" + self.fresh("a")
        self._allocas.append(f"  {place} = alloca [{count} x {kind}], align 16")
        return place

    def get(self, variable: Variable) -> str:
        return self.op(f"load {variable.kind}, ptr {variable.place}, align 8")

    def set(self, variable: Variable, value: str | int) -> None:
        self.emit(f"store {variable.kind} {value}, ptr {variable.place}, align 8")

    def bin(self, word: str, kind: str, a: str | int, b: str | int) -> str:
        return self.op(f"{word} {kind} {a}, {b}")

    def add(self, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.bin("add", kind, a, b)

    def sub(self, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.bin("sub", kind, a, b)

    def mul(self, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.bin("mul", kind, a, b)

    def land(self, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.bin("and", kind, a, b)

    def cmp(self, word: str, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.op(f"icmp {word} {kind} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.bin("and", "i1", a, b)

    def either(self, a: str, b: str) -> str:
        return self.bin("or", "i1", a, b)

    def select(self, condition: str, kind: str, a: str | int, b: str | int) -> str:
        return self.op(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def zext(self, value: str, have: str, want: str = "i64") -> str:
        return self.op(f"zext {have} {value} to {want}")

    def trunc(self, value: str, want: str = "i32", have: str = "i64") -> str:
        return self.op(f"trunc {have} {value} to {want}")

    # --- memory ---------------------------------------------------------------------------------------------------------

    def at(self, base: str, offset: str | int) -> str:
        """`base` plus bytes."""
        return base if offset == 0 else self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def pointer(self, address: str) -> str:
        return self.op(f"inttoptr i64 {address} to ptr")

    def address(self, pointer: str) -> str:
        return self.op(f"ptrtoint ptr {pointer} to i64")

    def load(self, kind: str, base: str, offset: str | int = 0) -> str:
        return self.op(f"load {kind}, ptr {self.at(base, offset)}, align 1")

    def store(self, kind: str, value: str | int, base: str, offset: str | int = 0) -> None:
        self.emit(f"store {kind} {value}, ptr {self.at(base, offset)}, align 1")

    def load_atomic(self, kind: str, base: str, offset: str | int = 0, order: str = "acquire") -> str:
        return self.op(f"load atomic {kind}, ptr {self.at(base, offset)} {order}, align {8 if kind == 'i64' else 4}")

    def store_atomic(self, kind: str, value: str | int, base: str, offset: str | int = 0, order: str = "release") -> None:
        self.emit(f"store atomic {kind} {value}, ptr {self.at(base, offset)} {order}, align {8 if kind == 'i64' else 4}")

    def atomic_add(self, kind: str, value: str | int, base: str, offset: str | int = 0) -> str:
        return self.op(f"atomicrmw add ptr {self.at(base, offset)}, {kind} {value} seq_cst")

    def exchange(self, kind: str, value: str | int, base: str, offset: str | int = 0) -> str:
        return self.op(f"atomicrmw xchg ptr {self.at(base, offset)}, {kind} {value} seq_cst")

    def compare_exchange(self, kind: str, old: str | int, new: str | int, base: str, offset: str | int = 0) -> str:
        """i1: it was `old` and is `new` now."""
        both = self.op(f"cmpxchg ptr {self.at(base, offset)}, {kind} {old}, {kind} {new} seq_cst seq_cst")
        return self.op(f"extractvalue {{{kind}, i1}} {both}, 1")

    # --- calls ----------------------------------------------------------------------------------------------------------

    def call(self, kind: str, name: str, *arguments: str) -> str:
        """A call; each argument is written with its type."""
        if kind == "void":
            self.emit(f"call void @{name}({', '.join(arguments)})")
            return ""
        return self.op(f"call {kind} @{name}({', '.join(arguments)})")

    # --- control --------------------------------------------------------------------------------------------------------

    def ret(self, kind: str = "", value: str | int = "") -> None:
        self.emit(f"ret {kind} {value}".rstrip() if kind else "ret void")
        self.label(self.fresh("dead"))

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """The block runs if the i1 is true."""
        do, end = self.fresh("do"), self.fresh("end")
        self.emit(f"br i1 {condition}, label %{do}, label %{end}")
        self.label(do)
        yield
        self.emit(f"br label %{end}")
        self.label(end)

    @contextmanager
    def unless(self, condition: str) -> Iterator[None]:
        with self.when(self.bin("xor", "i1", condition, "true")):
            yield

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Forever, until `leave`."""
        top, end = self.fresh("top"), self.fresh("out")
        self.emit(f"br label %{top}")
        self.label(top)
        self._breaks.append(end)
        yield
        self._breaks.pop()
        self.emit(f"br label %{top}")
        self.label(end)

    def leave(self, condition: str = "true") -> None:
        """Out of the innermost loop if the i1 is true."""
        stay = self.fresh("stay")
        self.emit(f"br i1 {condition}, label %{self._breaks[-1]}, label %{stay}")
        self.label(stay)

    @contextmanager
    def count(self, limit: str | int, kind: str = "i64") -> Iterator[str]:
        """The block runs for 0, 1, … limit - 1."""
        index = self.var(kind, 0)
        with self.loop():
            value = self.get(index)
            self.leave(self.cmp("uge", value, limit, kind))
            self.set(index, self.add(value, 1, kind))
            yield value
