"""Initialisation, versions, entry points."""

import os

from lanGPU.client.calls.devices import need_pointer, write_i32, write_u64
from lanGPU.client.calls.effects import Connect, ReadString, Steps
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, i32, u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS
from lanGPU.driverapi.exports import proc_address
from lanGPU.driverapi.signatures import HEADERS
from lanGPU.errors import LanGPUError

PROC_LEGACY_STREAM = 1
PROC_PER_THREAD_STREAM = 2
SYMBOL_FOUND = 0
SYMBOL_NOT_FOUND = 1
SYMBOL_VERSION_NOT_SUFFICIENT = 2
_ANY_VERSION = 1 << 30
LOADING_MODE_EAGER = 1
LOADING_MODE_LAZY = 2


@client_call("cuInit", before_init=True)
def init(call: Call, flags: int) -> Steps:
    """Connects. No server, no session, no device: NO_DEVICE, and why is on stderr."""
    if u32(flags):
        return CUDA_ERROR_INVALID_VALUE
    state = call.state
    if not state.initialised:
        welcome = yield Connect()
        if not welcome.devices:
            return CUDA_ERROR_NO_DEVICE
        state.initialised = True
        state.publish_devices()
    return CUDA_SUCCESS


@client_call("cuDriverGetVersion", before_init=True)
def driver_get_version(call: Call, out: int) -> Steps:
    """The server's. Without a server the newest that lanGPU knows: libcudart asks first, and cuInit is the place to fail."""
    need_pointer(out)
    try:
        welcome = yield Connect()
        version = welcome.driver_version
    except LanGPUError:
        version = max(HEADERS)
    yield write_i32(out, version)
    return CUDA_SUCCESS


@client_call("cuGetProcAddress", "cuGetProcAddress_v2", before_init=True)
def get_proc_address(call: Call, symbol: int, out: int, version: int, flags: int, status: int = 0) -> Steps:
    """The shim's own entry points, by cuGetProcAddress's rule for versions and streams."""
    if not symbol or not out or flags not in (0, PROC_LEGACY_STREAM, PROC_PER_THREAD_STREAM):
        return CUDA_ERROR_INVALID_VALUE
    name = (yield ReadString(symbol)).decode(errors="replace")
    found = proc_address(name, i32(version), flags == PROC_PER_THREAD_STREAM)
    address = call.state.symbols.address(found) if found is not None else None
    yield write_u64(out, address or 0)
    if status:
        if address:
            yield write_i32(status, SYMBOL_FOUND)
        else:
            known = proc_address(name, _ANY_VERSION) is not None
            yield write_i32(status, SYMBOL_VERSION_NOT_SUFFICIENT if known else SYMBOL_NOT_FOUND)
    # With a status, a symbol that is not there is no error (cuda.h).
    return CUDA_SUCCESS if address or call.row.name == "cuGetProcAddress_v2" else CUDA_ERROR_NOT_FOUND


@client_call("cuModuleGetLoadingMode")
def module_get_loading_mode(call: Call, out: int) -> Steps:
    """LAZY, as drivers say today, unless the program's environment asks for EAGER: what is not used should not cross the network."""
    need_pointer(out)
    eager = os.environ.get("CUDA_MODULE_LOADING", "").strip().upper() == "EAGER"
    yield write_i32(out, LOADING_MODE_EAGER if eager else LOADING_MODE_LAZY)
    return CUDA_SUCCESS
