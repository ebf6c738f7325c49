"""Launches and occupancy with a CUlaunchConfig."""

import struct
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi import structs
from lanGPU.driverapi.model import HandleType
from lanGPU.server.call import Call, address_of
from lanGPU.server.calls.graphs import translate_struct
from lanGPU.server.issuer import Answer, Issuer, server_call

MAX_ATTRIBUTES: Final = 32
"""CUlaunchAttributeID has fewer than 20 values."""
_EVENT_ATTRIBUTES: Final = frozenset({7, 12})
"""Programmatic event and launch completion event: the value begins with a CUevent."""
_DEVICE_UPDATABLE: Final = 13
"""The driver writes a device-side node handle into the value."""


def build_config(issuer: Issuer, call: Call) -> bytearray:
    """The driver's config and attributes in one buffer: the record has both, handles virtual and `attrs` 0.

    Raises:
        DriverError: CUDA_ERROR_NOT_SUPPORTED for an attribute through which the driver writes; CUDA_ERROR_INVALID_VALUE for short bytes.
    """
    layout, attribute = structs.LAUNCH_CONFIG, structs.LAUNCH_ATTRIBUTE
    data = bytearray(call.blob("config"))
    count = layout.get(data, "numAttrs") if len(data) >= layout.size else MAX_ATTRIBUTES + 1
    if count > MAX_ATTRIBUTES or len(data) < layout.size + count * attribute.size:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(data)} bytes of launch configuration")
    translate_struct(issuer, call, layout, data)
    for i in range(count):
        at = layout.size + i * attribute.size
        kind = attribute.get(data, "id", at)
        if kind == _DEVICE_UPDATABLE:
            raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "device-updatable graph nodes")
        if kind in _EVENT_ATTRIBUTES:
            event = call.translate(issuer.executor, attribute.get(data, "value[0]", at), HandleType.EVENT)
            attribute.put(data, "value[0]", event, at)
    layout.put(data, "attrs", address_of(data) + layout.size if count else 0)
    return data


@server_call("cuLaunchKernelEx", "cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize")
def with_config(issuer: Issuer, call: Call) -> Answer:
    """`config`: *launch config* of docs/internals.md."""
    try:
        call.replace("config", build_config(issuer, call))
    except struct.error as exc:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, str(exc)) from exc
    return issuer.carry_out(call)
