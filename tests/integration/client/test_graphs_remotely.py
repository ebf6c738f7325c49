"""What a graph of a remote device cannot have: copies from and to the program's memory at each launch. They are refused, by name."""

import os
import subprocess
import sys

import pytest

from tests.helpers.device import ROOT
from tests.helpers.server import ServerProcess

pytestmark = pytest.mark.slow

PROGRAM = """
import ctypes
from cuda.bindings import driver as cuda

def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) > 1 else None

ok(cuda.cuInit(0))
context = ok(cuda.cuDevicePrimaryCtxRetain(0))
ok(cuda.cuCtxSetCurrent(context))
stream, other = ok(cuda.cuStreamCreate(1)), ok(cuda.cuStreamCreate(1))
size = 1 << 21
pointer = ok(cuda.cuMemAlloc(size))
pinned = int(ok(cuda.cuMemHostAlloc(size, 0)))
pageable = (ctypes.c_char * size)()
copies = []
for length in (16, size):  # small ones go another way than large ones
    for host in (pinned, ctypes.addressof(pageable)):
        copies += [
            lambda n=length, h=host: cuda.cuMemcpyHtoDAsync(pointer, h, n, stream),
            lambda n=length, h=host: cuda.cuMemcpyDtoHAsync(h, pointer, n, stream),
        ]
copies += [
    lambda: cuda.cuMemcpyAsync(int(pointer), pinned, 64, stream),
    lambda: cuda.cuMemcpyAsync(pinned, int(pointer), 64, stream),
]
flat = cuda.CUDA_MEMCPY2D()
flat.srcMemoryType, flat.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
flat.srcHost, flat.dstDevice, flat.srcPitch, flat.dstPitch, flat.WidthInBytes, flat.Height = pinned, pointer, 64, 64, 32, 4
copies.append(lambda: cuda.cuMemcpy2DAsync(flat, stream))
for copy in copies:
    ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    ok(cuda.cuMemsetD8Async(pointer, 9, 16, stream))
    result = int(copy()[0])
    assert result == cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED, result
    word = ctypes.c_uint32(77)
    ok(cuda.cuMemcpyHtoDAsync(int(pointer) + 32, ctypes.addressof(word), 4, other))  # this stream does not capture
    graph = ok(cuda.cuStreamEndCapture(stream))
    assert ok(cuda.cuGraphGetNodes(graph, 4)) is not None
    back = ctypes.c_uint32()
    ok(cuda.cuMemcpyDtoH(ctypes.addressof(back), int(pointer) + 32, 4))
    assert back.value == 77
node = cuda.CUDA_MEMCPY3D()
node.srcMemoryType, node.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
node.srcHost, node.dstDevice, node.WidthInBytes, node.Height, node.Depth = pinned, pointer, 16, 1, 1
graph = ok(cuda.cuGraphCreate(0))
assert int(cuda.cuGraphAddMemcpyNode(graph, [], 0, node, context)[0]) == cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED
ok(cuda.cuCtxSynchronize())
print("ok")
"""


@pytest.mark.timeout(120)
def test_copies_of_host_memory_are_refused_in_graphs() -> None:
    with ServerProcess() as server:
        langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
        command = [langpu, "run", "--host", f"127.0.0.1:{server.port}", "--", sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr
    assert "inside a stream capture are not supported" in done.stderr
