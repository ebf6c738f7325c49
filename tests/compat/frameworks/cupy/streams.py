"""CuPy: streams, events, asynchronous copies, pinned memory and a captured graph."""

import cupy as cp
import cupyx
import numpy as np

streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
host = np.random.default_rng(5).standard_normal((3, 10_000), dtype=np.float32)
results = []
for stream, row in zip(streams, host, strict=True):
    with stream:
        pinned = cupyx.empty_pinned(row.shape, np.float32)
        pinned[...] = row
        on_device = cp.empty(row.shape, np.float32)
        on_device.set(pinned)
        results.append((pinned, on_device * 3))
event = cp.cuda.Event()
event.record(streams[0])
streams[1].wait_event(event)
for stream, row, (_, result) in zip(streams, host, results, strict=True):
    stream.synchronize()
    np.testing.assert_array_equal(cp.asnumpy(result), row * 3)
assert event.done

start, stop = cp.cuda.Event(), cp.cuda.Event()
start.record()
total = cp.asarray(host).sum()
stop.record()
stop.synchronize()
assert cp.cuda.get_elapsed_time(start, stop) >= 0

capturing = cp.cuda.Stream(non_blocking=True)
x = cp.zeros(1000, dtype=cp.float32)
one = cp.ones(1000, dtype=cp.float32)
cp.add(x, one, out=x)  # compiles what the capture launches
x.fill(0)
cp.cuda.Device().synchronize()
with capturing:
    capturing.begin_capture()
    cp.add(x, one, out=x)
    graph = capturing.end_capture()
for _ in range(5):
    graph.launch(capturing)
capturing.synchronize()
np.testing.assert_array_equal(cp.asnumpy(x), np.full(1000, 5))
print("ok")
