"""From PTX text to `syntax` objects: the module's outline at once, a function's body when it is needed.

CUB-like modules have 20 MB of text of which one kernel is used, so the outline is found with a few regular expressions.
"""

import re
import struct
from dataclasses import dataclass, field

from lanGPU.emulator.ptx.lexer import Tokens, number, strip_comments
from lanGPU.emulator.ptx.syntax import (
    TYPE_BITS,
    Body,
    Float,
    Function,
    Group,
    Instruction,
    Integer,
    Memory,
    Operand,
    Pair,
    PtxSyntaxError,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from lanGPU.errors import EmulatorUnsupportedError

_HEAD = re.compile(r"[^{};\"]*(?:\"[^\"]*\"[^{};\"]*)*([{};])")
_BRACE = re.compile(r"[{}]")
_VERSION = re.compile(r"\s*\.version\s+(\d+)\.(\d+)\s+\.target\s+(\w+(?:\s*,\s*\w+)*)")
_ADDRESS_SIZE = re.compile(r"\s*\.address_size\s+(\d+)")
_LINE_DIRECTIVE = re.compile(r"\s*\.(?:file|loc)\b[^\n]*|\s*\.address_size\s+\d+|\s*\.(?:version|target)\b[^\n]*")
SPECIAL_REGISTERS = frozenset(
    f"%{name}"
    for name in [
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock64",
        "globaltimer",
        "dynamic_smem_size",
        "total_smem_size",
        "aggr_smem_size",
        "is_explicit_cluster",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "current_graph_exec",
    ]
) | {f"%{stem}{n}" for stem, count in (("pm", 8), ("envreg", 32)) for n in range(count)}
"""Source: PTX ISA, chapter "Special Registers"."""
_SPACES = (".global", ".const", ".shared", ".local", ".param")
_LINKING = (".visible", ".extern", ".weak", ".common")
_DIRECTIVE = re.compile(r"\.\w+")


@dataclass(slots=True)
class Outline:
    """A module's functions and variables."""

    version: tuple[int, int]
    target: str
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def parse_outline(text: str) -> Outline:
    """The outline of a whole module.

    Raises:
        PtxSyntaxError: not PTX, with the line.
    """
    text = strip_comments(text)
    match = _VERSION.match(text)
    if match is None:
        raise PtxSyntaxError(1, "expected .version and .target")
    size = _ADDRESS_SIZE.match(text, match.end())
    if size is not None and size[1] != "64":
        raise PtxSyntaxError(1, f"{size[1]}-bit addresses are not supported")
    outline = Outline((int(match[1]), int(match[2])), match[3].strip())
    position, line = match.end(), 1 + text.count("\n", 0, match.end())
    while True:
        while skipped := _LINE_DIRECTIVE.match(text, position):
            line += text.count("\n", position, skipped.end())
            position = skipped.end()
        head = _HEAD.match(text, position)
        if head is None:
            rest = text[position:].strip()
            if rest:
                raise PtxSyntaxError(line, f"unexpected {rest[:30]!r} at the end")
            return outline
        header, end = text[position : head.end() - 1], head[1]
        position_after = head.end()
        start_line = line + header[: len(header) - len(header.lstrip())].count("\n")
        words = header.split()
        lead = _DIRECTIVE.match(words[0]) if words else None
        first = lead.group() if lead else words[0] if words else ""
        if end == "}":
            raise PtxSyntaxError(line + header.count("\n"), "unexpected '}'")
        if ".entry" in header or re.search(r"\.func\b", header):
            body: str | None = None
            body_line = line + header.count("\n")
            if end == "{":
                stop = _matching(text, position_after, body_line)
                body = text[position_after : stop - 1]
                position_after = stop
            function = _function(header, start_line, body, body_line)
            known = outline.functions.get(function.name)
            if known is None or known.text is None:
                outline.functions[function.name] = function
            elif body is not None:
                raise PtxSyntaxError(start_line, f"{function.name} is defined twice")
        elif first == ".section":
            if end == "{":
                position_after = _matching(text, position_after, start_line)
        elif first == ".pragma":
            pass
        elif first in (*_SPACES, *_LINKING):
            if end == "{":
                stop = _matching(text, position_after, start_line)
                semicolon = text.find(";", stop)
                if semicolon < 0:
                    raise PtxSyntaxError(start_line, "an initialiser without ';'")
                header = text[position:semicolon]
                position_after = semicolon + 1
            _module_variable(outline, header, line)
        elif first in (".alias", ".tex"):
            raise EmulatorUnsupportedError(f"PTX line {start_line}: {header.strip()}: {first} is not supported")
        elif words:
            raise PtxSyntaxError(start_line, f"unexpected {words[0]!r}")
        line += text.count("\n", position, position_after)
        position = position_after


def _matching(text: str, position: int, line: int) -> int:
    """Position after the brace that closes the one before `position`."""
    depth = 1
    for brace in _BRACE.finditer(text, position):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.end()
    raise PtxSyntaxError(line, "a '{' is never closed")


def _function(header: str, line: int, body: str | None, body_line: int) -> Function:
    tokens = Tokens(header, line)
    while tokens.peek() in _LINKING:
        tokens.take()
    kind = tokens.take()
    if kind not in (".entry", ".func"):
        raise PtxSyntaxError(line, f"expected .entry or .func, found {kind!r}")
    returns: list[Variable] = []
    if kind == ".func" and tokens.peek() == "(":
        returns = _parameters(tokens)
    while tokens.peek() == ".noreturn":
        tokens.take()
    name = tokens.take()
    params = _parameters(tokens) if tokens.peek() == "(" else []
    directives: dict[str, tuple[int, ...]] = {}
    while not tokens.done:
        directive = tokens.take()
        if not directive.startswith("."):
            raise PtxSyntaxError(tokens.line, f"unexpected {directive!r} before the body of {name}")
        values = []
        while not tokens.done and not tokens.peek().startswith("."):
            word = tokens.take()
            if word not in (",",) and word[:1].isdigit():
                constant = number(word)
                values.append(constant.value if isinstance(constant, Integer) else 0)
        directives[directive[1:]] = tuple(values)
    return Function(name, line, kind == ".entry", params, returns, directives, body, body_line)


def _parameters(tokens: Tokens) -> list[Variable]:
    tokens.expect("(")
    out: list[Variable] = []
    while not tokens.accept(")"):
        if out:
            tokens.expect(",")
        line = tokens.line
        space = tokens.take()
        if space not in (".param", ".reg"):
            raise PtxSyntaxError(line, f"expected .param, found {space!r}")
        out.extend(_declarations(tokens, space[1:], single=True))
    return out


def _module_variable(outline: Outline, header: str, line: int) -> None:
    tokens = Tokens(header, line)
    extern = False
    while tokens.peek() in _LINKING:
        extern |= tokens.take() == ".extern"
    where = tokens.line
    space = tokens.take()
    if space not in _SPACES:
        raise PtxSyntaxError(where, f"expected a state space, found {space!r}")
    for variable in _declarations(tokens, space[1:].partition("[")[0]):
        variable.extern = extern
        old = outline.variables.get(variable.name)
        if old is None or old.extern:
            outline.variables[variable.name] = variable
    if not tokens.done:
        raise PtxSyntaxError(tokens.line, f"unexpected {tokens.peek()!r}")


def _declarations(tokens: Tokens, space: str, *, single: bool = False) -> list[Variable]:
    """Variables after their state space: ``.align 4 .b8 a[16], b`` with initialisers."""
    align = 0
    vector = 1
    kind = ""
    managed = False
    while tokens.peek().startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            align = _constant(tokens)
        elif word in ("v2", "v4", "v8"):
            vector = int(word[1:])
        elif word == "ptr":
            while tokens.peek() in (".global", ".const", ".shared", ".local", ".generic"):
                tokens.take()
            if tokens.accept(".align"):
                _constant(tokens)
        elif word == "attribute":
            managed = _is_managed(tokens) or managed
        elif word in ("texref", "samplerref", "surfref"):
            raise EmulatorUnsupportedError(f"PTX line {tokens.line}: .{word}: texture references are not supported")
        elif word in TYPE_BITS:
            kind = word
        else:
            raise PtxSyntaxError(tokens.line, f"unknown type or attribute .{word}")
    if not kind:
        raise PtxSyntaxError(tokens.line, "a declaration without a type")
    out: list[Variable] = []
    while True:
        line = tokens.line
        name = tokens.take()
        if not (name[0].isalpha() or name[0] in "_$%"):
            raise PtxSyntaxError(line, f"expected a name, found {name!r}")
        count, width = 1, max(1, TYPE_BITS[kind] // 8) * vector
        open_ended = False
        while tokens.accept("["):
            if tokens.accept("]"):
                open_ended = True
            else:
                count *= _constant(tokens)
                tokens.expect("]")
        variable = Variable(name, space, kind, 0 if open_ended else count * width, align or width, managed=managed)
        if tokens.accept("="):
            _initialise(tokens, variable, max(1, TYPE_BITS[kind] // 8))
        elif open_ended:
            variable.size = 0
        out.append(variable)
        if single or not tokens.accept(","):
            return out


def _is_managed(tokens: Tokens) -> bool:
    """Reads ``(.managed)`` or ``(.unified(…))`` after ``.attribute`` (PTX ISA, variable attributes): the second changes nothing here."""
    tokens.expect("(")
    found, depth = False, 1
    while depth:
        word = tokens.take()
        depth += (word == "(") - (word == ")")
        found = found or word == ".managed"
    return found


def _constant(tokens: Tokens) -> int:
    line = tokens.line
    if tokens.kind() != "number":
        raise PtxSyntaxError(line, f"expected a number, found {tokens.peek()!r}")
    value = number(tokens.take())
    if not isinstance(value, Integer):
        raise PtxSyntaxError(line, "expected an integer")
    return value.value


def _initialise(tokens: Tokens, variable: Variable, width: int) -> None:
    data = bytearray()
    depth = 0
    while True:
        if tokens.accept("{"):
            depth += 1
        elif tokens.accept("}"):
            depth -= 1
        elif tokens.accept(","):
            pass
        else:
            _initial_value(tokens, variable, data, width)
        if depth == 0:
            break
    if variable.size == 0:
        variable.size = len(data)
    if len(data) > variable.size:
        raise PtxSyntaxError(tokens.line, f"{variable.name} has more initial values than elements")
    variable.initial = bytes(data)


def _initial_value(tokens: Tokens, variable: Variable, data: bytearray, width: int) -> None:
    sign = -1 if tokens.accept("-") else 1
    line = tokens.line
    if tokens.kind() == "number":
        value = number(tokens.take())
        if isinstance(value, Integer):
            data += (sign * value.value & (1 << 8 * width) - 1).to_bytes(width, "little")
        else:
            data += _float_bytes(value, sign, width)
        if tokens.peek() == "(":
            raise EmulatorUnsupportedError(f"PTX line {line}: masked addresses in initialisers are not supported")
        return
    if tokens.kind() != "word":
        raise PtxSyntaxError(line, f"unexpected {tokens.peek()!r} in an initialiser")
    name = tokens.take()
    if name == "generic":
        tokens.expect("(")
        name = tokens.take()
        tokens.expect(")")
    addend = 0
    if tokens.peek() in ("+", "-"):
        factor = 1 if tokens.take() == "+" else -1
        addend = factor * _constant(tokens)
    if width != 8:
        raise PtxSyntaxError(line, "an address needs a 64-bit element")
    variable.relocations.append((len(data), width, name, addend))
    data += bytes(width)


def _float_bytes(value: Float, sign: int, width: int) -> bytes:
    if value.single and width == 4:
        plain: float = struct.unpack("<f", value.bits.to_bytes(4, "little"))[0]
        return value.bits.to_bytes(4, "little") if sign == 1 else struct.pack("<f", -plain)
    raw = value.bits.to_bytes(4 if value.single else 8, "little")
    plain = struct.unpack("<f" if value.single else "<d", raw)[0]
    return struct.pack({2: "<e", 4: "<f", 8: "<d"}[width], sign * plain)


# --- bodies -----------------------------------------------------------------------------------------------------------


class BodyParser:
    """Parses one function's body; names of inner scopes get unique spellings."""

    def __init__(self, function: Function) -> None:
        if function.text is None:
            raise PtxSyntaxError(function.line, f"{function.name} has no body")
        self._function = function
        self._opcode = ""
        self._tokens = Tokens(function.text, function.text_line)
        self._body = Body()
        self._scopes: list[dict[str, str]] = [{}]
        self._scope_count = 0
        self._ranges: list[tuple[int, str, int, str]] = []
        for variable in (*function.params, *function.returns):
            if variable.space == "reg":
                self._body.registers[variable.name] = variable.type

    def parse(self) -> Body:
        """The whole body."""
        tokens = self._tokens
        while not tokens.done:
            word = tokens.peek()
            if word == "{":
                tokens.take()
                self._scope_count += 1
                self._scopes.append({})
            elif word == "}":
                tokens.take()
                if len(self._scopes) == 1:
                    raise PtxSyntaxError(tokens.line, "unexpected '}'")
                self._scopes.pop()
            elif word.startswith("."):
                self._directive()
            elif tokens.peek(1) == ":" and tokens.kind() == "word":
                self._label()
            elif tokens.accept(";"):
                pass
            else:
                self._instruction()
        if len(self._scopes) != 1:
            raise PtxSyntaxError(tokens.line, "a '{' is never closed")
        for line, name in [(i.line, n) for i in self._body.instructions for n in _branch_targets(i)]:
            if name not in self._body.labels and name not in self._body.targets:
                raise PtxSyntaxError(line, f"there is no label {name}")
        return self._body

    def _declare(self, name: str) -> str:
        if name in self._scopes[-1]:
            raise PtxSyntaxError(self._tokens.line, f"{name} is declared twice")
        unique = name if len(self._scopes) == 1 else f"{name}@{self._scope_count}"
        self._scopes[-1][name] = unique
        return unique

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _directive(self) -> None:
        tokens = self._tokens
        word = tokens.take()
        if word == ".loc":
            tokens.skip_line()
        elif word == ".reg":
            self._registers()
        elif word in (".shared", ".local", ".param", ".global", ".const"):
            for variable in _declarations(tokens, word[1:]):
                variable.name = self._declare(variable.name)
                self._body.variables[variable.name] = variable
            tokens.expect(";")
        elif word == ".pragma":
            while tokens.take() != ";":
                pass
        else:
            raise PtxSyntaxError(tokens.line, f"unexpected directive {word}")

    def _registers(self) -> None:
        tokens = self._tokens
        kind = tokens.take()[1:]
        if kind not in TYPE_BITS:
            raise PtxSyntaxError(tokens.line, f"unknown register type .{kind}")
        if kind == "b128":
            raise EmulatorUnsupportedError(f"{self._function.name}, PTX line {tokens.line}: registers of 128 bits are not supported")
        while True:
            name = tokens.take()
            if tokens.accept("<"):
                count = _constant(tokens)
                tokens.expect(">")
                if count > 1 << 20:
                    raise PtxSyntaxError(tokens.line, f"{count} registers are too many")
                for i in range(count):
                    self._body.registers[self._declare(f"{name}{i}")] = kind
            else:
                self._body.registers[self._declare(name)] = kind
            if tokens.accept(";"):
                return
            tokens.expect(",")

    def _label(self) -> None:
        tokens = self._tokens
        line = tokens.line
        name = tokens.take()
        tokens.expect(":")
        if tokens.peek() == ".branchtargets":
            tokens.take()
            targets = [tokens.take()]
            while tokens.accept(","):
                targets.append(tokens.take())
            tokens.expect(";")
            self._body.targets[name] = targets
            return
        if tokens.peek() in (".callprototype", ".calltargets"):
            while tokens.take() != ";":
                pass
            return
        if name in self._body.labels:
            raise PtxSyntaxError(line, f"label {name} is defined twice")
        self._body.labels[name] = len(self._body.instructions)

    def _instruction(self) -> None:
        tokens = self._tokens
        line = tokens.line
        predicate = None
        if tokens.accept("@"):
            negated = tokens.accept("!")
            predicate = Register(self._name(tokens.take()), negated)
            self._check_register(predicate, line)
        if tokens.kind() != "word":
            raise PtxSyntaxError(line, f"expected an instruction, found {tokens.peek()!r}")
        opcode = self._opcode = tokens.take()
        operands: list[Operand] = []
        if not tokens.accept(";"):
            while True:
                operands.append(self._operand(opcode))
                if tokens.accept(";"):
                    break
                tokens.expect(",")
        self._body.instructions.append(Instruction(line, predicate, tuple(opcode.split(".")), tuple(operands)))

    def _check_register(self, register: Register, line: int) -> None:
        if register.name not in self._body.registers:
            raise PtxSyntaxError(line, f"{register.name} is not declared")

    def _operand(self, opcode: str) -> Operand:
        first = self._simple()
        if self._tokens.accept("|"):
            return Pair(first, self._simple())
        return first

    def _sequence(self, end: str) -> tuple[Operand, ...]:
        items: list[Operand] = []
        while not self._tokens.accept(end):
            if items:
                self._tokens.expect(",")
            items.append(self._simple())
        return tuple(items)

    def _simple(self) -> Operand:
        tokens = self._tokens
        line = tokens.line
        if tokens.accept("{"):
            return Vector(self._sequence("}"))
        if tokens.accept("("):
            return Group(self._sequence(")"))
        if tokens.accept("["):
            return self._memory()
        if tokens.accept("!"):
            return Register(self._name(tokens.take()), True)
        negative = tokens.accept("-")
        if tokens.kind() == "number":
            value = number(tokens.take())
            if negative:
                if isinstance(value, Integer):
                    return Integer(-value.value)
                return Float(value.bits ^ (1 << (31 if value.single else 63)), value.single)
            return value
        if negative or tokens.kind() != "word":
            raise PtxSyntaxError(line, f"unexpected {tokens.peek()!r}")
        word = tokens.take()
        if word == "_":
            return Sink()
        if word == "WARP_SZ":
            return Integer(32)
        name = self._name(word)
        if name in self._body.registers:
            return Register(name)
        if word.startswith("%"):
            stem = word.partition(".")[0].partition("_lo")[0].partition("_hi")[0]
            if stem not in SPECIAL_REGISTERS and not stem.startswith("%reserved_smem_offset_"):
                raise PtxSyntaxError(line, f"{word} is not declared")
            return Register(word)
        if tokens.peek() == "[" and tokens.kind() == "mark":  # an element of an array as an address: name[n]
            tokens.take()
            index = _constant(tokens)
            tokens.expect("]")
            variable = self._body.variables.get(name)
            return Symbol(name, index * (TYPE_BITS[variable.type] // 8 if variable else 1))
        if tokens.peek() in ("+", "-"):
            sign = 1 if tokens.take() == "+" else -1
            return Symbol(name, sign * _constant(tokens))
        return Symbol(name)

    def _memory(self) -> Memory:
        tokens = self._tokens
        line = tokens.line
        base = self._simple()
        offset = 0
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), base.offset
        if not isinstance(base, Register | Symbol | Integer):
            raise PtxSyntaxError(line, "not an address")
        while tokens.peek() in ("+", "-"):
            sign = 1 if tokens.take() == "+" else -1
            if tokens.accept("-"):
                sign = -sign
            offset += sign * _constant(tokens)
        if tokens.accept(","):
            coordinates = self._simple()
            if tokens.peek() == ",":
                raise EmulatorUnsupportedError(
                    f"{self._function.name}, PTX line {line}: {self._opcode}: separate samplers and tensor addresses are not supported"
                )
            tokens.expect("]")
            return Memory(base, offset, coordinates)
        tokens.expect("]")
        return Memory(base, offset)


def _branch_targets(instruction: Instruction) -> list[str]:
    if instruction.parts[0] == "bra" and instruction.operands and isinstance(instruction.operands[0], Symbol):
        return [instruction.operands[0].name]
    return []
