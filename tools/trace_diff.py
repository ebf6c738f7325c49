"""Run a program on the emulated device locally and through a server (twice each), and compare the driver calls that arrive.

python tools/trace_diff.py -- PROGRAM [ARGUMENT]...      run both, compare, exit 1 where they differ
python tools/trace_diff.py --compare LOCAL REMOTE        compare two traces that exist

Both runs are in trace mode (`langpu emulate --trace`, `langpu serve --emulate --trace`). Handles and addresses have names of their own
in traces, so what is left are the differences that lanGPU makes on purpose; each is one rule below (`RULES`), and anything else is a fault.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lanGPU.driverapi.model import CallClass  # noqa: E402
from lanGPU.driverapi.table import BY_NAME  # noqa: E402

Entry = dict[str, Any]
Rule = Callable[[list[Entry]], list[Entry]]
_START_S = 60.0
_NAME = re.compile(r"([a-z]+)#\d+")
_COPIES = {
    "cuMemcpyHtoD_v2": ("dstDevice", None),
    "cuMemcpyDtoH_v2": (None, "srcDevice"),
    "cuMemcpyDtoD_v2": ("dstDevice", "srcDevice"),
    "cuMemcpy": ("dst", "src"),
}
"""Copies: where the destination and the source stand; None: it is the host."""


def read(path: Path) -> list[Entry]:
    """The calls of a trace file in the order in which they began."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(entries, key=lambda entry: entry["n"])


# --- what differs on purpose ---------------------------------------------------------------------------------------------
def without_local_answers(entries: list[Entry]) -> list[Entry]:
    """The client answers these itself: LOCAL rows of the API table; or it asks them for its own purposes, to learn of kernels."""
    own: tuple[str, ...] = ("cuFuncGetParamInfo", "cuFuncGetParamCount", "cuKernelGetParamInfo", "cuKernelGetParamCount")
    own += (
        "cuStreamGetCaptureInfo_v2",
        "cuStreamGetCaptureInfo_v3",
        "cuModuleGetFunctionCount",
        "cuModuleEnumerateFunctions",
        "cuStreamIsCapturing",
        "cuPointerGetAttribute",
    )

    def stays(entry: Entry) -> bool:
        row = BY_NAME.get(entry["call"])
        return row is not None and row.call_class is not CallClass.LOCAL and entry["call"] not in own

    return [entry for entry in entries if stays(entry)]


def without_context_binding(entries: list[Entry]) -> list[Entry]:
    """The server binds contexts to its own threads, and holds one reference to a primary context."""
    own = ("cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2")
    return [entry for entry in entries if entry["call"] not in own]


def without_extra_waits(entries: list[Entry]) -> list[Entry]:
    """After a copy to the host the server waits for the stream, to send the bytes; waiting twice is waiting."""
    waits = ("cuStreamSynchronize", "cuCtxSynchronize_v2", "cuCtxSynchronize")
    out: list[Entry] = []
    for entry in entries:
        before = out[-1]["call"] if out else ""
        if entry["call"] in waits and (before in waits or before.startswith("cuMemcpyDtoH")):
            continue
        out.append(entry)
    return out


def without_last_words(entries: list[Entry]) -> list[Entry]:
    """What is given back while a process ends comes too late for a device in the process itself."""
    kept = list(entries)
    while kept and kept[-1]["call"].startswith(
        ("cuModuleUnload", "cuLibraryUnload", "cuMemFree", "cuEventDestroy", "cuStreamDestroy", "cuGraph")
    ):
        kept.pop()
    return kept


def without_polls(entries: list[Entry]) -> list[Entry]:
    """Before a call that may block the server asks whether it would; a program's own polls may come more or less often."""
    return [entry for entry in entries if entry["call"] not in ("cuStreamQuery", "cuEventQuery")]


def without_rejected(entries: list[Entry]) -> list[Entry]:
    """Calls that fail for their arguments may be refused before they are sent."""
    return [entry for entry in entries if entry["result"] not in (1, 3, 101, 201, 801)]


