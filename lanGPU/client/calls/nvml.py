"""NVML for the served devices: what WELCOME says of them is answered here, what the table has beside it by the server's NVML.

Asks for a connection, but never for cuInit, a context or anything else of the device.
"""

import uuid
from collections.abc import Callable, Sequence
from functools import wraps

from lanGPU.client.calls.devices import COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR, parse_pci, write_i32, write_u64
from lanGPU.client.calls.effects import (
    Connect,
    FileError,
    LogLine,
    Part,
    ReadFile,
    ReadMemory,
    ReadString,
    Request,
    Steps,
    WriteMemory,
)
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, u32
from lanGPU.errors import ConnectionLostError, LanGPUError
from lanGPU.nvml import results
from lanGPU.nvml.functions import FUNCTIONS, MAX_ENTRIES, MAX_TEXT_BYTES, Kind, Param, Value, given_uuid, output_sizes
from lanGPU.nvml.question import RESULT_BYTES, decode_answer, encode_question
from lanGPU.nvml.rows import PARAMS, nvml_rows
from lanGPU.wire.handshake import DeviceInfo

COMPUTE_MODE = 20
"""CU_DEVICE_ATTRIBUTE_COMPUTE_MODE; its values are those of nvmlComputeMode_t."""
MAX_NAME_BYTES = 96
MAX_UUID_BYTES = 80
MAX_SERIAL_BYTES = 30
"""NVML's own buffer sizes (NVML_DEVICE_NAME_V2_BUFFER_SIZE and its like)."""
QUESTION = "langpuNvml"
"""The row that carries questions."""
_HANDLE = 0x4C47_0001
"""nvmlDevice_t of device 0; the next ones follow. Small integers and addresses are no handles."""


class NvmlError(LanGPUError):
    """A call ends with this nvmlReturn_t."""

    exit_code = 100

    def __init__(self, result: int) -> None:
        super().__init__(results.text(result))
        self.result = result


def _nvml(*names: str, ready: bool = True) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """Register for NVML rows: no CUresult ever becomes their answer; with `ready` only after nvmlInit."""

    def register(function: Callable[..., Steps]) -> Callable[..., Steps]:
        @wraps(function)
        def guarded(call: Call, *args: int) -> Steps:
            if ready and not call.state.nvml_users:
                return results.ERROR_UNINITIALIZED
            try:
                return (yield from function(call, *args))
            except NvmlError as error:
                return error.result
            except ConnectionLostError:
                return results.ERROR_GPU_IS_LOST
            except LanGPUError as error:
                yield LogLine("debug", f"{call.row.name}: {error}")
                return results.ERROR_UNKNOWN

        return client_call(*names, before_init=True)(guarded)

    return register


def _need(*pointers: int) -> None:
    if not all(pointers):
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)


def _devices(call: Call) -> tuple[DeviceInfo, ...]:
    return call.state.welcome.devices if call.state.welcome is not None else ()


def _device(call: Call, handle: int) -> DeviceInfo:
    devices = _devices(call)
    if not _HANDLE <= handle < _HANDLE + len(devices):
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    return devices[handle - _HANDLE]


def _text(out: int, length: int, text: str, longest: int) -> Part[int]:
    """INSUFFICIENT_SIZE where text and NUL do not fit, as NVML says."""
    _need(out)
    data = text.encode()[: longest - 1] + b"\0"
    if u32(length) < len(data):
        return results.ERROR_INSUFFICIENT_SIZE
    yield WriteMemory(out, data)
    return results.SUCCESS


def _uuid_text(device: DeviceInfo) -> str:
    return f"GPU-{uuid.UUID(bytes=device.uuid)}"


@_nvml("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", ready=False)
def init(call: Call, *flags: int) -> Steps:
    """Connects, and counts; without a server DRIVER_NOT_LOADED, and why is on stderr."""
    try:
        yield Connect()
    except LanGPUError:
        return results.ERROR_DRIVER_NOT_LOADED
    call.state.nvml_users += 1
    return results.SUCCESS


@_nvml("nvmlShutdown")
def shutdown(call: Call) -> Steps:
    """Undoes one nvmlInit."""
    yield from ()
    call.state.nvml_users -= 1
    return results.SUCCESS


@_nvml("nvmlErrorString", ready=False)
def error_string(call: Call, result: int) -> Steps:
    """Never comes here: the shim answers it (`lanGPU.client.shim_ir.dispatch`)."""
    yield from ()
    return 0


@_nvml("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", ready=False)
def system_cuda_driver_version(call: Call, out: int) -> Steps:
    """The server's."""
    _need(out)
    welcome = yield Connect()
    yield write_i32(out, welcome.driver_version)
    return results.SUCCESS


