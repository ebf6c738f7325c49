"""The private tables of cuGetExportTable (`lanGPU.driverapi.export_tables`), built in the program's memory, and their functions.

Those that runtime libraries call all the time are answered inside the shim (`lanGPU.client.shim_ir.questions`) and come here only where
that cannot know.
"""

import struct
from collections.abc import Callable

from lanGPU.client.calls.arrays import functions_of
from lanGPU.client.calls.contexts import create, name_primary
from lanGPU.client.calls.devices import need_device, need_pointer, write_i32, write_u64
from lanGPU.client.calls.effects import CallError, CallProgram, Connect, Part, ReadMemory, Request, Steps, Syscall, WriteMemory
from lanGPU.client.calls.images import read_image
from lanGPU.client.calls.modules import load_plain
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, Primary, i32, u32
from lanGPU.client.calls.strings import map_memory
from lanGPU.constants import (
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
)
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.export_tables import BY_ID, ITERATED, TABLES, TOOLS_BUFFER_BYTES, UNNAMED, CheckAddresses, CheckedDevice, driver_check

_ATTRIBUTE = ENUMS["CUdevice_attribute"]
_ROOM_BYTES = 4096
"""Where the tables and the tools' buffers lie: a few hundred words."""
_MAX_FUNCTIONS = 65536
_CHECK = "langpu_driver_check_answer"


def _place_tables(call: Call) -> Part[None]:
    """All tables in the program's memory, one behind the other, then the tools' buffers."""
    state = call.state
    room = yield from map_memory(_ROOM_BYTES)
    data = bytearray()
    found = {}
    for spec in TABLES:
        found[spec.id] = room + len(data)
        symbols = [spec.functions[slot].symbol if slot in spec.functions else UNNAMED for slot in range(spec.slots)]
        words = [state.symbols.address(symbol) or 0 for symbol in symbols]
        if spec.sized:
            words[0] = spec.bytes
        data += struct.pack(f"<{spec.slots}Q", *words)
    for slot, size in TOOLS_BUFFER_BYTES.items():
        found[_buffer_key(slot)] = room + len(data)
        data += bytes((size + 15) & -16)
    assert len(data) <= _ROOM_BYTES
    yield WriteMemory(room, data, now=True)
    state.private_tables = found


def _buffer_key(slot: int) -> bytes:
    return b"buffer %d" % slot


@client_call("cuGetExportTable", before_init=True)
def get_export_table(call: Call, out: int, table_id: int) -> Steps:
    """An unknown table is NOT_FOUND, which tells a library that the driver is older than it."""
    need_pointer(out, table_id)
    wanted = bytes((yield ReadMemory(table_id, 16)))
    if wanted not in BY_ID:
        yield write_u64(out, 0)
        return CUDA_ERROR_NOT_FOUND
    if not call.state.private_tables:
        yield from _place_tables(call)
    yield write_u64(out, call.state.private_tables[wanted])
    return CUDA_SUCCESS


@client_call(UNNAMED, before_init=True)
def unnamed(call: Call) -> Steps:
    """A slot that nobody knows the meaning of."""
    return CUDA_ERROR_NOT_SUPPORTED
    yield


# --- modules and contexts ----------------------------------------------------------------------------------------------
def _load(call: Call, module: int, image: int) -> Steps:
    need_pointer(module, image)
    return (yield from load_plain(call, module, "cuModuleLoadData", (yield from read_image(image))))


@client_call("langpu_cudart_load_module")
def load_module(call: Call, module: int, wrapper: int) -> Steps:
    """As cuModuleLoadFatBinary."""
    return (yield from _load(call, module, wrapper))


@client_call("langpu_cudart_load_module_from_wrapper")
def load_module_from_wrapper(call: Call, module: int, wrapper: int, unused1: int, unused2: int, flags: int) -> Steps:
    """As cuModuleLoadFatBinary."""
    return (yield from _load(call, module, wrapper))


@client_call("langpu_cudart_load_module_from_fatbin")
def load_module_from_fatbin(call: Call, fatbin: int, module: int, unused1: int, unused2: int, flags: int) -> Steps:
    """As cuModuleLoadFatBinary, without the wrapper."""
    return (yield from _load(call, module, fatbin))


@client_call("langpu_cudart_primary_context")
def primary_context(call: Call, out: int, device: int) -> Steps:
    """Its handle; it need not be active, and is not retained."""
    need_pointer(out)
    need_device(call, device)
    yield write_u64(out, name_primary(call, call.state.primaries.setdefault(i32(device), Primary())))
    return CUDA_SUCCESS


@client_call("langpu_cudart_notice", "langpu_cudart_load_compilers", "langpu_context_checks_fine", before_init=True)
def nothing(call: Call, *unused: int) -> Steps:
    """Nothing to do."""
    return CUDA_SUCCESS
    yield


@client_call("langpu_context_create_create")
def context_create(call: Call, out: int, flags: int, device: int) -> Steps:
    """As cuCtxCreate."""
    return (yield from create(call, out, flags, device))


