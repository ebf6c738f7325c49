"""Modules, libraries, the linker: images, options, layouts, names."""

import struct
from typing import Any

import pytest

from lanGPU.wire.records import HANDLE_INDEX_MASK
from tests.helpers.call_driver import Program, pack_words

PTX = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{\nret;\n}\n\0"
INVALID_VALUE, INVALID_IMAGE, FILE_NOT_FOUND, INVALID_HANDLE, NOT_FOUND, NOT_SUPPORTED = 1, 200, 301, 400, 500, 801


def layout(*params: tuple[int, int], packed: int) -> bytes:
    return struct.pack("<II", len(params), packed) + b"".join(struct.pack("<II", *p) for p in params)


def jit_reply(result: int, *entries: tuple[int, bytes]) -> bytes:
    out = struct.pack("<iI", result, len(entries))
    for option, data in entries:
        out += struct.pack("<II", option, len(data)) + data.ljust((len(data) + 7) & ~7, b"\0")
    return out


def server(name: str, values: tuple[Any, ...]) -> Any:
    if name.endswith("GetFunction") or name == "cuLibraryGetKernel":
        return layout((0, 8), (8, 4), packed=12)
    return 0


def load(program: Program, image: bytes = PTX) -> int:
    out = program.put(8)
    assert program.call("cuModuleLoadData", out, program.put(image)) == 0
    return program.u64(out)


def test_ptx_travels_with_its_nul_and_no_more() -> None:
    program = Program(server)
    load(program, PTX + b"what follows it in memory")
    name, (handle, image) = program.sent[0]
    assert name == "cuModuleLoadData"
    assert image == PTX
    assert handle


def test_wrapper_is_followed() -> None:
    program = Program(server)
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 32) + bytes(32)
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, program.put(fatbin + b"trailing"), 0)
    load(program, wrapper)
    assert program.sent[0][1][1] == fatbin


def test_no_image() -> None:
    program = Program(server)
    out = program.put(8)
    assert program.call("cuModuleLoadData", out, 0) == INVALID_VALUE
    assert program.call("cuModuleLoadData", out, 0x10) == INVALID_VALUE  # not mapped
    assert program.call("cuModuleLoadData", out, program.put(b"MZ no image at all")) == INVALID_IMAGE
    assert program.sent == []


def test_failed_load_gives_its_name_back() -> None:
    program = Program(lambda name, values: 218)
    out = program.put(8)
    for _ in range(3):
        assert program.call("cuModuleLoadData", out, program.put(PTX)) == 218
    assert len({values[0] & HANDLE_INDEX_MASK for _, values in program.sent}) == 1
    assert len({values[0] for _, values in program.sent}) == 3  # of another generation each time
    assert program.u64(out) == 0


def test_function_has_one_name_and_a_layout() -> None:
    program = Program(server)
    module = load(program)
    out, name = program.put(8), program.put(b"k\0")
    assert program.call("cuModuleGetFunction", out, module, name) == 0
    first = program.u64(out)
    assert program.call("cuModuleGetFunction", out, module, name) == 0
    assert program.u64(out) == first
    assert [n for n, _ in program.sent] == ["cuModuleLoadData", "cuModuleGetFunction"]
    assert program.sent[1][1][2] == b"k\0"
    assert program.table.layouts[first & HANDLE_INDEX_MASK] == (((0, 8), (8, 4)), 12)
    assert program.call("cuFuncGetName", out, first) == 0
    assert program.string(program.u64(out)) == b"k"
    assert program.call("cuModuleUnload", module) == 0
    assert program.call("cuFuncGetName", out, first) == INVALID_HANDLE


def test_missing_function() -> None:
    program = Program(lambda name, values: NOT_FOUND if name == "cuModuleGetFunction" else 0)
    out = program.put(8)
    assert program.call("cuModuleGetFunction", out, load(program), program.put(b"nope\0")) == NOT_FOUND
    assert program.u64(out) == 0


@pytest.mark.parametrize(
    "reply",
    [
        b"\1",
        struct.pack("<II", 5, 8),
        struct.pack("<IIII", 1, 8, 4, 8),  # a parameter outside of the buffer
        struct.pack("<II", 1 << 30, 8),
    ],
)
def test_corrupt_layout_is_an_error(reply: bytes) -> None:
    program = Program(lambda name, values: reply if name == "cuModuleGetFunction" else 0)
    out = program.put(8)
    assert program.call("cuModuleGetFunction", out, load(program), program.put(b"k\0")) == 999
    assert program.table.layouts == {}


def test_unknown_layout_is_said() -> None:
    program = Program(lambda name, values: struct.pack("<II", 0xFFFF_FFFF, 0) if name == "cuModuleGetFunction" else 0)
    out = program.put(8)
    assert program.call("cuModuleGetFunction", out, load(program), program.put(b"k\0")) == 0
    assert program.table.layouts == {}
    assert len(program.log) == 1


