"""Write `lanGPU/driverapi/enums.py` from the `enum` declarations of cuda.h.

    python tools/gen_enums.py --header 13=INCLUDE/cuda.h --header 12=INCLUDE/cuda.h
    python tools/gen_enums.py --check

Headers, `--check` and the rule that one version can be checked alone are those of tools/gen_signatures.py.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gen_signatures as gen

OUTPUT = gen.ROOT / "lanGPU" / "driverapi" / "enums.py"
WANTED = (
    "CUresult",
    "CUaddress_mode",
    "CUarray_format",
    "CUctx_flags",
    "CUcomputemode",
    "CUdevice_P2PAttribute",
    "CUdevice_attribute",
    "CUdriverProcAddressQueryResult",
    "CUdriverProcAddress_flags",
    "CUevent_flags",
    "CUevent_record_flags",
    "CUevent_wait_flags",
    "CUfunc_cache",
    "CUfunctionLoadingState",
    "CUfunction_attribute",
    "CUgraphExecUpdateResult",
    "CUgraphInstantiateResult",
    "CUgraphInstantiate_flags",
    "CUgraphMem_attribute",
    "CUgraphNodeType",
    "CUjitInputType",
    "CUjit_fallback",
    "CUjit_option",
    "CUjit_target",
    "CUlaunchAttributeID",
    "CUlibraryOption",
    "CUlimit",
    "CUmemAccess_flags",
    "CUmemAllocationGranularity_flags",
    "CUmemAllocationHandleType",
    "CUmemAllocationType",
    "CUmemLocationType",
    "CUmemPool_attribute",
    "CUmemorytype",
    "CUmoduleLoadingMode",
    "CUoccupancy_flags",
    "CUpointer_attribute",
    "CUsharedconfig",
    "CUstreamBatchMemOpType",
    "CUstreamCaptureMode",
    "CUstreamCaptureStatus",
    "CUstreamWaitValue_flags",
    "CUstreamWriteValue_flags",
    "CUstream_flags",
)
ENUM = re.compile(r"typedef\s+enum\s+\w*\s*\{([^}]*)\}\s*(\w+)\s*;")
DEFINE = re.compile(r"^#define\s+(CU_\w+)\s+(0[xX][0-9a-fA-F]+|\d+)\s*$", re.MULTILINE)
SENTINEL = re.compile(r"_MAX$|_FORCE_32BIT|_MAX_ENUM|_NUM_OPTIONS$|_NUM_INPUT_TYPES$")
"""Enumerators that only bound the enum: their values change with every release."""

Enums = dict[str, dict[str, int]]


def parse(path: Path) -> tuple[int, Enums]:
    """The CUDA version of `path` and its wanted enums."""
    text = gen.COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    found = gen.VERSION.search(text)
    if found is None:
        raise SystemExit(f"{path} defines no CUDA_VERSION")
    known = {name: int(value, 0) for name, value in DEFINE.findall(text)}
    out: Enums = {}
    for body, name in ENUM.findall(text):
        entries: dict[str, int] = {}
        value = -1
        for part in body.split(","):
            enumerator, _, expression = (piece.strip() for piece in part.partition("="))
            if not enumerator:
                continue
            enumerator = enumerator.split()[0]
            value = evaluate(expression, known) if expression else value + 1
            known[enumerator] = entries[enumerator] = value
        if re.sub(r"_v\d$|_enum$", "", name) in WANTED:
            out[re.sub(r"_v\d$|_enum$", "", name)] = {k: v for k, v in entries.items() if not SENTINEL.search(k)}
    missing = [name for name in WANTED if name not in out]
    if missing:
        raise SystemExit(f"{path} lacks {', '.join(missing)}")
    return int(found.group(1)), out


def evaluate(expression: str, known: dict[str, int]) -> int:
    """The value of a C constant expression of literals, earlier enumerators and operators."""
    text = re.sub(r"\((?:unsigned int|int)\)", "", " ".join(expression.split()))
    text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
    tree = ast.parse(text.strip(), mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.LShift, ast.BitOr, ast.Add, ast.Sub, ast.USub)
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise SystemExit(f"cannot evaluate {expression!r}")
    return int(eval(compile(tree, "<enum>", "eval"), {"__builtins__": {}}, known))


def committed() -> dict[int, Enums]:
    """What enums.py holds, split by header version."""
    if not OUTPUT.exists():
        return {}
    namespace: dict[str, object] = {}
    exec(compile(OUTPUT.read_text(encoding="utf-8"), str(OUTPUT), "exec"), namespace)
    enums: Enums = namespace["ENUMS"]  # type: ignore[assignment]
    absent: dict[int, tuple[str, ...]] = namespace["ABSENT"]  # type: ignore[assignment]
    return {
        version: {name: {k: v for k, v in entries.items() if k not in names} for name, entries in enums.items()}
        for version, names in absent.items()
    }


def render(views: dict[int, Enums]) -> str:
    """The text of enums.py."""
    merged: Enums = {}
    for version in sorted(views):
        for name, entries in views[version].items():
            for key, value in entries.items():
                if merged.setdefault(name, {}).setdefault(key, value) != value:
                    raise SystemExit(f"{key} has different values in the headers")
    versions = ", ".join(f"{v // 1000}.{v % 1000 // 10}" for v in sorted(views))
    lines = [
        f"# Generated by tools/gen_enums.py from cuda.h of CUDA {versions}. Do not edit.",
        '"""The enums of cuda.h that lanGPU looks into: name -> enumerator -> value."""',
        "",
        "# fmt: off",
        "ENUMS: dict[str, dict[str, int]] = {",
    ]
    for name in sorted(merged):
        lines.append(f'    "{name}": {{')
        lines += [f'        "{k}": {v},' for k, v in sorted(merged[name].items(), key=lambda item: (item[1], item[0]))]
        lines.append("    },")
    lines += ["}", "", "ABSENT: dict[int, tuple[str, ...]] = {"]
    for version in sorted(views):
        names = sorted(k for name, entries in merged.items() for k in entries if k not in views[version].get(name, {}))
        lines.append(f"    {version}: (")
        lines += [f'        "{k}",' for k in names]
        lines.append("    ),")
    lines += ["}", '"""Enumerators that the header of a CUDA_VERSION does not have."""']
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Write the file, or with --check say whether it is what would be written."""
    options = gen.options(argv, __doc__)
    paths = gen.header_paths(options)
    if not paths:
        print("no header: install nvidia-cuda-runtime or give --header")
        return 0 if options.check else 2
    views = committed()
    for path in paths:
        version, enums = parse(path)
        if options.check and version not in views:
            print(f"{path} is of CUDA {version}, enums.py holds {', '.join(map(str, views))}: not compared")
            continue
        if not options.check:
            views = {v: view for v, view in views.items() if v // 1000 != version // 1000}
        views[version] = enums
    return gen.finish(OUTPUT, render(views), options.check)


if __name__ == "__main__":
    sys.exit(main())
