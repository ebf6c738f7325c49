"""Hand-written server sides against a driver in Python: what the driver gets, and what the client gets back."""

import ctypes
import struct
import threading
from collections.abc import Iterator

import pytest

from lanGPU.constants import (
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_IMAGE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
)
from lanGPU.driverapi import structs, table
from lanGPU.driverapi.model import ArgKind, HandleType
from lanGPU.errors import RemoteProtocolError
from lanGPU.server.issuer import SERVER_CALLS
from lanGPU.wire.records import FLAG_PER_THREAD, NULL_WORD
from tests.helpers.fake_driver import read, read_u64, write, write_u64
from tests.helpers.issuing import Bench

PTX = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{\nret;\n}\n\0"


@pytest.fixture(params=["reference", "machine code"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(machine_code=request.param == "machine code")
    yield bench
    bench.close()


def test_every_row_that_needs_a_server_side_has_one() -> None:
    missing = [row.name for row in table.ROWS if row.server and row.server != "never sent" and row.name not in SERVER_CALLS]
    assert missing == []
    assert set(SERVER_CALLS) <= set(table.BY_NAME)


# --- modules -----------------------------------------------------------------------------------------------------------
def function_layout(outputs: bytes) -> tuple[int, list[tuple[int, int]]]:
    count, total = struct.unpack_from("<II", outputs)
    return total, [struct.unpack_from("<II", outputs, 8 + 8 * i) for i in range(count)]


def tells_layout(symbol: str, bench: Bench, layout: list[tuple[int, int]]) -> None:
    def info(_: int, index: int, offset: int, size: int) -> int:
        if index >= len(layout):
            return CUDA_ERROR_INVALID_VALUE
        write_u64(offset, layout[index][0])
        write_u64(size, layout[index][1])
        return CUDA_SUCCESS

    bench.driver.functions[symbol] = info


def test_function_layout_is_asked_of_the_driver(bench: Bench) -> None:
    bench.driver.creates("cuModuleLoadData")
    names: list[bytes] = []
    bench.driver.functions["cuModuleGetFunction"] = lambda out, _, name: names.append(ctypes.string_at(name)) or write_u64(out, 0x99) or 0
    tells_layout("cuFuncGetParamInfo", bench, [(0, 8), (8, 4)])
    module, function = bench.name(), bench.name()
    assert bench.ask("cuModuleLoadData", module, PTX).result == CUDA_SUCCESS
    reply = bench.ask("cuModuleGetFunction", function, module, b"k\0")
    assert function_layout(reply.outputs) == (12, [(0, 8), (8, 4)])
    assert names == [b"k"]
    assert bench.executor.real(function, HandleType.FUNCTION) == 0x99


def test_function_layout_comes_from_the_image_where_the_driver_does_not_tell(bench: Bench) -> None:
    bench.driver.creates("cuLibraryLoadData")
    bench.driver.creates("cuLibraryGetKernel")
    bench.driver.creates("cuKernelGetFunction")
    bench.driver.succeeds("cuLibraryUnload")
    library, kernel, function, other = (bench.name() for _ in range(4))
    reply = bench.ask("cuLibraryLoadData", library, PTX, None, None, 0, None, None, 0)
    assert reply.outputs == struct.pack("<iI", CUDA_SUCCESS, 0)
    assert function_layout(bench.ask("cuLibraryGetKernel", kernel, library, b"k\0").outputs) == (12, [(0, 8), (8, 4)])
    assert function_layout(bench.ask("cuKernelGetFunction", function, kernel).outputs) == (12, [(0, 8), (8, 4)])
    assert bench.ask("cuLibraryGetKernel", other, library, b"unknown\0").outputs == struct.pack("<II", 0xFFFF_FFFF, 0)
    bench.post("cuLibraryUnload", library)
    assert bench.ask("cuLibraryGetKernel", bench.name(), library, b"k\0").result == CUDA_ERROR_INVALID_HANDLE


def test_functions_without_parameters_and_failed_lookups(bench: Bench) -> None:
    bench.driver.creates("cuModuleLoadData")
    bench.driver.creates("cuModuleGetFunction")
    tells_layout("cuFuncGetParamInfo", bench, [])
    module = bench.name()
    bench.ask("cuModuleLoadData", module, PTX)
    assert function_layout(bench.ask("cuModuleGetFunction", bench.name(), module, b"k\0").outputs) == (0, [])
    bench.driver.functions["cuModuleGetFunction"] = lambda *_: 500
    name = bench.name()
    reply = bench.ask("cuModuleGetFunction", name, module, b"k\0")
    assert (reply.result, reply.outputs) == (500, b"")
    assert bench.executor.real(name, HandleType.FUNCTION) is None


@pytest.mark.parametrize("image", [b"", b"\0", PTX[:-1], b"\x7fELF" + bytes(8), struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40)])
def test_an_image_that_ends_too_early_never_reaches_the_driver(bench: Bench, image: bytes) -> None:
    bench.driver.creates("cuModuleLoadData")
    assert bench.ask("cuModuleLoadData", bench.name(), image).result == CUDA_ERROR_INVALID_IMAGE
    assert bench.driver.calls("cuModuleLoadData") == []


def test_jit_logs_come_back_although_the_load_failed(bench: Bench) -> None:
    def load(_: int, image: int, count: int, options: int, values: int) -> int:
        assert read(image, len(PTX)) == PTX
        assert struct.unpack("<4i", read(options, 4 * count)) == (5, 6, 7, 2)
        pointer, capacity, level, _time = struct.unpack("<4Q", read(values, 8 * count))
        assert (capacity, level) == (64, 3)
        write(pointer, b"ptxas: bad\0")
        write_u64(values + 8, 10)
        write(values + 24, struct.pack("<f", 1.5))
        return 218

    bench.driver.functions["cuModuleLoadDataEx"] = load
    name = bench.name()
    options, values = struct.pack("<4i", 5, 6, 7, 2), struct.pack("<4Q", 0, 64, 3, 0)
    reply = bench.ask("cuModuleLoadDataEx", name, PTX, 4, options, values)
    assert reply.result == CUDA_SUCCESS
    expected = struct.pack("<iI", 218, 3)
    expected += struct.pack("<II", 5, 11) + b"ptxas: bad\0".ljust(16, b"\0")
    expected += struct.pack("<IIQ", 6, 8, 10) + struct.pack("<IIfI", 2, 4, 1.5, 0)
    assert reply.outputs == expected
    assert bench.executor.real(name, HandleType.MODULE) is None


@pytest.mark.parametrize(("options", "result"), [((17,), CUDA_ERROR_NOT_SUPPORTED), ((7,) * 65, CUDA_ERROR_INVALID_VALUE)])
def test_jit_options_that_cannot_be_carried(bench: Bench, options: tuple[int, ...], result: int) -> None:
    bench.driver.creates("cuModuleLoadDataEx")
    n = len(options)
    reply = bench.ask("cuModuleLoadDataEx", bench.name(), PTX, n, struct.pack(f"<{n}i", *options), bytes(8 * n))
    assert reply.result == result
    assert bench.driver.calls("cuModuleLoadDataEx") == []


def test_a_preserved_image_outlives_its_record(bench: Bench) -> None:
    addresses: list[int] = []
    bench.driver.functions["cuLibraryLoadData"] = lambda out, code, *_: addresses.append(code) or write_u64(out, 0x77) or 0
    bench.driver.succeeds("cuLibraryUnload")
    library = bench.name()
    bench.ask("cuLibraryLoadData", library, PTX, None, None, 0, struct.pack("<i", 1), struct.pack("<Q", 1), 1)
    bench.post("cuCtxSetCurrent", 0)
    assert read(addresses[0], len(PTX)) == PTX
    bench.post("cuLibraryUnload", library)


def test_linker_returns_its_image_and_logs(bench: Bench) -> None:
    keep: list[object] = []

    def create(count: int, options: int, values: int, out: int) -> int:
        assert struct.unpack("<2i", read(options, 4 * count)) == (3, 4)
        keep.append(read_u64(values))
        write_u64(out, 0x55)
        return CUDA_SUCCESS

    def add(state: int, kind: int, data: int, size: int, name: int, *_: int) -> int:
        assert (state, kind, read(data, size), ctypes.string_at(name)) == (0x55, 1, PTX, b"x.ptx")
        assert isinstance(keep[0], int)
        write(keep[0], b"info\0")
        return CUDA_SUCCESS

    image = ctypes.create_string_buffer(b"cubin", 5)

    def complete(state: int, out: int, size: int) -> int:
        write_u64(out, ctypes.addressof(image))
        write_u64(size, 5)
        return CUDA_SUCCESS

    bench.driver.functions |= {"cuLinkCreate_v2": create, "cuLinkAddData_v2": add, "cuLinkComplete": complete}
    bench.driver.succeeds("cuLinkDestroy")
    state = bench.name()
    created = bench.ask("cuLinkCreate_v2", 2, struct.pack("<2i", 3, 4), struct.pack("<2Q", 0, 32), state)
    assert created.outputs[:8] == struct.pack("<iI", 0, 2)
    bench.ask("cuLinkAddData_v2", state, 1, PTX, len(PTX), b"x.ptx\0", 0, None, None)
    outputs = bench.ask("cuLinkComplete", state, 0, 0).outputs
    assert b"info\0" in outputs
    assert outputs.endswith(struct.pack("<Q", 5) + b"cubin\0\0\0")
    bench.post("cuLinkDestroy", state)
    assert bench.ask("cuLinkComplete", state, 0, 0).result == CUDA_ERROR_INVALID_HANDLE


# --- graphs ------------------------------------------------------------------------------------------------------------
def graph(bench: Bench) -> tuple[int, int, int]:
    """Names of a graph, a node and a function that the driver has."""
    names = bench.name(), bench.name(), bench.name()
    for name, real, kind in zip(names, (0x1, 0x2, 0x3), (HandleType.GRAPH, HandleType.GRAPH_NODE, HandleType.FUNCTION), strict=True):
        bench.executor.define(name, real, kind)
    return names


@pytest.mark.parametrize(
    ("row", "layout"), [("cuGraphAddKernelNode", structs.KERNEL_NODE_PARAMS_V1), ("cuGraphAddKernelNode_v2", structs.KERNEL_NODE_PARAMS_V2)]
)
def test_kernel_node_reaches_the_driver_with_real_handles_and_packed_parameters(
    bench: Bench, row: str, layout: structs.StructLayout
) -> None:
    owner, before, function = graph(bench)
    seen: dict[str, object] = {}

    def add(out: int, in_graph: int, deps: int, count: int, params: int) -> int:
        data = read(params, layout.size)
        extra = layout.get(data, "extra")
        words = struct.unpack("<5Q", read(extra, 40))
        seen["params"] = read(words[1], read_u64(words[3]))
        seen["node"] = (
            in_graph,
            struct.unpack(f"<{count}Q", read(deps, 8 * count)),
            layout.get(data, "func"),
            layout.get(data, "kernelParams"),
        )
        seen["keys"] = (words[0], words[2], words[4], layout.get(data, "gridDimX"))
        write_u64(out, 0x44)
        return CUDA_SUCCESS

    bench.driver.functions[row] = add
    node = bench.name()
    data = layout.pack(func=function, gridDimX=5, kernelParams=12) + b"parameters12".ljust(16, b"\0")
    bench.post(row, node, owner, struct.pack("<Q", before), 1, data)
    assert seen == {"params": b"parameters12", "node": (0x1, (0x2,), 0x3, 0), "keys": (1, 2, 0, 5)}
    assert bench.executor.real(node, HandleType.GRAPH_NODE) == 0x44


def test_kernel_node_with_too_few_bytes(bench: Bench) -> None:
    owner, _, function = graph(bench)
    bench.driver.creates("cuGraphAddKernelNode")
    layout = structs.KERNEL_NODE_PARAMS_V1
    for data in (b"short", layout.pack(func=function, kernelParams=100) + bytes(8)):
        assert bench.ask("cuGraphAddKernelNode", bench.name(), owner, None, 0, data).result == CUDA_ERROR_INVALID_VALUE
    stale = layout.pack(func=bench.name(), kernelParams=NULL_WORD)
    assert bench.ask("cuGraphAddKernelNode", bench.name(), owner, None, 0, stale).result == CUDA_ERROR_INVALID_HANDLE
    assert bench.driver.calls("cuGraphAddKernelNode") == []


def test_copy_node_with_host_memory_is_refused(bench: Bench) -> None:
    owner, _, _ = graph(bench)
    bench.driver.creates("cuGraphAddMemcpyNode")
    device = structs.MEMCPY3D.pack(srcMemoryType=2, dstMemoryType=2, srcHost=0x1234, WidthInBytes=8, Height=1, Depth=1)
    assert bench.ask("cuGraphAddMemcpyNode", bench.name(), owner, None, 0, device, 0).result == CUDA_SUCCESS
    host = structs.MEMCPY3D.pack(srcMemoryType=1, dstMemoryType=2)
    assert bench.ask("cuGraphAddMemcpyNode", bench.name(), owner, None, 0, host, 0).result == CUDA_ERROR_NOT_SUPPORTED
    assert len(bench.driver.calls("cuGraphAddMemcpyNode")) == 1


def test_dependencies_are_translated_or_refused(bench: Bench) -> None:
    owner, node, _ = graph(bench)
    seen: list[bytes] = []
    bench.driver.functions["cuGraphAddDependencies"] = lambda _, a, b, n: seen.append(read(a, 8 * n) + read(b, 8 * n)) or 0
    pair = struct.pack("<Q", node)
    assert bench.ask("cuGraphAddDependencies", owner, pair, pair, 1).result == CUDA_SUCCESS
    assert seen == [struct.pack("<QQ", 2, 2)]
    assert bench.ask("cuGraphAddDependencies", owner, pair, struct.pack("<Q", bench.name()), 1).result == CUDA_ERROR_INVALID_HANDLE


def test_nodes_are_reported_by_the_names_in_force(bench: Bench) -> None:
    owner, known, _ = graph(bench)

    def get(_: int, nodes: int, count: int) -> int:
        if nodes:
            write(nodes, struct.pack("<3Q", 0x2, 0x20, 0))
        write_u64(count, 2)
        return CUDA_SUCCESS

    bench.driver.functions["cuGraphGetNodes"] = get
    assert bench.ask("cuGraphGetNodes", owner, None, struct.pack("<Q", 0)).outputs == struct.pack("<Q", 2)
    offers = [bench.name() for _ in range(3)]
    reply = bench.ask("cuGraphGetNodes", owner, struct.pack("<3Q", *offers), struct.pack("<Q", 3))
    assert struct.unpack("<4Q", reply.outputs) == (known, offers[1], 0, 2)
    assert bench.executor.real(offers[1], HandleType.GRAPH_NODE) == 0x20
    assert bench.executor.real(offers[0], HandleType.GRAPH_NODE) is None
    assert bench.ask("cuGraphGetNodes", owner, struct.pack("<Q", offers[0]), struct.pack("<Q", 3)).result == CUDA_ERROR_INVALID_VALUE
    assert bench.ask("cuGraphGetNodes", owner, struct.pack("<Q", 5), struct.pack("<Q", 1)).result == CUDA_ERROR_INVALID_VALUE


def test_functions_of_a_module_get_the_offered_names(bench: Bench) -> None:
    bench.driver.functions["cuModuleEnumerateFunctions"] = lambda out, n, _: write(out, struct.pack(f"<{n}Q", *range(7, 7 + n))) or 0
    module, one, two = bench.name(), bench.name(), bench.name()
    bench.executor.define(module, 0x9, HandleType.MODULE)
    reply = bench.ask("cuModuleEnumerateFunctions", struct.pack("<QQ", one, two), 2, module)
    assert struct.unpack("<QQ", reply.outputs) == (one, two)
    assert bench.executor.real(two, HandleType.FUNCTION) == 8


def test_instantiation_parameters_hold_names_both_ways(bench: Bench) -> None:
    owner, node, _ = graph(bench)
    stream = bench.name()
    bench.executor.define(stream, 0x6, HandleType.STREAM)
    layout = structs.GRAPH_INSTANTIATE_PARAMS

    def instantiate(out: int, _: int, params: int) -> int:
        data = bytearray(read(params, layout.size))
        assert layout.get(data, "hUploadStream") == 0x6
        layout.put(data, "hErrNode_out", 0x2)
        write(params, bytes(data))
        write_u64(out, 0x66)
        return CUDA_SUCCESS

    bench.driver.functions["cuGraphInstantiateWithParams"] = instantiate
    exec_name = bench.name()
    reply = bench.ask("cuGraphInstantiateWithParams", exec_name, owner, layout.pack(hUploadStream=stream))
    assert (layout.get(reply.outputs, "hUploadStream"), layout.get(reply.outputs, "hErrNode_out")) == (stream, node)
    assert bench.executor.real(exec_name, HandleType.GRAPH_EXEC) == 0x66


# --- launches ------------------------------------------------------------------------------------------------------------
def test_launch_with_attributes(bench: Bench) -> None:
    _, _, function = graph(bench)
    event, stream = bench.name(), bench.name()
    bench.executor.define(event, 0x8, HandleType.EVENT)
    bench.executor.define(stream, 0x6, HandleType.STREAM)
    layout, attribute = structs.LAUNCH_CONFIG, structs.LAUNCH_ATTRIBUTE
    seen: list[object] = []

    def launch(config: int, f: int, params: int, extra: int) -> int:
        data = read(config, layout.size)
        attrs = read(layout.get(data, "attrs"), attribute.size * layout.get(data, "numAttrs"))
        words = struct.unpack("<5Q", read(extra, 40))
        seen.append((f, params, layout.get(data, "hStream"), [attribute.get(attrs, "value[0]", i * attribute.size) for i in range(2)]))
        seen.append(read(words[1], read_u64(words[3])))
        return CUDA_SUCCESS

    bench.driver.functions["cuLaunchKernelEx"] = launch
    config = layout.pack(gridDimX=1, hStream=stream, numAttrs=2) + attribute.pack(id=2) + attribute.pack(id=7)
    data = bytearray(config)
    attribute.put(data, "value[0]", 1, layout.size)
    attribute.put(data, "value[0]", event, layout.size + attribute.size)
    bench.post("cuLaunchKernelEx", bytes(data), function, b"packed!!", None)
    assert seen == [(0x3, 0, 0x6, [1, 0x8]), b"packed!!"]
    updatable = layout.pack(numAttrs=1) + attribute.pack(id=13)
    assert bench.ask("cuLaunchKernelEx", updatable, function, b"", None).result == CUDA_ERROR_NOT_SUPPORTED
    assert bench.ask("cuLaunchKernelEx", layout.pack(numAttrs=2), function, b"", None).result == CUDA_ERROR_INVALID_VALUE
    assert len(seen) == 2


# --- copies ------------------------------------------------------------------------------------------------------------
def test_copy_to_host_of_a_busy_stream_waits_elsewhere(bench: Bench) -> None:
    release = threading.Event()
    ready = [CUDA_ERROR_NOT_READY]
    bench.driver.functions["cuStreamQuery"] = lambda _: ready[0]
    bench.driver.functions["cuMemcpyDtoHAsync_v2"] = lambda dst, src, n, stream: write(dst, bytes(range(n))) or 0
    bench.driver.functions["cuStreamSynchronize"] = lambda _: 0 if release.wait(10) else 999
    record = bench.record("cuMemcpyDtoHAsync_v2", 5, 0x1000, 5, 0, thread=3, token=9)
    bench.feed(record)
    assert bench.ask("cuCtxSetCurrent", 0, thread=1).result == CUDA_SUCCESS
    assert [r.token for r in bench.replies if r.token == 9] == []
    release.set()
    assert bench.wait(9).outputs == bytes(range(5)) + bytes(3)
    ready[0] = CUDA_SUCCESS
    assert bench.ask("cuMemcpyDtoHAsync_v2", 4, 0x1000, 4, 0).outputs == bytes(range(4)) + bytes(4)


def test_copy_to_host_in_a_capture_is_refused(bench: Bench) -> None:
    bench.driver.functions["cuStreamIsCapturing"] = lambda _, status: write(status, struct.pack("<I", 1)) or 0
    bench.driver.succeeds("cuMemcpyDtoHAsync_v2")
    assert bench.ask("cuMemcpyDtoHAsync_v2", 4, 0x1000, 4, 0).result == CUDA_ERROR_NOT_SUPPORTED
    assert bench.driver.calls("cuMemcpyDtoHAsync_v2") == []


@pytest.mark.parametrize(("capacity", "count"), [(4, 5), (NULL_WORD, 4)])
def test_copy_to_host_never_writes_past_its_reply(bench: Bench, capacity: int, count: int) -> None:
    bench.driver.succeeds("cuMemcpyDtoH_v2")
    assert bench.ask("cuMemcpyDtoH_v2", capacity, 0x1000, count).result == CUDA_ERROR_INVALID_VALUE
    assert bench.driver.calls("cuMemcpyDtoH_v2") == []


def test_a_copy_to_host_that_fits_no_reply_ends_the_session(bench: Bench) -> None:
    bench.driver.succeeds("cuMemcpyDtoH_v2")
    with pytest.raises(RemoteProtocolError):
        bench.ask("cuMemcpyDtoH_v2", 9 << 20, 0x1000, 9 << 20)
    assert bench.driver.calls("cuMemcpyDtoH_v2") == []


def test_per_thread_variants_call_their_own_symbol(bench: Bench) -> None:
    bench.driver.functions["cuMemcpyDtoH_v2_ptds"] = lambda dst, src, n: write(dst, b"perthrd!"[:n]) or 0
    assert bench.ask("cuMemcpyDtoH_v2", 8, 0x1000, 8, flags=FLAG_PER_THREAD).outputs == b"perthrd!"
    assert bench.driver.calls("cuStreamQuery") == [(2,)]


@pytest.mark.parametrize(("row", "layout"), [("cuMemcpy2D_v2", structs.MEMCPY2D), ("cuMemcpy3D_v2", structs.MEMCPY3D)])
def test_pitched_copies_carry_the_host_side(bench: Bench, row: str, layout: structs.StructLayout) -> None:
    depth = {"Depth": 2} if "Depth" in layout.fields else {}
    total = 6 * (2 if depth else 1)
    sides: list[bytes] = []

    def copy(params: int) -> int:
        data = read(params, layout.size)
        if layout.get(data, "srcMemoryType") == 1:
            assert (layout.get(data, "srcPitch"), layout.get(data, "srcXInBytes")) == (3, 0)
            sides.append(read(layout.get(data, "srcHost"), total))
        else:
            write(layout.get(data, "dstHost"), b"R" * total)
        return CUDA_SUCCESS

    bench.driver.functions[row] = copy
    size = {"WidthInBytes": 3, "Height": 2, **depth}
    upload = layout.pack(srcMemoryType=1, dstMemoryType=2, srcXInBytes=7, srcPitch=99, srcHost=0xDEAD, **size)
    assert bench.ask(row, upload + b"abcdefghijkl"[:total]).result == CUDA_SUCCESS
    assert sides == [b"abcdefghijkl"[:total]]
    download = layout.pack(srcMemoryType=2, dstMemoryType=1, dstHost=0xDEAD, **size)
    assert bench.ask(row, download).outputs[:total] == b"R" * total
    assert bench.ask(row, upload + b"abc").result == CUDA_ERROR_INVALID_VALUE
    huge = layout.pack(srcMemoryType=2, dstMemoryType=1, **{**size, "WidthInBytes": 1 << 40})
    assert bench.ask(row, huge).result == CUDA_ERROR_INVALID_VALUE
    assert bench.ask(row, b"short").result == CUDA_ERROR_INVALID_VALUE


def test_pointer_attributes_that_are_handles_come_as_names(bench: Bench) -> None:
    context = bench.name()
    bench.executor.define(context, 0x42, HandleType.CONTEXT)
    bench.driver.functions["cuPointerGetAttribute"] = lambda out, attribute, _: write_u64(out, 0x42) or 0
    assert bench.ask("cuPointerGetAttribute", 8, 1, 0x1000).outputs == struct.pack("<Q", context)
    assert bench.ask("cuPointerGetAttribute", 8, 11, 0x1000).outputs == struct.pack("<Q", 0x42)
    assert bench.ask("cuPointerGetAttribute", 8, 17, 0x1000).result == CUDA_ERROR_NOT_SUPPORTED
    assert bench.ask("cuPointerGetAttribute", None, 1, 0x1000).result == CUDA_ERROR_INVALID_VALUE


def test_rows_meet_the_generic_path_only_with_kinds_it_knows() -> None:
    for row in table.ROWS:
        if not row.server and not row.client:
            assert all(arg.kind is not ArgKind.HOST_PTR for arg in row.args), row.name
