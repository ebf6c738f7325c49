"""A program that has loaded the generated shim: a child process that runs what the test sends it.

``python -m tests.helpers.shim_program SHIM`` is the child: it reads sources from stdin and writes results to stdout, both pickled.
"""

import ctypes
import os
import pickle
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from lanGPU.client import layout as lay
from lanGPU.client import shim

_GUARD = b"\xa5" * 64
ROOT = Path(__file__).parents[2]

Spec = tuple[str, Any]
"""One argument: ("int", value), ("in", bytes) a pointer to a copy, ("out", n) a pointer to n bytes of 0xEE."""


def environment(path: bytes | None, extra: dict[str, str] | None = None) -> dict[bytes, bytes]:
    """Environment of a program whose agent listens at `path`."""
    out = {key: value for key, value in os.environb.items() if key != lay.ENV_SOCKET.encode()}
    out.update({key.encode(): value.encode() for key, value in (extra or {}).items()})
    if path is not None:
        out[lay.ENV_SOCKET.encode()] = path
    return out


class Program:
    """The child, seen from the test."""

    def __init__(self, path: bytes | None, extra: dict[str, str] | None = None) -> None:
        self.info = shim.ensure()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.shim_program", str(self.info.path)],
            env=environment(path, extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._to, self._from = self.process.stdin, self.process.stdout

    def send(self, source: str, **values: Any) -> None:
        """Start to run `source`, in which `values` are names; its variable ``result`` comes back with `receive`."""
        _write(self._to, (source, values))

    def receive(self) -> Any:
        """What `send` led to."""
        kind, value = _read(self._from)
        assert kind == "done", value
        return value

    def run(self, source: str, **values: Any) -> Any:
        """`send` and `receive`."""
        self.send(source, **values)
        return self.receive()

    def call(self, symbol: str, *specs: Spec) -> tuple[int, list[bytes | None]]:
        """Call a driver function; its result and what lies in each argument's memory afterwards."""
        return self.calls([(symbol, specs)])[0]

    def calls(self, many: Sequence[tuple[str, Sequence[Spec]]]) -> list[tuple[int, list[bytes | None]]]:
        """Many calls, one after the other."""
        out: list[tuple[int, list[bytes | None]]] = self.run("result = [call(symbol, specs) for symbol, specs in many]", many=list(many))
        return out

    def close(self) -> None:
        """Ends it."""
        self._to.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._from.close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.process.kill()
        self.close()


def _write(stream: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO | Any) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError("the program ended")
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))


class Library:
    """The shim, with calls by name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._cdll = ctypes.CDLL(path)

    def call(self, symbol: str, specs: Sequence[Spec]) -> tuple[int, list[bytes | None]]:
        """See `Program.call`. Fails if anything around the arguments' memory changed."""
        words: list[ctypes.c_uint64] = []
        memory: list[tuple[Any, int] | None] = []
        for kind, value in specs:
            if kind == "int":
                words.append(ctypes.c_uint64(value))
                memory.append(None)
                continue
            content = value if kind == "in" else b"\xee" * value
            buffer = ctypes.create_string_buffer(_GUARD + content + _GUARD, 128 + len(content))
            words.append(ctypes.c_uint64(ctypes.addressof(buffer) + 64))
            memory.append((buffer, len(content)))
        result = self._cdll[symbol](*words)
        after: list[bytes | None] = []
        for entry in memory:
            if entry is None:
                after.append(None)
                continue
            buffer, count = entry
            raw = buffer.raw
            assert raw[:64] == _GUARD, f"{symbol} wrote in front of an argument"
            assert raw[64 + count :] == _GUARD, f"{symbol} wrote behind an argument"
            after.append(raw[64 : 64 + count])
        return result, after

    def __getattr__(self, symbol: str) -> Any:
        return self._cdll[symbol]


def main() -> None:
    """The child."""
    library = Library(sys.argv[1])
    to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    names: dict[str, Any] = {"cuda": library, "call": library.call, "ctypes": ctypes, "os": os}
    while True:
        try:
            source, values = _read(sys.stdin.buffer)
        except EOFError:
            return
        names.update(values)
        names["result"] = None
        try:
            exec(source, names)
            answer = ("done", names["result"])
        except BaseException:
            answer = ("failed", traceback.format_exc())
        _write(to, answer)


if __name__ == "__main__":
    main()
