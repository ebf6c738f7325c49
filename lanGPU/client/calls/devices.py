"""Questions about devices, answered from the server's WELCOME."""

import re
import struct

from lanGPU.client.calls.effects import CallError, ReadString, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, i32, u32
from lanGPU.constants import CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.wire.handshake import DeviceInfo

COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

_PROPERTIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
"""The fields of struct CUdevprop in order, as CUdevice_attribute values (cuda.h)."""
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?")


def need_device(call: Call, word: int) -> DeviceInfo:
    """The device of a CUdevice argument. Raises CallError INVALID_DEVICE."""
    device = call.state.device(i32(word))
    if device is None:
        raise CallError(CUDA_ERROR_INVALID_DEVICE, f"there is no device {i32(word)}")
    return device


def need_pointer(*pointers: int) -> None:
    """Raises CallError INVALID_VALUE where one is NULL."""
    if not all(pointers):
        raise CallError(CUDA_ERROR_INVALID_VALUE, "a pointer is NULL")


def write_i32(address: int, value: int) -> WriteMemory:
    """A C int (or its unsigned equal)."""
    return WriteMemory(address, (value & 0xFFFF_FFFF).to_bytes(4, "little"))


def write_u64(address: int, value: int) -> WriteMemory:
    """A size_t, pointer or handle."""
    return WriteMemory(address, (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little"))


@client_call("cuDeviceGet")
def device_get(call: Call, out: int, ordinal: int) -> Steps:
    """A CUdevice is its ordinal."""
    need_pointer(out)
    need_device(call, ordinal)
    yield write_i32(out, i32(ordinal))
    return CUDA_SUCCESS


@client_call("cuDeviceGetCount")
def device_get_count(call: Call, out: int) -> Steps:
    """How many devices the server offers."""
    need_pointer(out)
    yield write_i32(out, len(call.state.devices))
    return CUDA_SUCCESS


def _text(out: int, length: int, text: str) -> Steps:
    """cuDeviceGetName's way: at most `length` bytes, always with a NUL."""
    room = i32(length)
    if not out or room <= 0:
        return CUDA_ERROR_INVALID_VALUE
    yield WriteMemory(out, text.encode()[: room - 1] + b"\0")
    return CUDA_SUCCESS


@client_call("cuDeviceGetName")
def device_get_name(call: Call, out: int, length: int, dev: int) -> Steps:
    """Cut to the buffer's length."""
    return (yield from _text(out, length, need_device(call, dev).name))


@client_call("cuDeviceGetPCIBusId")
def device_get_pci_bus_id(call: Call, out: int, length: int, dev: int) -> Steps:
    """The address in the server's PCI tree."""
    return (yield from _text(out, length, need_device(call, dev).pci_bus_id))


@client_call("cuDeviceGetByPCIBusId")
def device_get_by_pci_bus_id(call: Call, out: int, text: int) -> Steps:
    """Accepts domain:bus:device.function, without function, and without domain."""
    need_pointer(out, text)
    wanted = parse_pci((yield ReadString(text, 64)).decode(errors="replace"))
    if wanted is None:
        return CUDA_ERROR_INVALID_VALUE
    for ordinal, device in enumerate(call.state.devices):
        if parse_pci(device.pci_bus_id) == wanted:
            yield write_i32(out, ordinal)
            return CUDA_SUCCESS
    return CUDA_ERROR_INVALID_DEVICE


def parse_pci(text: str) -> tuple[int, int, int, int] | None:
    match = _PCI.fullmatch(text)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return int(domain or "0", 16), int(bus, 16), int(device, 16), int(function or "0", 16)


@client_call("cuDeviceGetUuid_v2")
def device_get_uuid(call: Call, out: int, dev: int) -> Steps:
    """16 bytes."""
    need_pointer(out)
    yield WriteMemory(out, need_device(call, dev).uuid)
    return CUDA_SUCCESS


@client_call("cuDeviceGetLuid")
def device_get_luid(call: Call, luid: int, node_mask: int, dev: int) -> Steps:
    """Only servers on Windows have LUIDs; cuda.h allows NOT_SUPPORTED elsewhere."""
    need_pointer(luid, node_mask)
    device = need_device(call, dev)
    if not device.luid:
        return CUDA_ERROR_NOT_SUPPORTED
    yield WriteMemory(luid, device.luid)
    yield write_i32(node_mask, 1)
    return CUDA_SUCCESS


@client_call("cuDeviceTotalMem_v2")
def device_total_mem(call: Call, out: int, dev: int) -> Steps:
    """Bytes, size_t."""
    need_pointer(out)
    yield write_u64(out, need_device(call, dev).total_bytes)
    return CUDA_SUCCESS


@client_call("cuDeviceGetAttribute")
def device_get_attribute(call: Call, out: int, attribute: int, dev: int) -> Steps:
    """What the server's driver did not know is INVALID_VALUE."""
    need_pointer(out)
    value = need_device(call, dev).attributes.get(u32(attribute))
    if value is None:
        return CUDA_ERROR_INVALID_VALUE
    yield write_i32(out, value)
    return CUDA_SUCCESS


@client_call("cuDeviceComputeCapability")
def device_compute_capability(call: Call, major: int, minor: int, dev: int) -> Steps:
    """Deprecated form of two attributes."""
    need_pointer(major, minor)
    attributes = need_device(call, dev).attributes
    yield write_i32(major, attributes.get(COMPUTE_CAPABILITY_MAJOR, 0))
    yield write_i32(minor, attributes.get(COMPUTE_CAPABILITY_MINOR, 0))
    return CUDA_SUCCESS


@client_call("cuDeviceGetProperties")
def device_get_properties(call: Call, out: int, dev: int) -> Steps:
    """Deprecated struct CUdevprop of 14 ints."""
    need_pointer(out)
    attributes = need_device(call, dev).attributes
    yield WriteMemory(out, struct.pack("<14i", *(attributes.get(a, 0) for a in _PROPERTIES)))
    return CUDA_SUCCESS