@_nvml("nvmlDeviceGetCount", "nvmlDeviceGetCount_v2")
def device_count(call: Call, out: int) -> Steps:
    """The served devices, whatever CUDA_VISIBLE_DEVICES says."""
    _need(out)
    yield write_i32(out, len(_devices(call)))
    return results.SUCCESS


@_nvml("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2")
def handle_by_index(call: Call, index: int, out: int) -> Steps:
    """Unknown index: INVALID_ARGUMENT."""
    _need(out)
    if u32(index) >= len(_devices(call)):
        return results.ERROR_INVALID_ARGUMENT
    yield write_u64(out, _HANDLE + u32(index))
    return results.SUCCESS


@_nvml("nvmlDeviceGetHandleByUUID")
def handle_by_uuid(call: Call, text: int, out: int) -> Steps:
    """Unknown: NOT_FOUND."""
    _need(text, out)
    return (yield from _by_uuid(call, (yield ReadString(text, MAX_UUID_BYTES)).decode(errors="replace"), out))


@_nvml("nvmlDeviceGetHandleByUUIDV")
def handle_by_given_uuid(call: Call, given: int, out: int) -> Steps:
    """As text or as bytes; another type: INVALID_ARGUMENT."""
    _need(given, out)
    (param,) = (param for param in FUNCTIONS[call.row.name].params if param.kind is Kind.STRUCT)
    text = given_uuid((yield from _struct(param, given)))
    return (yield from _by_uuid(call, text, out)) if text is not None else results.ERROR_INVALID_ARGUMENT


def _by_uuid(call: Call, text: str, out: int) -> Part[int]:
    wanted = text.lower()
    for number, device in enumerate(_devices(call)):
        if _uuid_text(device).lower() == wanted:
            yield write_u64(out, _HANDLE + number)
            return results.SUCCESS
    return results.ERROR_NOT_FOUND


@_nvml("nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2")
def handle_by_pci(call: Call, text: int, out: int) -> Steps:
    """Unknown: NOT_FOUND; no PCI address: INVALID_ARGUMENT."""
    _need(text, out)
    wanted = parse_pci((yield ReadString(text, 64)).decode(errors="replace"))
    if wanted is None:
        return results.ERROR_INVALID_ARGUMENT
    for number, device in enumerate(_devices(call)):
        if parse_pci(device.pci_bus_id) == wanted:
            yield write_u64(out, _HANDLE + number)
            return results.SUCCESS
    return results.ERROR_NOT_FOUND


@_nvml("nvmlDeviceGetHandleBySerial")
def handle_by_serial(call: Call, text: int, out: int) -> Steps:
    """Unknown, also where no device tells its serial number: NOT_FOUND."""
    _need(text, out)
    wanted = bytes((yield ReadString(text, MAX_SERIAL_BYTES)))
    for number in range(len(_devices(call))):
        result, outputs = yield from _ask("nvmlDeviceGetSerial", (number, None, MAX_SERIAL_BYTES))
        if result == results.SUCCESS and outputs[1].split(b"\0")[0] == wanted:
            yield write_u64(out, _HANDLE + number)
            return results.SUCCESS
    return results.ERROR_NOT_FOUND


@_nvml("nvmlDeviceGetIndex")
def device_index(call: Call, handle: int, out: int) -> Steps:
    """Its place among the served devices."""
    _need(out)
    _device(call, handle)
    yield write_i32(out, handle - _HANDLE)
    return results.SUCCESS


@_nvml("nvmlDeviceGetName")
def device_name(call: Call, handle: int, out: int, length: int) -> Steps:
    """As the server's driver says."""
    return (yield from _text(out, length, _device(call, handle).name, MAX_NAME_BYTES))


@_nvml("nvmlDeviceGetUUID")
def device_uuid(call: Call, handle: int, out: int, length: int) -> Steps:
    """GPU- and the driver's UUID."""
    return (yield from _text(out, length, _uuid_text(_device(call, handle)), MAX_UUID_BYTES))


def _attribute(device: DeviceInfo, attribute: int) -> int:
    value = device.attributes.get(attribute)
    if value is None:
        raise NvmlError(results.ERROR_NOT_SUPPORTED)
    return value


@_nvml("nvmlDeviceGetCudaComputeCapability")
def compute_capability(call: Call, handle: int, major: int, minor: int) -> Steps:
    """As cuDeviceGetAttribute says."""
    device = _device(call, handle)
    _need(major, minor)
    yield write_i32(major, _attribute(device, COMPUTE_CAPABILITY_MAJOR))
    yield write_i32(minor, _attribute(device, COMPUTE_CAPABILITY_MINOR))
    return results.SUCCESS


@_nvml("nvmlDeviceGetComputeMode")
def compute_mode(call: Call, handle: int, out: int) -> Steps:
    """As cuDeviceGetAttribute says."""
    device = _device(call, handle)
    _need(out)
    yield write_i32(out, _attribute(device, COMPUTE_MODE))
    return results.SUCCESS


