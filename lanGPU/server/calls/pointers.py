"""Pointer attributes, some of which are handles."""

from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.model import HandleType
from lanGPU.server.call import MAX_OUTPUT_BYTES, Call, address_of, name_of
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import pad8

_ATTRIBUTE: Final = ENUMS["CUpointer_attribute"]
_HANDLES: Final = {
    _ATTRIBUTE["CU_POINTER_ATTRIBUTE_CONTEXT"]: HandleType.CONTEXT,
    _ATTRIBUTE["CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE"]: HandleType.MEM_POOL,
}
_MAX_VALUE_BYTES: Final = 64
"""The largest attribute (P2P tokens) has 16 bytes; the driver writes as many as it likes, so room is given."""


@server_call("cuPointerGetAttribute")
def get_attribute(issuer: Issuer, call: Call) -> Answer:
    """`data`: the size of the attribute's value. Outputs: the value; contexts and pools by name."""
    issuer.executor.ensure_thread(call.thread)
    capacity = call.word("data")
    if capacity > MAX_OUTPUT_BYTES:  # NULL too
        raise call.failed(CUDA_ERROR_INVALID_VALUE)
    data = bytearray(max(_MAX_VALUE_BYTES, pad8(capacity)))
    attribute = call.word("attribute") & 0xFFFF_FFFF
    result = issuer.driver.call(call.symbol, address_of(data), attribute, call.word("ptr"))
    if result == CUDA_SUCCESS and attribute in _HANDLES:
        real = int.from_bytes(data[:8], "little")
        data[:8] = name_of(issuer.executor, real, _HANDLES[attribute]).to_bytes(8, "little")
    return result, bytes(data[:capacity]).ljust(pad8(capacity), b"\0")