def with_plain_copies(entries: list[Entry]) -> list[Entry]:
    """All copies of bytes are one kind: unified ones are sent by direction, large ones in pieces, which are put together again."""
    out: list[Entry] = []
    for entry in entries:
        name = entry["call"].replace("Async_v2", "_v2").replace("Async", "")
        places = _COPIES.get(name)
        if places is None:
            out.append(entry)
            continue
        args = entry["args"]
        target, source = (args.get(place, "host") if place else "host" for place in places)
        size, stream = args["ByteCount"], args.get("hStream", "default")
        waits = "Async" not in entry["call"]
        last = out[-1] if out else None
        if last and last["call"] == "copy" and last["args"]["stream"] == stream and _follows(last["args"], target, source):
            last["args"]["bytes"] += size
            continue
        out.append(
            {
                "call": "copy",
                "args": {"to": target, "from": source, "bytes": size, "stream": stream, "waits": waits},
                "out": {},
                "result": entry["result"],
            }
        )
    return out


def _follows(last: dict[str, Any], target: str, source: str) -> bool:
    def next_of(place: str, size: int) -> str:
        name, _, offset = place.partition("+")
        return f"{name}+{int(offset, 16) + size:#x}" if offset else place

    moved = (target, source) != ("host", "host") and "host" in (target, source)
    return moved and next_of(last["to"], last["bytes"]) == target and next_of(last["from"], last["bytes"]) == source


def with_functions_asked_once(entries: list[Entry]) -> list[Entry]:
    """A kernel is asked for once; the client remembers its handle."""
    asked: set[str] = set()
    out = []
    for entry in entries:
        if entry["call"] in ("cuModuleGetFunction", "cuLibraryGetKernel", "cuKernelGetFunction", "cuLibraryGetModule"):
            key = json.dumps([entry["call"], entry["args"]], sort_keys=True)
            if key in asked:
                continue
            asked.add(key)
        out.append(entry)
    return out


def with_graph_copies_as_they_are(entries: list[Entry]) -> list[Entry]:
    """Pointers to host memory are told apart only by being there."""
    return [{**entry, "args": {k: v for k, v in entry["args"].items() if v not in ("host", None)}} for entry in entries]


