"""Write `lanGPU/driverapi/signatures.py` from the headers of one or more CUDA versions.

    python tools/gen_signatures.py --header 13=INCLUDE/cuda.h --header 12=INCLUDE/cuda.h
    python tools/gen_signatures.py --check

Read are `cuda.h` (declarations, the `#define` lines that map documented names to ABI symbols, and the section at its end that
declares the old ABI) and, beside it, `cuda*Typedefs.h`, whose names (`PFN_cuMemAlloc_v3020`) say in which CUDA version each ABI
appeared. Without --header the header of the installed nvidia-cuda-runtime is used. A header replaces what the file holds of its
major version and leaves the others, so that `--check` can verify one version where only that header is there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lanGPU.driverapi.signature import Signature  # noqa: E402

OUTPUT = ROOT / "lanGPU" / "driverapi" / "signatures.py"
TYPEDEF_FILES = ("cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h")

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
RENAME = re.compile(r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PT(DS|SZ)\()?(cu[A-Z]\w*)\)?\s*$", re.MULTILINE)
DECLARATION = re.compile(r"CUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(([^;{]*?)\)\s*;")
TYPEDEF = re.compile(r"\(CUDAAPI\s*\*\s*PFN_(cu[A-Z]\w*?)_v(\d{4,5})(_ptsz|_ptds)?\)\s*\(([^;]*?)\)\s*;")
VERSION = re.compile(r"^#define CUDA_VERSION (\d+)$", re.MULTILINE)
INTERNAL = re.compile(r"^#if defined\(__CUDA_API_VERSION_INTERNAL\)\s*\n(?=\s*#undef)(.*?)^#elif", re.MULTILINE | re.DOTALL)
PARAMETER = re.compile(r"(.*?[\s*])(\w+)((?:\[\w*\])*)")
SUFFIX = re.compile(r"_v(\d)$")
PER_THREAD = re.compile(r"_pt[sd][sz]$")

Params = tuple[tuple[str, str], ...]


def parse_params(text: str) -> Params:
    """`int *a, size_t b` as ((C type, name), …). The API has no function-pointer parameter that is not a typedef."""
    text = " ".join(text.replace("CUDAAPI", " ").split())
    if text in ("", "void"):
        return ()
    out = []
    for part in text.split(","):
        match = PARAMETER.fullmatch(part.strip())
        if match is None:
            raise SystemExit(f"cannot read the parameter {part!r}")
        kind, name, array = match.groups()
        kind = re.sub(r"\s*\*\s*", "*", kind.strip()) + "*" * array.count("[")
        out.append((re.sub(r"\*(?=\w)", "* ", kind), name))
    return tuple(out)


@dataclass
class Symbol:
    params: Params
    per_thread: str = ""


@dataclass
class Header:
    """What one CUDA version declares."""

    version: int
    symbols: dict[str, Symbol] = field(default_factory=dict)
    typedefs: dict[str, dict[str, list[tuple[int, Params]]]] = field(default_factory=dict)
    """base -> per-thread suffix or "" -> [(CUDA version, parameters)]"""


def base_of(symbol: str) -> str:
    """The name in cuGetProcAddress's sense."""
    return SUFFIX.sub("", symbol)


