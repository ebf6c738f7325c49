"""Copies in batches, copies with attributes, 3D copies between contexts."""

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import Cuda


def attributes(cuda: Cuda, order: int = 1) -> Any:
    """CUmemcpyAttributes with a source access order; 1: that of the stream."""
    made = cuda.CUmemcpyAttributes()
    made.srcAccessOrder = cuda.CUmemcpySrcAccessOrder(order)
    return made


@pytest.fixture
def stream(cuda: Cuda, context: Any) -> Any:
    return cuda.cuStreamCreate(0)


def test_a_batch_copies_each_of_its_ranges(cuda: Cuda, stream: Any) -> None:
    data = np.arange(40_000, dtype=np.uint32)
    there, back = cuda.put(np.zeros_like(data)), np.zeros_like(data)
    half, start = data.nbytes // 2, data.ctypes.data
    targets = [cuda.CUdeviceptr(int(there) + half), there]
    cuda.cuMemcpyBatchAsync(
        targets, [cuda.CUdeviceptr(start), cuda.CUdeviceptr(start + half)], [half, half], 2, [attributes(cuda)], [0], 1, stream
    )
    cuda.cuMemcpyBatchAsync([cuda.CUdeviceptr(back.ctypes.data)], [there], [data.nbytes], 1, [attributes(cuda)], [0], 1, stream)
    cuda.cuStreamSynchronize(stream)
    assert (back == np.roll(data, data.size // 2)).all()


@pytest.mark.parametrize(
    ("count", "order", "indexes"),
    [(0, 1, [0]), (1, 0, [0]), (1, 1, [1]), (2, 1, [0, 0]), (2, 1, [0, 2]), (1, 1, [])],
    ids=["empty", "no order", "first is not 0", "not ascending", "past the end", "no attributes"],
)
def test_a_batch_that_does_not_fit_together(cuda: Cuda, stream: Any, count: int, order: int, indexes: list[int]) -> None:
    data = np.full(4, 7, np.uint32)
    there = cuda.put(np.zeros(4, np.uint32))
    lists = [[there] * count, [cuda.CUdeviceptr(data.ctypes.data)] * count, [data.nbytes] * count]
    settings = [attributes(cuda, order) for _ in indexes]
    assert cuda.fails("cuMemcpyBatchAsync", *lists, count, settings, indexes, len(indexes), stream) == 1  # INVALID_VALUE
    cuda.cuStreamSynchronize(stream)
    assert not cuda.get(there, 4).any()


def test_a_batch_needs_a_stream_of_its_own(cuda: Cuda, context: Any) -> None:
    there = cuda.put(np.zeros(4, np.uint32))
    assert cuda.fails("cuMemcpyBatchAsync", [there], [there], [8], 1, [attributes(cuda)], [0], 1, 0) == 1


def test_3d_copies_between_contexts(cuda: Cuda, context: Any) -> None:
    data = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    source, target = cuda.put(data), cuda.put(np.zeros_like(data))
    copy = cuda.CUDA_MEMCPY3D_PEER()
    for side, address in (("src", source), ("dst", target)):
        setattr(copy, f"{side}MemoryType", cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        setattr(copy, f"{side}Device", address)
        setattr(copy, f"{side}Context", context)
        setattr(copy, f"{side}Pitch", 6)
        setattr(copy, f"{side}Height", 5)
    copy.WidthInBytes, copy.Height, copy.Depth = 3, 2, 2
    copy.srcXInBytes, copy.srcY, copy.srcZ = 1, 2, 1
    cuda.cuMemcpy3DPeer(copy)
    wanted = np.zeros_like(data)
    wanted[:2, :2, :3] = data[1:3, 2:4, 1:4]
    assert (cuda.get(target, data.size, np.uint8).reshape(data.shape) == wanted).all()
    stream = cuda.cuStreamCreate(0)
    copy.dstXInBytes, copy.dstZ = 3, 2
    cuda.cuMemcpy3DPeerAsync(copy, stream)
    cuda.cuStreamSynchronize(stream)
    wanted[2:4, :2, 3:] = data[1:3, 2:4, 1:4]
    assert (cuda.get(target, data.size, np.uint8).reshape(data.shape) == wanted).all()
    copy.srcContext = 12345
    assert cuda.fails("cuMemcpy3DPeer", copy) == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT


def test_a_copy_with_attributes(cuda: Cuda, stream: Any) -> None:
    if not hasattr(cuda.driver, "cuMemcpyWithAttributesAsync"):
        pytest.skip("cuda.bindings older than CUDA 13.2")
    data = np.arange(100, dtype=np.uint32)
    there = cuda.put(np.zeros_like(data))
    cuda.cuMemcpyWithAttributesAsync(there, data.ctypes.data, data.nbytes, attributes(cuda, 2), stream)
    cuda.cuStreamSynchronize(stream)
    assert (cuda.get(there, 100) == data).all()
    ctypes.memset(data.ctypes.data, 0, data.nbytes)
    assert cuda.fails("cuMemcpyWithAttributesAsync", there, data.ctypes.data, data.nbytes, attributes(cuda, 0), stream) == 1
