"""Tokens of PTX text, with line numbers."""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator

from lanGPU.emulator.ptx.syntax import Float, Integer, PtxSyntaxError

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"", re.DOTALL)
"""Strings too, so that a path in one starts no comment."""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?(?![\w.])|\d+[eE][+-]?\d+|\d+U?)
    |(?P<word>\.[A-Za-z_][\w$]*|[%$_A-Za-z][\w$]*(?:(?:\.|::)[\w$]+)*)
    |(?P<string>"[^"]*")
    |(?P<mark>[{}()\[\],;:@!|+\-=<>*])
    )""",
    re.VERBOSE,
)


def strip_comments(text: str) -> str:
    """`text` without comments; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found[0] == '"' else " " + "\n" * found.count("\n")

    return _COMMENT.sub(blank, text)


class Tokens:
    """A cursor over the tokens of `text`, whose first line is `first_line`."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line
        self._starts = [m.end() for m in re.finditer("\n", text)]
        self._items = list(self._scan())
        self._at = 0

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        position, end = 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None or match.end() == position:
                raise PtxSyntaxError(self._line(position), f"unexpected character {self._text[position:].lstrip()[:1]!r}")
            kind = str(match.lastgroup)
            yield kind, match.group(kind), match.start(kind)
            position = match.end()

    def _line(self, position: int) -> int:
        return self._first_line + bisect_right(self._starts, position)

    @property
    def line(self) -> int:
        """Line of the next token."""
        if not self._items:
            return self._first_line
        return self._line(self._items[min(self._at, len(self._items) - 1)][2])

    @property
    def done(self) -> bool:
        return self._at >= len(self._items)

    def peek(self, ahead: int = 0) -> str:
        """Text of a coming token, empty at the end."""
        index = self._at + ahead
        return self._items[index][1] if index < len(self._items) else ""

    def kind(self) -> str:
        return self._items[self._at][0] if not self.done else ""

    def take(self) -> str:
        """The next token's text."""
        if self.done:
            raise PtxSyntaxError(self.line, "the text ends in mid-statement")
        self._at += 1
        return self._items[self._at - 1][1]

    def accept(self, text: str) -> bool:
        """Takes the next token if it is `text`."""
        if self.peek() == text:
            self._at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        line = self.line
        found = self.take()
        if found != text:
            raise PtxSyntaxError(line, f"expected {text!r}, found {found!r}")

    def skip_line(self) -> None:
        """Drops the rest of the current token's line (``.loc`` has no semicolon)."""
        line = self.line
        while not self.done and self.line == line and self.peek() != "}":
            self._at += 1


def number(text: str) -> Integer | Float:
    """The constant that `text` writes."""
    lead = text[:2].lower()
    if lead == "0f":
        return Float(int(text[2:], 16), True)
    if lead == "0d":
        return Float(int(text[2:], 16), False)
    plain = text.rstrip("U")
    if lead == "0x":
        return Integer(int(plain, 16))
    if lead == "0b":
        return Integer(int(plain, 2))
    if "." in text or "e" in text.lower():
        return Float(struct.unpack("<Q", struct.pack("<d", float(text)))[0], False)
    return Integer(int(plain, 8) if len(plain) > 1 and plain[0] == "0" and set(plain) <= set("01234567") else int(plain))