def parse(path: Path) -> Header:
    """Read `path` (cuda.h) and the typedef headers beside it."""
    text = COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    found = VERSION.search(text)
    if found is None:
        raise SystemExit(f"{path} defines no CUDA_VERSION")
    header = Header(int(found.group(1)))
    section = INTERNAL.search(text)
    if section is None:
        raise SystemExit(f"{path} has no section of old declarations")
    renames = {name: (symbol, f"_pt{kind.lower()}" if kind else "") for name, kind, symbol in RENAME.findall(text)}
    main = text[: section.start()] + text[section.end() :]
    for name, params in DECLARATION.findall(main):
        symbol, per_thread = renames.get(name, (name, ""))
        header.symbols[symbol] = Symbol(parse_params(params), per_thread)
    for name, params in DECLARATION.findall(section.group(1)):
        plain = PER_THREAD.sub("", name)
        entry = header.symbols.setdefault(plain, Symbol(parse_params(params)))
        if plain != name:
            entry.per_thread = name[len(plain) :]
    for file in TYPEDEF_FILES:
        source = path.with_name(file)
        if not source.exists():
            continue
        for base, version, per_thread, params in TYPEDEF.findall(COMMENT.sub(" ", source.read_text(encoding="utf-8"))):
            header.typedefs.setdefault(base, {}).setdefault(per_thread, []).append((int(version), parse_params(params)))
    for base, kinds in header.typedefs.items():
        if not any(base_of(symbol) == base for symbol in header.symbols):
            # Declared by a header that the package does not ship (profiler, graphics interop): the typedefs say it all.
            versions = sorted(kinds.get("", []))
            for number, (_, params) in enumerate(versions, 1):
                header.symbols[base if number == 1 else f"{base}_v{number}"] = Symbol(params)
            for per_thread in kinds.keys() - {""}:
                header.symbols[base if len(versions) == 1 else f"{base}_v{len(versions)}"].per_thread = per_thread
    return header


def types(params: Params) -> tuple[str, ...]:
    """Types for comparison: versioned type names (CUdevice_v1) count as the plain ones."""
    return tuple(SUFFIX.sub("", re.sub(r"_v\d\b", "", kind)) for kind, _ in params)


def sinces(header: Header, base: str, symbols: list[str], kind: str) -> dict[str, int]:
    """Symbol -> CUDA version for the variants of `base`, oldest first, from the typedefs of one per-thread kind."""
    versions = sorted(header.typedefs.get(base, {}).get(kind, []))
    if len(versions) == len(symbols):
        return {symbol: version for symbol, (version, _) in zip(symbols, versions, strict=True)}
    out: dict[str, int] = {}
    left = list(versions)
    for symbol in symbols:
        match = next((v for v in left if types(v[1]) == types(header.symbols[symbol].params)), None)
        if match:
            out[symbol] = match[0]
            left.remove(match)
    return out


def signatures(header: Header) -> dict[str, Signature]:
    """Everything `header` declares, by symbol."""
    groups: dict[str, list[str]] = {}
    for symbol in header.symbols:
        groups.setdefault(base_of(symbol), []).append(symbol)
    out = {}
    for base, symbols in groups.items():
        symbols.sort(key=lambda s: int(SUFFIX.search(s).group(1)) if SUFFIX.search(s) else 1)  # type: ignore[union-attr]
        since = sinces(header, base, symbols, "")
        threaded: dict[str, int] = {}
        for kind in ("_ptsz", "_ptds"):
            threaded |= sinces(header, base, [s for s in symbols if header.symbols[s].per_thread == kind], kind)
        for symbol in symbols:
            entry = header.symbols[symbol]
            out[symbol] = Signature(
                symbol, base, entry.params, entry.per_thread, since.get(symbol, 0), threaded.get(symbol, 0), (header.version,)
            )
    return out


def committed() -> dict[int, dict[str, Signature]]:
    """What signatures.py holds, split by header version again."""
    if not OUTPUT.exists():
        return {}
    namespace: dict[str, object] = {}
    exec(compile(OUTPUT.read_text(encoding="utf-8"), str(OUTPUT), "exec"), namespace)
    out: dict[int, dict[str, Signature]] = {}
    rows: dict[str, Signature] = namespace["SIGNATURES"]  # type: ignore[assignment]
    older: dict[tuple[int, str], Signature] = namespace["DIFFERENCES"]  # type: ignore[assignment]
    for symbol, row in rows.items():
        for version in row.headers:
            kept = older.get((version, symbol), row)
            out.setdefault(version, {})[symbol] = replace(kept, headers=(version,))
    return out