def with_fresh_names(entries: list[Entry]) -> list[Entry]:
    """Names count from 1 again, after what was left out."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}

    def rename(match: re.Match[str]) -> str:
        name = match.group()
        if name not in names:
            kind = match.group(1)
            counts[kind] = counts.get(kind, 0) + 1
            names[name] = f"{kind}#{counts[kind]}"
        return names[name]

    def value(item: Any) -> Any:
        if isinstance(item, str):
            return _NAME.sub(rename, item)
        if isinstance(item, list):
            return [value(part) for part in item]
        if isinstance(item, dict):
            return {key: value(part) for key, part in item.items()}
        return item

    return [{**entry, "args": value(entry["args"]), "out": value(entry["out"])} for entry in entries]


RULES: tuple[Rule, ...] = (
    without_local_answers,
    without_context_binding,
    without_polls,
    without_extra_waits,
    without_last_words,
    without_rejected,
    with_functions_asked_once,
    with_plain_copies,
    with_graph_copies_as_they_are,
    with_fresh_names,
)


def normalised(entries: list[Entry]) -> list[Entry]:
    """What is left after all rules."""
    for rule in RULES:
        entries = rule(entries)
    return entries


def _line(e: Entry) -> str:
    return f"{e['call']} {json.dumps(e['args'], sort_keys=True)} -> {json.dumps(e['out'], sort_keys=True)} {e['result']}"


def masked(value: Any, one: Any, other: Any) -> Any:
    """`value` with a star wherever two runs of the same program differ: bytes that it never wrote, addresses of its own memory."""
    if one == other:
        return value
    if isinstance(value, dict) and isinstance(one, dict) and isinstance(other, dict):
        return {key: masked(part, one.get(key), other.get(key)) for key, part in value.items()}
    if isinstance(value, list) and isinstance(one, list) and isinstance(other, list) and len(value) == len(one) == len(other):
        return [masked(*parts) for parts in zip(value, one, other, strict=True)]
    return "*"


def without_padding(one: Any, other: Any) -> tuple[Any, int]:
    """`one` with those halves of struct parameters' words as in `other` which are not names in both; and how many there were.

    A struct that a program passes by value has bytes that nobody wrote, and what lies there depends on what the stack was used for
    before. That parameters arrive byte for byte as they were passed is what the tests of the shim check.
    """
    if not (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
        return one, 0
    out: list[object] = []
    count = 0
    for mine, theirs in zip(one, other, strict=True):
        if isinstance(mine, str) and isinstance(theirs, str) and len(mine) == len(theirs) == 2:  # one byte: an object of an empty class
            count += mine != theirs
            out.append(theirs)
            continue
        if not isinstance(mine, list) or not isinstance(theirs, list) or len(mine) != len(theirs):
            out.append(mine)
            continue
        same: list[object] = []
        for a, b in zip(mine, theirs, strict=True):
            if a != b and not (_NAME.search(str(a)) and _NAME.search(str(b))):
                count += 1
                same.append(b)
            else:
                same.append(a)
        out.append(same)
    return out, count


def compare(local: list[Path], remote: list[Path]) -> tuple[list[str], int, int]:
    """Differences as a unified diff (empty where there are none), the number of calls compared, and of words taken for padding.

    A second trace of a side tells what is not the same from run to run anyway.
    """
    sides = [[normalised(read(path)) for path in paths] for paths in (local, remote)]
    here, there = sides[0][0], sides[1][0]
    if len({tuple(e["call"] for e in run) for side in sides for run in side}) == 1:
        for side in sides:
            here = [masked(*entries) for entries in zip(here, side[0], side[-1], strict=True)]
            there = [masked(*entries) for entries in zip(there, side[0], side[-1], strict=True)]
    padding = 0
    for mine, theirs in zip(there, here, strict=False):
        if mine["call"] == theirs["call"] and "parameters" in mine["args"] and "parameters" in theirs["args"]:
            mine["args"]["parameters"], count = without_padding(mine["args"]["parameters"], theirs["args"]["parameters"])
            padding += count
    lines = [_line(e) for e in here], [_line(e) for e in there]
    return list(difflib.unified_diff(*lines, "local", "remote", lineterm="", n=2)), len(here), padding


# --- running -------------------------------------------------------------------------------------------------------------
def _langpu(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lanGPU.cli.main", *arguments]


def largest(folder: Path) -> Path:
    """The trace with the most in it: probes and helper processes leave small ones."""
    found = sorted(folder.glob("*.trace.jsonl"), key=lambda path: path.stat().st_size)
    if not found:
        raise SystemExit(f"trace_diff: no trace in {folder}: the program called no driver function")
    return found[-1]


def run_local(program: list[str], folder: Path) -> int:
    """The program with the device in its own process; its exit code."""
    return subprocess.run(_langpu("emulate", "--trace-dir", str(folder), "--log-level", "error", "--", *program), check=False).returncode


def run_remote(program: list[str], folder: Path) -> int:
    """The program behind a server of its own; its exit code."""
    server = subprocess.Popen(
        _langpu("serve", "--emulate", "--port", "0", "--trace-dir", str(folder), "--log-level", "error"), stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        match = re.search(r"listening on (\S+)", server.stdout.readline())
        if match is None:
            raise SystemExit("trace_diff: the server did not start")
        return subprocess.run(_langpu("run", "--host", match.group(1), "--log-level", "error", "--", *program), check=False).returncode
    finally:
        server.terminate()
        server.wait(_START_S)
        if server.stdout is not None:
            server.stdout.close()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("LOCAL", "REMOTE"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the traces there")
    parser.add_argument("program", nargs="*")
    options = parser.parse_args()
    if options.compare:
        found, count, padding = compare(options.compare[:1], options.compare[1:])
    elif options.program:
        with tempfile.TemporaryDirectory(prefix="langpu-trace-") as temporary:
            base = options.keep or Path(temporary)
            folders = {name: base / name for name in ("local", "local-2", "remote", "remote-2")}
            codes = [(run_local if name.startswith("local") else run_remote)(options.program, folder) for name, folder in folders.items()]
            if len(set(codes)) > 1:
                print(f"trace_diff: the program ended with {codes[0]}, {codes[1]} locally and with {codes[2]}, {codes[3]} remotely")
                return 1
            traces = [largest(folder) for folder in folders.values()]
            found, count, padding = compare(traces[:2], traces[2:])
    else:
        parser.error("name a program, or two traces with --compare")
    print("\n".join(found) if found else f"trace_diff: the same calls ({count} compared, {padding} words of structs taken for padding)")
    return 1 if found else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    sys.exit(main())
