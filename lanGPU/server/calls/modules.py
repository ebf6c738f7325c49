"""Modules, libraries and the functions in them."""

import contextlib
import ctypes
import struct
from typing import Final

from lanGPU.constants import (
    CUDA_ERROR_INVALID_IMAGE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
    MAX_KERNEL_PARAMS_BYTES,
)
from lanGPU.driverapi import images
from lanGPU.driverapi.model import HandleType
from lanGPU.errors import ImageError
from lanGPU.server.call import MAX_OUTPUT_BYTES, Call, address_of
from lanGPU.server.calls.jit import JitOptions
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import pad8

UNKNOWN_LAYOUT: Final = struct.pack("<II", 0xFFFF_FFFF, 0)
CU_LIBRARY_BINARY_IS_PRESERVED: Final = 1
"""CUlibraryOption (cuda.h): the driver may read the image for as long as the library lives."""


class Images:
    """What must be remembered of images, by the driver's module or library handle."""

    def __init__(self) -> None:
        self.layouts: dict[int, dict[str, images.Layout]] = {}
        self.names: dict[int, tuple[int, str]] = {}
        """Kernel -> its library and name, for drivers that do not tell layouts."""
        self.preserved: dict[int, bytearray] = {}

    @staticmethod
    def of(issuer: Issuer) -> "Images":
        """The session's."""
        found = issuer.state.get("images")
        if not isinstance(found, Images):
            found = issuer.state["images"] = Images()
        return found

    def forget(self, owner: int) -> None:
        """The module or library was unloaded."""
        self.layouts.pop(owner, None)
        self.preserved.pop(owner, None)
        for kernel in [k for k, (library, _) in self.names.items() if library == owner]:
            del self.names[kernel]


def _checked_image(call: Call, name: str) -> memoryview:
    """The image, if it ends where its own headers say: the driver trusts them and would read on.

    Raises:
        DriverError: CUDA_ERROR_INVALID_IMAGE.
    """
    image = call.blob(name)
    try:
        if images.image_kind(bytes(image[:8])) is images.ImageKind.PTX:
            size = len(image) + bool(image[-1])  # its only end is a NUL
        else:
            size = images.image_size(lambda offset, length: bytes(image[offset : offset + length]))
    except (ImageError, struct.error) as exc:
        raise call.failed(CUDA_ERROR_INVALID_IMAGE, str(exc)) from exc
    if size > len(image):
        raise call.failed(CUDA_ERROR_INVALID_IMAGE, f"the image has {len(image)} of its {size} bytes")
    return image


def _keep_layouts(issuer: Issuer, owner: int, image: memoryview) -> None:
    """For drivers before CUDA 12.4, which do not tell: reads the image's own parameter layouts."""
    if issuer.driver.resolve("cuFuncGetParamInfo"):
        return
    with contextlib.suppress(ImageError):  # the driver took the image; only launches by kernelParams need its layouts
        Images.of(issuer).layouts[owner] = images.kernel_params(bytes(image))


def _load(issuer: Issuer, call: Call, out: str, image: memoryview, *args: int) -> int:
    """Calls the driver with a place for the handle, the image and `args`; names the handle. Returns the CUresult."""
    issuer.executor.ensure_thread(call.thread)
    slot = ctypes.c_uint64()
    result = issuer.driver.call(call.symbol, ctypes.addressof(slot), address_of(image), *args)
    if result == CUDA_SUCCESS:
        index = call.row.arg_index[out]
        issuer.executor.define(call.words[index], slot.value, call.row.args[index].handle)
        _keep_layouts(issuer, slot.value, image)
    return result


@server_call("cuModuleLoadData")
def load_data(issuer: Issuer, call: Call) -> Answer:
    """`image`: a complete image, never a wrapper."""
    return _load(issuer, call, "module", _checked_image(call, "image")), b""


@server_call("cuModuleLoadFatBinary")
def load_fat_binary(issuer: Issuer, call: Call) -> Answer:
    """`fatCubin`: a complete image, never a wrapper."""
    return _load(issuer, call, "module", _checked_image(call, "fatCubin")), b""


@server_call("cuModuleLoadDataEx")
def load_data_ex(issuer: Issuer, call: Call) -> Answer:
    """As cuModuleLoadData; `options` and `optionValues` are the C arrays. Outputs: *JIT outputs*, with the real result inside."""
    options = JitOptions(call, "numOptions", "options", "optionValues")
    result = _load(issuer, call, "module", _checked_image(call, "image"), options.count, *options.args)
    return CUDA_SUCCESS, options.outputs(result)


@server_call("cuLibraryLoadData")
def library_load_data(issuer: Issuer, call: Call) -> Answer:
    """As cuModuleLoadDataEx. An image that the program promised to keep is kept here for as long as the library lives."""
    options = JitOptions(call, "numJitOptions", "jitOptions", "jitOptionsValues")
    count = call.word("numLibraryOptions") & 0xFFFF_FFFF
    keys, values = call.blob("libraryOptions"), call.blob("libraryOptionValues")
    if len(keys) < 4 * count or len(values) < 8 * count:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{count} library options in {len(keys)} and {len(values)} bytes")
    image = _checked_image(call, "code")
    kept = None
    if CU_LIBRARY_BINARY_IS_PRESERVED in struct.unpack_from(f"<{count}i", keys):
        kept = bytearray(image)
        image = memoryview(kept)
    addresses = (address_of(keys), address_of(values)) if count else (0, 0)
    result = _load(issuer, call, "library", image, *options.args, options.count, *addresses, count)
    if result == CUDA_SUCCESS and kept is not None:
        owner = issuer.executor.real(call.word("library"), HandleType.LIBRARY)
        Images.of(issuer).preserved[owner or 0] = kept
    return CUDA_SUCCESS, options.outputs(result)


