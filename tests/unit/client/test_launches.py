"""Launches with a configuration, graph nodes, the generic way, pools."""

import struct
from typing import Any

import pytest

from lanGPU.client.calls.state import Function
from lanGPU.driverapi.structs import KERNEL_NODE_PARAMS_V2, LAUNCH_ATTRIBUTE, LAUNCH_CONFIG, MEMCPY3D
from lanGPU.wire.records import NULL_WORD
from tests.helpers.call_driver import Program, pack_words

INVALID_VALUE, INVALID_HANDLE, CANNOT_FIT, NOT_SUPPORTED = 1, 400, 720, 801


def with_function(server: Any = None) -> tuple[Program, int]:
    program = Program(server)
    handle = program.state.names.take()
    program.state.publish_function(Function(handle, 0, "k", ((0, 8), (8, 4)), 16))
    return program, handle


def params(program: Program) -> int:
    return program.put(pack_words(program.put(pack_words(0xABCD)), program.put(b"\7\0\0\0")))


PACKED = pack_words(0xABCD) + b"\7\0\0\0" + bytes(4)


def test_launch_ex_gathers_config_and_parameters() -> None:
    program, function = with_function()
    attributes = LAUNCH_ATTRIBUTE.pack(**{"id": 4, "value[0]": 1}) + LAUNCH_ATTRIBUTE.pack(**{"id": 8, "value[0]": 5})
    config = LAUNCH_CONFIG.pack(gridDimX=2, blockDimX=64, hStream=0x77, attrs=program.put(attributes), numAttrs=2)
    assert program.call("cuLaunchKernelEx", program.put(config), function, params(program), 0) == 0
    ((name, (sent, f, packed, _)),) = program.sent
    assert name == "cuLaunchKernelEx"
    assert f == function
    assert packed == PACKED
    assert LAUNCH_CONFIG.get(sent, "attrs") == 0
    assert LAUNCH_CONFIG.get(sent, "hStream") == 0x77
    assert sent[LAUNCH_CONFIG.size :] == attributes


def test_launch_ex_refuses_what_the_driver_would_write() -> None:
    program, function = with_function()
    attribute = program.put(LAUNCH_ATTRIBUTE.pack(id=13))
    config = program.put(LAUNCH_CONFIG.pack(gridDimX=1, blockDimX=1, attrs=attribute, numAttrs=1))
    assert program.call("cuLaunchKernelEx", config, function, 0, 0) == NOT_SUPPORTED
    many = program.put(LAUNCH_CONFIG.pack(attrs=attribute, numAttrs=1 << 20))
    assert program.call("cuLaunchKernelEx", many, function, 0, 0) == INVALID_VALUE


def test_extra_buffer() -> None:
    program, function = with_function()
    buffer, size = program.put(b"parameters"), program.put(pack_words(10))
    config = program.put(LAUNCH_CONFIG.pack(gridDimX=1, blockDimX=1))
    extra = program.put(pack_words(1, buffer, 2, size, 0))
    assert program.call("cuLaunchKernelEx", config, function, 0, extra) == 0
    assert program.sent[0][1][2] == b"parameters"
    assert program.call("cuLaunchKernelEx", config, function, params(program), extra) == INVALID_VALUE
    for bad in (
        pack_words(0),
        pack_words(1, buffer, 0),
        pack_words(9, buffer, 0),
        pack_words(1, buffer, 2, program.put(pack_words(1 << 40)), 0),
    ):
        assert program.call("cuLaunchKernelEx", config, function, 0, program.put(bad)) == INVALID_VALUE


def test_unknown_function_and_unknown_layout() -> None:
    program, _ = with_function()
    config = program.put(LAUNCH_CONFIG.pack(gridDimX=1, blockDimX=1))
    assert program.call("cuLaunchKernelEx", config, 0x999, params(program), 0) == INVALID_HANDLE
    handle = program.state.names.take()
    program.state.publish_function(Function(handle, 0, "opaque", None))
    assert program.call("cuLaunchKernelEx", config, handle, params(program), 0) == NOT_SUPPORTED


def test_cooperative_launch_is_an_attribute() -> None:
    program, function = with_function()
    assert program.call("cuLaunchCooperativeKernel", function, 2, 1, 1, 32, 1, 1, 128, 0x55, params(program)) == 0
    ((name, (sent, *_)),) = program.sent
    assert name == "cuLaunchKernelEx"
    config = LAUNCH_CONFIG.unpack(sent)
    assert (config["gridDimX"], config["blockDimX"], config["sharedMemBytes"], config["hStream"], config["numAttrs"]) == (
        2,
        32,
        128,
        0x55,
        1,
    )
    assert LAUNCH_ATTRIBUTE.get(sent, "id", LAUNCH_CONFIG.size) == 2