def merge(views: dict[int, dict[str, Signature]]) -> tuple[dict[str, Signature], dict[tuple[int, str], Signature]]:
    """One table of the newest declarations, and what older headers say differently."""
    rows: dict[str, Signature] = {}
    for version in sorted(views):
        for symbol, row in views[version].items():
            headers = (*rows[symbol].headers, version) if symbol in rows else (version,)
            rows[symbol] = replace(row, headers=headers)
    differences = {}
    for version, view in views.items():
        for symbol, row in view.items():
            if replace(row, headers=()) != replace(rows[symbol], headers=()):
                differences[version, symbol] = row
    return dict(sorted(rows.items())), dict(sorted(differences.items()))


def literal(row: Signature) -> str:
    """`row` as a line of Python."""
    return (
        f"S({row.symbol!r}, {row.base!r}, {row.params!r}, {row.per_thread!r}, {row.since}, {row.since_per_thread}, {row.headers!r})"
    ).replace("'", '"')


def render(views: dict[int, dict[str, Signature]]) -> str:
    """The text of signatures.py."""
    rows, differences = merge(views)
    versions = ", ".join(f"{v // 1000}.{v % 1000 // 10}" for v in sorted(views))
    lines = [
        f"# Generated by tools/gen_signatures.py from cuda.h and cudaTypedefs.h of CUDA {versions}. Do not edit.",
        '"""Every function that the CUDA headers declare, by ABI symbol."""',
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
        "from lanGPU.driverapi.signature import Signature as S",
        "",
        f"HEADERS: tuple[int, ...] = {tuple(sorted(views))!r}",
        "",
        "SIGNATURES: dict[str, S] = {",
        *(f'    "{symbol}": {literal(row)},' for symbol, row in rows.items()),
        "}",
        "",
        "DIFFERENCES: dict[tuple[int, str], S] = {",
        *(f'    ({version}, "{symbol}"): {literal(row)},' for (version, symbol), row in differences.items()),
        "}",
        '"""What an older header says differently of a symbol: (CUDA_VERSION, symbol)."""',
    ]
    return "\n".join(lines) + "\n"


def default_headers() -> list[Path]:
    """cuda.h of the installed nvidia-cuda-runtime."""
    try:
        files = importlib.metadata.files("nvidia-cuda-runtime") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(f.locate())) for f in files if f.name == "cuda.h"]


def options(argv: list[str] | None, doc: str | None) -> argparse.Namespace:
    """The command line of the generators that read headers."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--header", action="append", default=[], metavar="MAJOR=PATH", help="cuda.h of a CUDA version, e.g. 12=PATH")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed file differs from the headers")
    return parser.parse_args(argv)


def header_paths(chosen: argparse.Namespace) -> list[Path]:
    """The headers asked for, else the installed one; a header of another major version than stated ends the program."""
    paths = []
    for item in chosen.header:
        asked, _, name = item.rpartition("=")
        path = Path(name)
        found = VERSION.search(path.read_text(encoding="utf-8", errors="replace"))
        if asked and (found is None or int(found.group(1)) // 1000 != int(asked.split(".")[0])):
            raise SystemExit(f"{path} is not of CUDA {asked}")
        paths.append(path)
    return paths or default_headers()


def finish(output: Path, text: str, check: bool) -> int:
    """Write `text`, or compare it with what is there; the exit status."""
    same = output.exists() and output.read_text(encoding="utf-8") == text
    if check:
        print(f"{output.name}: {'up to date' if same else 'differs: run the generator again'}")
        return 0 if same else 1
    output.write_text(text, encoding="utf-8")
    print(f"{output.name}: {'unchanged' if same else 'written'}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Write the file, or with --check say whether it is what would be written."""
    chosen = options(argv, __doc__)
    paths = header_paths(chosen)
    if not paths:
        print("no header: install nvidia-cuda-runtime or give --header")
        return 0 if chosen.check else 2
    views = committed()
    for path in paths:
        header = parse(path)
        if chosen.check and header.version not in views:
            print(f"{path} is of CUDA {header.version}, signatures.py holds {', '.join(map(str, views))}: not compared")
            continue
        if not chosen.check:
            views = {v: view for v, view in views.items() if v // 1000 != header.version // 1000}
        views[header.version] = signatures(header)
    return finish(OUTPUT, render(views), chosen.check)


if __name__ == "__main__":
    sys.exit(main())