@pytest.mark.parametrize("result", [0, 218])
def test_jit_logs_are_filled_whatever_the_result(result: int) -> None:
    log = b"a warning\0"
    reply = jit_reply(result, (3, log), (4, struct.pack("<Q", len(log))), (2, struct.pack("<f", 1.5)))
    program = Program(lambda name, values: reply)
    buffer = program.put(b"\xee" * 32)
    options = program.put(struct.pack("<4I", 3, 4, 2, 0))
    values = program.put(pack_words(buffer, 32, 0, 64))
    out = program.put(8)
    assert program.call("cuModuleLoadDataEx", out, program.put(PTX), 4, options, values) == result
    assert program.read(buffer, 12) == log + b"\xee\xee"
    assert program.u64(values + 8) == len(log)
    assert struct.unpack("<f", program.read(values + 16, 4))[0] == 1.5
    assert program.u64(values + 24) == 64
    assert bool(program.u64(out)) is (result == 0)
    _, sent = program.sent[0]
    assert sent[3] == struct.pack("<4I", 3, 4, 2, 0)
    assert sent[4] == pack_words(0, 32, 0, 64)  # the program's address stays here


def test_options_with_arrays_are_refused() -> None:
    program = Program(server)
    out = program.put(8)
    image = program.put(PTX)
    assert program.call("cuModuleLoadDataEx", out, image, 1, program.put(struct.pack("<I", 17)), program.put(8)) == NOT_SUPPORTED
    assert program.call("cuModuleLoadDataEx", out, image, 100_000, program.put(4), program.put(8)) == INVALID_VALUE
    assert program.sent == []


def test_module_file_is_the_clients() -> None:
    program = Program(server)
    program.files[b"k.ptx"] = PTX[:-1]
    out = program.put(8)
    assert program.call("cuModuleLoad", out, program.put(b"k.ptx\0")) == 0
    assert program.sent[0] == ("cuModuleLoadData", (program.u64(out), PTX))
    assert program.call("cuModuleLoad", out, program.put(b"other\0")) == FILE_NOT_FOUND


def test_library_kernel_function() -> None:
    def answer(name: str, values: tuple[Any, ...]) -> Any:
        return jit_reply(0) if name == "cuLibraryLoadData" else server(name, values)

    program = Program(answer)
    out = program.put(8)
    assert program.call("cuLibraryLoadData", out, program.put(PTX), 0, 0, 0, 0, 0, 0) == 0
    library = program.u64(out)
    assert program.call("cuLibraryGetKernel", out, library, program.put(b"k\0")) == 0
    kernel = program.u64(out)
    assert program.call("cuKernelGetFunction", out, kernel) == 0
    function = program.u64(out)
    assert program.call("cuKernelGetFunction", out, kernel) == 0
    assert program.u64(out) == function != kernel
    assert program.call("cuLibraryGetModule", out, library) == 0
    assert {kernel & HANDLE_INDEX_MASK, function & HANDLE_INDEX_MASK} == set(program.table.layouts)
    assert program.call("cuLibraryUnload", library) == 0
    assert program.call("cuKernelGetName", out, kernel) == INVALID_HANDLE
    assert program.call("cuFuncGetName", out, function) == INVALID_HANDLE


def test_linker() -> None:
    def answer(name: str, values: tuple[Any, ...]) -> Any:
        if name == "cuLinkComplete":
            return jit_reply(0) + struct.pack("<Q", 5) + b"image\0\0\0"
        if name == "cuLinkAddData_v2":
            return jit_reply(0, (5, b"log\0"))
        return jit_reply(0) if name == "cuLinkCreate_v2" else 0

    program = Program(answer)
    out, size, buffer = program.put(8), program.put(8), program.put(16)
    options, values = program.put(struct.pack("<2I", 5, 6)), program.put(pack_words(buffer, 16))
    assert program.call("cuLinkCreate_v2", 2, options, values, out) == 0
    state = program.u64(out)
    assert program.call("cuLinkAddData_v2", state, 1, program.put(PTX), len(PTX), program.put(b"name\0"), 0, 0, 0) == 0
    assert program.read(buffer, 4) == b"log\0"  # the buffer of cuLinkCreate
    assert program.call("cuLinkComplete", state, out, size) == 0
    image = program.u64(out)
    assert program.read(image, program.u64(size)) == b"image"
    assert program.call("cuLinkDestroy", state) == 0
    assert image not in program.regions
    assert program.call("cuLinkComplete", state, out, size) == INVALID_HANDLE


def test_enumerated_functions_keep_known_names() -> None:
    known: list[int] = []

    def answer(name: str, values: tuple[Any, ...]) -> Any:
        if name == "cuModuleEnumerateFunctions":
            offered = struct.unpack("<2Q", values[0])
            return pack_words(known[0], offered[1])
        if name == "cuFuncGetParamCount":
            return pack_words(1)
        if name == "cuFuncGetParamInfo":
            return pack_words(0, 4)
        return server(name, values)

    program = Program(answer)
    module = load(program)
    out = program.put(8)
    assert program.call("cuModuleGetFunction", out, module, program.put(b"k\0")) == 0
    known.append(program.u64(out))
    array = program.put(16)
    assert program.call("cuModuleEnumerateFunctions", array, 2, module) == 0
    assert program.u64(array) == known[0]
    other = program.u64(array + 8)
    assert program.table.layouts[other & HANDLE_INDEX_MASK] == (((0, 4),), 4)
    # the name offered in the first place is free again
    assert program.state.names.take() & HANDLE_INDEX_MASK not in (known[0] & HANDLE_INDEX_MASK, other & HANDLE_INDEX_MASK)