def test_a_cooperative_launch_is_waited_for_once() -> None:
    results = [CANNOT_FIT, 0, 0]
    program, function = with_function(lambda name, values: results.pop(0))
    launch = ("cuLaunchCooperativeKernel", function, 2, 1, 1, 32, 1, 1, 128, 0x55, params(program))
    assert program.call(*launch) == CANNOT_FIT
    assert program.call(*launch) == program.call(*launch) == 0
    assert len(program.sent) == 3


def test_kernel_node() -> None:
    program, function = with_function()
    node = KERNEL_NODE_PARAMS_V2.pack(func=function, gridDimX=1, blockDimX=32, kernelParams=params(program))
    out = program.put(8)
    dependencies = program.put(pack_words(5, 6))
    assert program.call("cuGraphAddKernelNode_v2", out, 0x1, dependencies, 2, program.put(node)) == 0
    ((name, (handle, graph, nodes, count, data)),) = program.sent
    assert name == "cuGraphAddKernelNode_v2"
    assert (handle, graph, nodes, count) == (program.u64(out), 1, pack_words(5, 6), 2)
    assert KERNEL_NODE_PARAMS_V2.get(data, "kernelParams") == 16
    assert data[KERNEL_NODE_PARAMS_V2.size :] == PACKED
    bare = KERNEL_NODE_PARAMS_V2.pack(func=function, gridDimX=1, blockDimX=32)
    assert program.call("cuGraphKernelNodeSetParams_v2", handle, program.put(bare)) == 0
    assert KERNEL_NODE_PARAMS_V2.get(program.sent[-1][1][1], "kernelParams") == NULL_WORD


def test_copy_node_is_for_device_memory() -> None:
    program = Program()
    out = program.put(8)
    good = program.put(MEMCPY3D.pack(srcMemoryType=2, dstMemoryType=2, WidthInBytes=4, Height=1, Depth=1))
    assert program.call("cuGraphAddMemcpyNode", out, 1, 0, 0, good, 0) == 0
    host = program.put(MEMCPY3D.pack(srcMemoryType=1, srcHost=good, dstMemoryType=2, WidthInBytes=4, Height=1, Depth=1))
    assert program.call("cuGraphAddMemcpyNode", out, 1, 0, 0, host, 0) == NOT_SUPPORTED


def test_nodes_of_a_graph() -> None:
    def answer(name: str, values: tuple[Any, ...]) -> Any:
        if values[1] is None:
            return pack_words(2)
        offered = struct.unpack("<3Q", values[1])
        return pack_words(0x77, offered[1], 0) + pack_words(2)

    program = Program(answer)
    number = program.put(8)
    assert program.call("cuGraphGetNodes", 1, 0, number) == 0
    assert program.u64(number) == 2
    nodes = program.put(24)
    program.regions[number][:] = pack_words(3)
    assert program.call("cuGraphGetNodes", 1, nodes, number) == 0
    assert (program.u64(nodes), program.u64(nodes + 16), program.u64(number)) == (0x77, 0, 2)


@pytest.mark.parametrize("posted", [True, False])
def test_generic_call_from_its_row(posted: bool) -> None:
    program = Program(lambda name, values: pack_words(0x1000) if name == "cuMemAlloc_v2" else 0)
    if posted:
        data = program.put(b"ab" * 8)
        assert program.call("cuStreamSetAttribute", 0x9, 1, program.put(64)) == 0
        assert program.call("cuMemsetD8_v2", data, 1, 4) == 0
        assert program.sent[-1] == ("cuMemsetD8_v2", (data, 1, 4))
    else:
        out = program.put(8)
        assert program.call("cuMemAlloc_v2", out, 64) == 0
        assert program.u64(out) == 0x1000


def test_generic_creation_gets_a_name() -> None:
    program = Program()
    out = program.put(8)
    assert program.call("cuStreamCreate", out, 1) == 0
    assert program.u64(out) == program.sent[0][1][0] != 0


def test_pools() -> None:
    program = Program(lambda name, values: pack_words(77) if name == "cuMemPoolGetAttribute" else 0)
    a, b = program.put(8), program.put(8)
    assert program.call("cuDeviceGetDefaultMemPool", a, 0) == 0
    assert program.call("cuDeviceGetMemPool", b, 0) == 0
    assert program.u64(a) == program.u64(b)
    assert len(program.sent) == 1
    assert program.call("cuDeviceSetMemPool", 0, 0x4242) == 0
    assert program.call("cuDeviceGetMemPool", b, 0) == 0
    assert program.u64(b) == 0x4242
    assert program.call("cuMemPoolGetAttribute", 0x4242, 4, b) == 0
    assert program.u64(b) == 77
    assert program.call("cuMemPoolGetAttribute", 0x4242, 99, b) == INVALID_VALUE
