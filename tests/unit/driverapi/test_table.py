"""The rows against the headers, against themselves, and against the programs that need them."""

import importlib.util
import re
from pathlib import Path

import pytest

from lanGPU.constants import MAX_HANDLES
from lanGPU.driverapi.descriptor import DESCRIPTOR_BYTES, pack
from lanGPU.driverapi.exports import proc_address, resolve_symbol
from lanGPU.driverapi.model import ApiFunction, ArgKind, CallClass, HandleType
from lanGPU.driverapi.rows import AREAS
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.driverapi.table import ALL_ROWS, BY_ID, BY_NAME, MAX_API_ID, ROWS

IDS = Path(__file__).with_name("api_ids.txt")

C_TYPES = {
    "CUcontext": HandleType.CONTEXT,
    "CUmodule": HandleType.MODULE,
    "CUfunction": HandleType.FUNCTION,
    "CUkernel": HandleType.FUNCTION,
    "CUstream": HandleType.STREAM,
    "CUevent": HandleType.EVENT,
    "CUlibrary": HandleType.LIBRARY,
    "CUgraph": HandleType.GRAPH,
    "CUgraphNode": HandleType.GRAPH_NODE,
    "CUgraphExec": HandleType.GRAPH_EXEC,
    "CUmemoryPool": HandleType.MEM_POOL,
    "CUmemGenericAllocationHandle": HandleType.MEM_ALLOCATION,
    "CUlinkState": HandleType.LINK_STATE,
    "CUgreenCtx": HandleType.GREEN_CONTEXT,
    "CUarray": HandleType.ARRAY,
    "CUmipmappedArray": HandleType.MIPMAPPED_ARRAY,
    "CUuserObject": HandleType.USER_OBJECT,
}
HANDLE_USES = {ArgKind.HANDLE, ArgKind.HANDLE_DESTROY}
HANDLE_STORES = {ArgKind.HANDLE_OUT, ArgKind.HANDLE_QUERY}
SIZED = {ArgKind.BYTES_IN, ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT}
WRITES = {ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT, ArgKind.HANDLE_QUERY}
FIXED_BYTES = {
    **dict.fromkeys(("int", "unsigned int", "float", "CUdevice"), 4),
    **dict.fromkeys(("size_t", "unsigned long long", "cuuint64_t", "CUdeviceptr", "CUtexObject", "CUsurfObject"), 8),
}

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@every_row
def test_a_row_has_the_parameters_of_the_header(row: ApiFunction) -> None:
    assert [arg.name for arg in row.args] == [name for _, name in SIGNATURES[row.name].params]
    assert row.since == SIGNATURES[row.name].since > 0
    assert row.per_thread == SIGNATURES[row.name].per_thread


@every_row
def test_kinds_fit_the_c_types(row: ApiFunction) -> None:
    for arg, (c_type, _) in zip(row.args, SIGNATURES[row.name].params, strict=True):
        base = c_type.removeprefix("const ").rstrip("*")
        stars = c_type.count("*")
        if arg.kind in HANDLE_USES:
            assert (C_TYPES[base], stars) == (arg.handle, 0), arg.name
        elif arg.kind in HANDLE_STORES:
            assert (C_TYPES[base], stars) == (arg.handle, 1), arg.name
            assert not c_type.startswith("const"), arg.name
        else:
            assert arg.handle is HandleType.NONE, arg.name
        if stars == 0 and base in C_TYPES:
            assert arg.kind in HANDLE_USES, arg.name
        if arg.kind in (ArgKind.SCALAR, ArgKind.SIZE):
            assert stars == 0, arg.name
        if base == "CUdeviceptr" and stars == 0:
            assert arg.kind is ArgKind.DPTR, arg.name
        if arg.kind in SIZED and c_type.startswith("const") and stars == 1:
            assert arg.kind is ArgKind.BYTES_IN, arg.name
        if arg.kind is ArgKind.CSTRING:
            assert c_type == "const char*", arg.name
        if arg.kind in (ArgKind.KERNEL_PARAMS, ArgKind.KERNEL_EXTRA):
            assert c_type == "void**", arg.name
        if arg.kind in SIZED and stars == 1 and arg.size_const and base in FIXED_BYTES:
            assert arg.size_const == FIXED_BYTES[base], arg.name


@every_row
def test_arguments_can_be_carried(row: ApiFunction) -> None:
    kinds = [arg.kind for arg in row.args]
    for i, arg in enumerate(row.args):
        if arg.size_from:
            assert row.args[row.arg_index[arg.size_from]].kind in (ArgKind.SCALAR, ArgKind.SIZE)
            assert arg.size_const >= 1
        if not row.client and arg.kind in SIZED:
            assert arg.size_const, f"{arg.name}: the shim does not know how many bytes"
        if not row.client:
            assert arg.kind is not ArgKind.HOST_PTR, f"{arg.name}: only hand-written code can read it"
        if arg.kind is ArgKind.KERNEL_PARAMS:
            assert kinds[i + 1] is ArgKind.KERNEL_EXTRA
    assert kinds.count(ArgKind.HANDLE_OUT) <= 1
    assert kinds.count(ArgKind.HANDLE_DESTROY) <= 1
    assert len(pack(row)) == DESCRIPTOR_BYTES