@client_call("langpu_context_checks_check", before_init=True)
def context_check(call: Call, context: int, result: int, pointer: int) -> Steps:
    """Nothing is wrong with any context."""
    need_pointer(result, pointer)
    yield write_i32(result, 0)
    yield write_u64(pointer, 0)
    return CUDA_SUCCESS


# --- contexts, their streams, modules --------------------------------------------------------------------------------------
@client_call("langpu_contexts_key")
def context_key(call: Call, context: int, result: int) -> Steps:
    """A number of the context's own."""
    need_pointer(result)
    yield write_u64(result, call.state.contexts[_context(call, context)].id)
    return CUDA_SUCCESS


@client_call("langpu_contexts_stream")
def context_stream(call: Call, context: int, stream: int, result: int) -> Steps:
    """Some name of the stream that the next function takes: its handle serves, 1 for the default stream."""
    need_pointer(result)
    _context(call, context)
    yield write_u64(result, stream or 1)
    return CUDA_SUCCESS


@client_call("langpu_contexts_stream_id")
def context_stream_id(call: Call, context: int, stream: int, result: int) -> Steps:
    """A number of the stream's own."""
    need_pointer(result)
    _context(call, context)
    reply = yield Request("cuStreamGetId", (stream, 8), 0)
    if not reply.result:
        yield WriteMemory(result, reply.outputs[:8])
    return int(reply.result)


@client_call("langpu_modules_functions")
def module_functions(call: Call, context: int, module: int, callback: int, user: int) -> Steps:
    """Calls ``callback(user, function, module)`` for every function; 1 is its success."""
    need_pointer(callback)
    reply = yield Request("cuModuleGetFunctionCount", (4, module), 0)
    if reply.result:
        return 0
    count = int.from_bytes(reply.outputs[:4], "little")
    if not 0 < count <= _MAX_FUNCTIONS:
        return 0
    result, found = yield from functions_of(call, "cuModuleEnumerateFunctions", module, count)
    for function in found if not result else ():
        yield CallProgram(callback, (user, function, module))
    return ITERATED if not result else 0


# --- tools ---------------------------------------------------------------------------------------------------------------
def _tools_buffer(slot: int) -> Callable[..., Steps]:
    def steps(call: Call, buffer: int, size: int) -> Steps:
        need_pointer(buffer, size)
        yield write_u64(buffer, call.state.private_tables[_buffer_key(slot)])
        yield write_u64(size, TOOLS_BUFFER_BYTES[slot])
        return CUDA_SUCCESS

    return steps


client_call("langpu_tools_hooks_buffer", before_init=True)(_tools_buffer(2))
client_call("langpu_tools_hooks_small_buffer", before_init=True)(_tools_buffer(6))


# --- context-local storage -----------------------------------------------------------------------------------------------
def _context(call: Call, handle: int) -> int:
    found = handle or call.thread.current
    if found not in call.state.contexts:
        raise CallError(CUDA_ERROR_INVALID_CONTEXT)
    return found


@client_call("langpu_storage_put")
def storage_put(call: Call, context: int, key: int, value: int, destructor: int) -> Steps:
    """The destructor runs when the context ends."""
    place = _context(call, context), key
    call.state.storage[place] = value, destructor
    call.state.table.set_storage(*place, value)
    return CUDA_SUCCESS
    yield


@client_call("langpu_storage_delete")
def storage_delete(call: Call, context: int, key: int) -> Steps:
    """Without its destructor."""
    place = _context(call, context), key
    if call.state.storage.pop(place, None) is None:
        return CUDA_ERROR_INVALID_VALUE
    call.state.table.remove_storage(*place)
    return CUDA_SUCCESS
    yield


@client_call("langpu_storage_get")
def storage_get(call: Call, out: int, context: int, key: int) -> Steps:
    """A key without a value is INVALID_VALUE."""
    need_pointer(out)
    found = call.state.storage.get((_context(call, context), key))
    if found is None:
        return CUDA_ERROR_INVALID_VALUE
    yield write_u64(out, found[0])
    return CUDA_SUCCESS


# --- the check -----------------------------------------------------------------------------------------------------------
@client_call(_CHECK, before_init=True)
def check(call: Call, version: int, seconds: int, result: int) -> Steps:
    """See `driver_check`; it is made over addresses of the program, and its process id as it sees it."""
    need_pointer(result)
    state = call.state
    welcome = yield Connect()
    if not state.private_tables:
        return CUDA_ERROR_INVALID_VALUE
    process = yield Syscall("getpid", ())
    tables = {spec.name: state.private_tables[spec.id] for spec in TABLES}
    where = CheckAddresses(tables["cudart"], tables["driver_check"], state.symbols.address(_CHECK) or 0)
    numbers = [_ATTRIBUTE[f"CU_DEVICE_ATTRIBUTE_PCI_{word}_ID"] for word in ("DOMAIN", "BUS", "DEVICE")]
    devices = [CheckedDevice(device.uuid, *(device.attributes.get(number, 0) for number in numbers)) for device in welcome.devices]
    yield WriteMemory(result, driver_check(u32(version), seconds, welcome.driver_version, process, call.thread_pointer, where, devices))
    return CUDA_SUCCESS