@_nvml("nvmlSystemGetProcessName")
def process_name(call: Call, pid: int, out: int, length: int) -> Steps:
    """Of a process of this machine: the ids that NVML tells here are the program's own. Cut to the buffer, as NVML does."""
    _need(out)
    if not u32(length):
        return results.ERROR_INVALID_ARGUMENT
    try:
        command = bytes((yield ReadFile(b"/proc/%d/cmdline" % u32(pid))))
    except FileError:
        return results.ERROR_NOT_FOUND
    yield WriteMemory(out, command.split(b"\0")[0][: min(u32(length), MAX_TEXT_BYTES) - 1] + b"\0")
    return results.SUCCESS


def _ask(name: str, values: Sequence[Value]) -> Part[tuple[int, list[bytes]]]:
    """nvmlReturn_t and outputs of the server's NVML. What else goes wrong is raised."""
    yield Connect()
    question = encode_question(name, values)
    sizes = output_sizes(FUNCTIONS[name], values)
    room = RESULT_BYTES + sum(sizes)
    reply = yield Request(QUESTION, (question, len(question), room, room), flags=0)
    if reply.result:
        return results.ERROR_UNKNOWN, [b""] * len(sizes)
    return decode_answer(bytes(reply.outputs), sizes)


def _struct(param: Param, address: int) -> Part[bytes]:
    """The struct at `address`, if its version is known."""
    size = int.from_bytes((yield ReadMemory(address, 4)), "little") & 0xFF_FFFF
    if size not in param.sizes:
        raise NvmlError(results.ERROR_ARGUMENT_VERSION_MISMATCH)
    return bytes((yield ReadMemory(address, size)))


def _value(call: Call, param: Param, word: int, before: Value) -> Part[Value]:
    """What the question says of one argument; `before`: the value of the argument before it."""
    kind = param.kind
    if kind is Kind.DEVICE:
        _device(call, word)
        return word - _HANDLE
    if kind in (Kind.U32, Kind.LENGTH):
        return u32(word)
    if kind in (Kind.ARRAY, Kind.PROCESSES):
        if before and not word:
            raise NvmlError(results.ERROR_INVALID_ARGUMENT)
        return bool(word)
    _need(word)
    if kind is Kind.COUNT:
        count = int.from_bytes((yield ReadMemory(word, 4)), "little")
        return min(count, MAX_ENTRIES)
    if kind is Kind.STRUCT:
        return (yield from _struct(param, word))
    if kind is Kind.FIELDS:
        count = before if isinstance(before, int) else 0
        if not 0 < count <= MAX_ENTRIES:
            raise NvmlError(results.ERROR_INVALID_ARGUMENT)
        return bytes((yield ReadMemory(word, count * param.size)))
    return None


def _renamed(entries: bytes, size: int, process_id: int) -> bytes:
    """The server's process that works for the program is the program."""
    pid = process_id.to_bytes(4, "little")
    return b"".join(pid + entries[at + 4 : at + size] for at in range(0, len(entries), size))


@_nvml(*(name for name, function in FUNCTIONS.items() if not function.local))
def ask_server(call: Call, *words: int) -> Steps:
    """The server's NVML answers. Nothing is written to the program unless the call succeeds, but the counts that were too small."""
    name = call.row.name
    params = FUNCTIONS[name].params
    values: list[Value] = []
    for param, word in zip(params, words, strict=True):
        values.append((yield from _value(call, param, word, values[-1] if values else None)))
    result, outputs = yield from _ask(name, values)
    if result not in (results.SUCCESS, results.ERROR_INSUFFICIENT_SIZE):
        return result
    count = next((int.from_bytes(data, "little") for param, data in zip(params, outputs, strict=True) if param.kind is Kind.COUNT), 0)
    for param, word, data in zip(params, words, outputs, strict=True):
        if param.kind is Kind.COUNT:
            yield WriteMemory(word, data)
        elif result == results.SUCCESS and data and word:
            if param.kind is Kind.TEXT:
                data = data.split(b"\0")[0][: len(data) - 1] + b"\0"
            elif param.kind in (Kind.ARRAY, Kind.PROCESSES):
                data = data[: count * param.size]
            if param.kind is Kind.PROCESSES:
                data = _renamed(data, param.size, call.state.process_id)
            if data:
                yield WriteMemory(word, data)
    return result


@_nvml(*(name for name in nvml_rows() if name not in PARAMS), ready=False)
def unsupported(call: Call) -> Steps:
    """Everything else, named once."""
    name = call.row.name
    yield LogLine("warning", f"{name} is not supported", once=f"unsupported {name}")
    return results.ERROR_NOT_SUPPORTED
