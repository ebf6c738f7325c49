"""What the batched copies ask for, checked as the driver API's documentation says. Used by the client and by the emulated driver.

Source: driver API, cuMemcpyBatchAsync and cuMemcpyWithAttributesAsync.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from lanGPU.driverapi.structs import MEMCPY3D, MEMCPY3D_PEER, MEMCPY_ATTRIBUTES, Buffer

MAX_COPIES: Final = 1 << 20
"""Copies in a batch: a limit of ours on what a call can make us read."""
STREAM_LEGACY: Final = 1
_ORDERS: Final = frozenset({1, 2, 3})
"""CUmemcpySrcAccessOrder: stream, during the API call, any."""
_FLAGS: Final = 0x1
"""CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE"""


def words(data: Buffer) -> tuple[int, ...]:
    """An array of size_t or CUdeviceptr."""
    return struct.unpack(f"<{len(data) // 8}Q", data)


def valid_attributes(data: Buffer) -> bool:
    """Whether an array of CUmemcpyAttributes has a source access order everywhere and no unknown flag."""
    layout = MEMCPY_ATTRIBUTES
    return all(
        layout.get(data, "srcAccessOrder", at) in _ORDERS and not layout.get(data, "flags", at) & ~_FLAGS
        for at in range(0, len(data), layout.size)
    )


def valid_batch(pointers: Sequence[int], count: int, attributes: Buffer, indexes: Sequence[int], stream: int, *, per_thread: bool) -> bool:
    """Whether a batch may be carried out. `pointers`: destinations and sources; `indexes`: attrsIdxs.

    The first index is 0, each is greater than the one before and less than `count`; the stream is not the legacy one.
    """
    ascending = all(a < b for a, b in pairwise(indexes))
    indexed = bool(indexes) and indexes[0] == 0 and ascending and indexes[-1] < count
    named = stream != STREAM_LEGACY and bool(stream or per_thread)
    return named and indexed and all(pointers) and valid_attributes(attributes)


def without_peers(data: Buffer) -> tuple[bytes, tuple[int, int]]:
    """A CUDA_MEMCPY3D_PEER as CUDA_MEMCPY3D, and its contexts (source, destination): addresses say whose memory they are."""
    fields = MEMCPY3D_PEER.unpack(data)
    contexts = fields.pop("srcContext"), fields.pop("dstContext")
    return MEMCPY3D.pack(**fields), contexts
