"""Uses every CUDA runtime named on the command line, in turns, in one process: one device memory, one primary context."""

import ctypes
import sys
import threading

ROUNDS = 5
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def check(result: int) -> None:
    if result:
        raise SystemExit(f"cudaError {result}")


def use(runtime: ctypes.CDLL, round_: int) -> None:
    """Memory, copies, a stream and an event of this runtime."""
    size = ctypes.c_size_t(64)
    memory, stream, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(runtime.cudaMalloc(ctypes.byref(memory), size))
    check(runtime.cudaStreamCreate(ctypes.byref(stream)))
    check(runtime.cudaEventCreate(ctypes.byref(event)))
    data = bytes((i * 7 + round_) % 256 for i in range(64))
    back = ctypes.create_string_buffer(64)
    check(runtime.cudaMemcpy(memory, data, size, HOST_TO_DEVICE))
    check(runtime.cudaEventRecord(event, stream))
    check(runtime.cudaMemcpyAsync(back, memory, size, DEVICE_TO_HOST, stream))
    check(runtime.cudaStreamSynchronize(stream))
    check(runtime.cudaEventQuery(event))
    if back.raw != data:
        raise SystemExit("other bytes came back")
    check(runtime.cudaEventDestroy(event))
    check(runtime.cudaStreamDestroy(stream))
    check(runtime.cudaFree(memory))


def main() -> None:
    """Turns, also from other threads; then one runtime's memory in all of them."""
    runtimes = [ctypes.CDLL(path) for path in sys.argv[1:]]
    size = ctypes.c_size_t(64)
    for round_ in range(ROUNDS):
        for runtime in runtimes:
            use(runtime, round_)
            thread = threading.Thread(target=use, args=(runtime, round_ + 100))
            thread.start()
            thread.join()
    shared = ctypes.c_void_p()
    check(runtimes[0].cudaMalloc(ctypes.byref(shared), size))
    for value, runtime in enumerate(runtimes, 1):
        back = ctypes.create_string_buffer(64)
        check(runtime.cudaMemset(shared, value, size))
        check(runtimes[0].cudaMemcpy(back, shared, size, DEVICE_TO_HOST))
        if back.raw != bytes([value]) * 64:
            raise SystemExit("a runtime does not see another's memory")
    contexts = set()
    for runtime in runtimes:
        device = ctypes.c_int(-1)
        check(runtime.cudaGetDevice(ctypes.byref(device)))
        contexts.add(device.value)
    if contexts != {0}:
        raise SystemExit(f"devices {contexts}")
    check(runtimes[-1].cudaDeviceReset())
    for runtime in runtimes:
        use(runtime, 7)
    print("ok")


main()