@every_row
def test_the_class_is_possible(row: ApiFunction) -> None:
    kinds = {arg.kind for arg in row.args}
    if row.call_class in (CallClass.POST, CallClass.POST_NAMED):
        assert not kinds & WRITES, "a posted call has nothing to write"
        assert not row.blocking
        assert (ArgKind.HANDLE_OUT in kinds) is (row.call_class is CallClass.POST_NAMED)
    if row.call_class is CallClass.LOCAL:
        assert row.client
        assert not row.server
    if row.large:
        assert kinds & SIZED


def test_ids_are_unique_ordered_and_small() -> None:
    ids = [row.api_id for row in ROWS]
    assert ids == sorted(set(ids))
    assert ids[0] > 0
    assert ids[-1] <= MAX_API_ID < MAX_HANDLES
    assert len(BY_ID) == len(BY_NAME) == len(ALL_ROWS)
    assert ALL_ROWS[: len(ROWS)] == ROWS


def test_areas_keep_to_their_blocks() -> None:
    starts = [rows[0].api_id for _, rows in AREAS]
    for (title, rows), start, following in zip(AREAS, starts, [*starts[1:], MAX_API_ID + 1], strict=True):
        assert start % 0x40 == 0, title
        assert rows[-1].api_id < following, title


def test_ids_never_change() -> None:
    committed = {name: int(number, 16) for name, number in (line.split() for line in IDS.read_text(encoding="ascii").splitlines())}
    now = {row.name: row.api_id for row in ROWS}
    gone = {name for name, number in committed.items() if now.get(name) != number}
    assert not gone, "an api_id is permanent"
    new = {f"{name} 0x{number:04X}" for name, number in now.items() if name not in committed}
    assert not new, f"append to {IDS.name}"


def test_aliases_have_the_abi_of_their_row() -> None:
    def abi(symbol: str) -> list[str]:
        return [re.sub(r"_v\d$", "", c_type) for c_type, _ in SIGNATURES[symbol].params]

    seen = set(BY_NAME)
    for row in ROWS:
        for alias in row.aliases:
            assert abi(alias) == abi(row.name), alias
            assert SIGNATURES[alias].per_thread == row.per_thread, alias
            assert alias not in seen
            seen.add(alias)


def test_everything_tinygrad_calls_has_a_row() -> None:
    found = importlib.util.find_spec("tinygrad")
    if found is None or found.origin is None:
        pytest.skip("tinygrad is not installed")
    runtime = Path(found.origin).parent / "runtime"
    text = "".join((runtime / name).read_text(encoding="utf-8") for name in ("ops_cuda.py", "graph/cuda.py"))
    called = set(re.findall(r"\bcuda\.(cu[A-Z]\w+)\(", text)) & set(SIGNATURES)
    assert len(called) > 25
    assert not {name for name in called if resolve_symbol(name)[0] is None}


# What the examples of cuda-python and the classes of cuda.core for devices, streams, events, memory, modules and graphs ask
# cuGetProcAddress for; textures, graphics, IPC and green contexts stay out.
NEEDED = Path(__file__).with_name("needed_functions.txt").read_text(encoding="ascii").split()


@pytest.mark.parametrize("version", [12000, 12090, 13000, 13050])
@pytest.mark.parametrize("per_thread", [False, True])
def test_needed_functions_have_rows_in_every_version(version: int, per_thread: bool) -> None:
    missing = []
    for name in NEEDED:
        symbol = proc_address(name, version, per_thread)
        if symbol is not None and resolve_symbol(symbol)[0] is None:
            missing.append(symbol)
        if symbol is None and min(s.since for s in SIGNATURES.values() if s.base == name) <= version:
            missing.append(name)
    assert not missing


def test_counts_have_the_width_that_their_kind_says() -> None:
    """A SIZE is a size_t; a SCALAR count is 32 bits wide, and the upper half of its register is not ours to read."""
    for row in ROWS:
        types = {name: c_type for c_type, name in SIGNATURES[row.name].params}
        for arg in row.args:
            if arg.kind is ArgKind.SIZE:
                assert types[arg.name] == "size_t", (row.name, arg.name)
            if arg.size_from:
                counted = row.args[row.arg_index[arg.size_from]]
                assert (types[counted.name] == "size_t") is (counted.kind is ArgKind.SIZE), (row.name, arg.name)