@server_call("cuModuleUnload")
def unload_module(issuer: Issuer, call: Call) -> Answer:
    """Forgets what was kept of the image; the client forgets the names of the functions."""
    return _unload(issuer, call, "hmod")


@server_call("cuLibraryUnload")
def unload_library(issuer: Issuer, call: Call) -> Answer:
    """As cuModuleUnload."""
    return _unload(issuer, call, "library")


def _unload(issuer: Issuer, call: Call, name: str) -> Answer:
    real = call.handle(issuer.executor, name)
    answer = issuer.carry_out(call)
    if answer[0] == CUDA_SUCCESS:
        Images.of(issuer).forget(real)
    return answer


# --- functions ---------------------------------------------------------------------------------------------------------
def asked_layout(issuer: Issuer, symbol: str, function: int) -> images.Layout | None:
    """The (offset, size) pairs that the driver tells of `function`; None if it does not tell."""
    offset, size = ctypes.c_uint64(), ctypes.c_uint64()
    layout: images.Layout = []
    while len(layout) <= MAX_KERNEL_PARAMS_BYTES:
        result = issuer.driver.call(symbol, function, len(layout), ctypes.addressof(offset), ctypes.addressof(size))
        if result != CUDA_SUCCESS:
            # The index after the last is the end (CUDA_ERROR_INVALID_VALUE); anything else says that it does not tell.
            return layout if result == CUDA_ERROR_INVALID_VALUE else None
        layout.append((offset.value, size.value))
    return None


def encode_layout(layout: images.Layout | None) -> bytes:
    """*Function layout* of docs/internals.md."""
    if layout is None:
        return UNKNOWN_LAYOUT
    total = max((offset + size for offset, size in layout), default=0)
    return struct.pack("<II", len(layout), total) + b"".join(struct.pack("<II", *pair) for pair in layout)


def _function(issuer: Issuer, call: Call, out: str, symbol: str, kept: images.Layout | None) -> Answer:
    result, _ = issuer.carry_out(call)
    if result != CUDA_SUCCESS:
        return result, b""
    function = issuer.executor.real(call.word(out), HandleType.FUNCTION) or 0
    layout = asked_layout(issuer, symbol, function)
    return CUDA_SUCCESS, encode_layout(kept if layout is None else layout)


def _name(call: Call) -> str:
    return bytes(call.blob("name")).rstrip(b"\0").decode(errors="replace")


@server_call("cuModuleGetFunction")
def get_function(issuer: Issuer, call: Call) -> Answer:
    """Outputs: *function layout*."""
    kept = Images.of(issuer).layouts.get(call.handle(issuer.executor, "hmod"), {}).get(_name(call))
    return _function(issuer, call, "hfunc", "cuFuncGetParamInfo", kept)


@server_call("cuLibraryGetKernel")
def get_kernel(issuer: Issuer, call: Call) -> Answer:
    """Outputs: *function layout*."""
    library = call.handle(issuer.executor, "library")
    known = Images.of(issuer)
    answer = _function(issuer, call, "pKernel", "cuKernelGetParamInfo", known.layouts.get(library, {}).get(_name(call)))
    kernel = issuer.executor.real(call.word("pKernel"), HandleType.FUNCTION)
    if answer[0] == CUDA_SUCCESS and kernel and library in known.layouts:
        known.names[kernel] = (library, _name(call))
    return answer


@server_call("cuKernelGetFunction")
def get_kernel_function(issuer: Issuer, call: Call) -> Answer:
    """Outputs: *function layout*."""
    known = Images.of(issuer)
    library, name = known.names.get(call.handle(issuer.executor, "kernel"), (0, ""))
    return _function(issuer, call, "pFunc", "cuFuncGetParamInfo", known.layouts.get(library, {}).get(name))


@server_call("cuLibraryGetManaged")
def get_managed(issuer: Issuer, call: Call) -> Answer:
    """Outputs: u64 address, u64 bytes, then what the variable holds. There may be no context yet to copy it in: we are a host program."""
    issuer.executor.ensure_thread(call.thread)
    found = bytearray(16)
    library, name = call.handle(issuer.executor, "library"), call.blob("name")
    result = issuer.driver.call(call.symbol, address_of(found), address_of(found) + 8, library, address_of(name))
    if result != CUDA_SUCCESS:
        return result, b""
    address, size = struct.unpack("<QQ", found)
    if size > MAX_OUTPUT_BYTES - 32:
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, f"a managed variable of {size} bytes")
    return result, bytes(found) + ctypes.string_at(address, size).ljust(pad8(size), b"\0")
