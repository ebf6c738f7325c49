"""What NVML says through nvidia-ml-py, as JSON: the same remotely and in an emulating process, but for what the last line asserts.

Run by test_pynvml; `python pynvml_program.py` with NVML's library in reach.
"""

import ctypes
import json
import os
import threading

import pynvml as p


def ask(function, *args):
    try:
        return str(getattr(p, function)(*args))
    except p.NVMLError as error:
        return type(error).__name__


DEVICE = (
    "Name UUID Index MinorNumber PciInfo PersistenceMode Brand Architecture MemoryBusWidth CudaComputeCapability "
    "BusType MultiGpuBoard DisplayMode DisplayActive MemoryInfo BAR1MemoryInfo ComputeRunningProcesses GraphicsRunningProcesses_v2 "
    "MPSComputeRunningProcesses_v2 PowerUsage EnforcedPowerLimit PowerManagementLimitConstraints EccMode FanSpeed Serial VbiosVersion "
    "MigMode NumGpuCores TotalEnergyConsumption SupportedMemoryClocks CurrPcieLinkWidth PerformanceState ComputeMode GspFirmwareVersion"
)


def main():
    out = {"before": ask("nvmlDeviceGetCount")}
    p.nvmlInit()
    p.nvmlInit()
    for name in ("SystemGetDriverVersion", "SystemGetNVMLVersion", "SystemGetCudaDriverVersion", "DeviceGetCount", "UnitGetCount"):
        out[name] = ask("nvml" + name)
    for index in range(p.nvmlDeviceGetCount()):
        handle = p.nvmlDeviceGetHandleByIndex(index)
        one = {name: ask("nvmlDeviceGet" + name, handle) for name in DEVICE.split()}
        one["memory v2"] = str(p.nvmlDeviceGetMemoryInfo(handle, version=p.nvmlMemory_v2))
        old = p.nvmlPciInfo_v2_t()
        assert p._nvmlGetFunctionPointer("nvmlDeviceGetPciInfo_v2")(handle, ctypes.byref(old)) == 0
        one["old pci"] = str(old)
        one["clocks"] = [ask("nvmlDeviceGetClockInfo", handle, clock) for clock in range(5)]
        one["max clocks"] = [ask("nvmlDeviceGetMaxClockInfo", handle, clock) for clock in range(4)]
        one["temperature"] = [ask("nvmlDeviceGetTemperature", handle, 0), ask("nvmlDeviceGetTemperatureV1", handle, 0)]
        one["fields"] = ask("nvmlDeviceGetFieldValues", handle, [p.NVML_FI_DEV_POWER_INSTANT])
        one["set"] = ask("nvmlDeviceSetPersistenceMode", handle, 1)
        same = (
            p.nvmlDeviceGetHandleByUUID(p.nvmlDeviceGetUUID(handle)),
            p.nvmlDeviceGetHandleByPciBusId(p.nvmlDeviceGetPciInfo(handle).busId),
        )
        text = p.nvmlDeviceGetUUID(handle)
        for kind, value in ((1, text.encode()), (2, bytes.fromhex(text.removeprefix("GPU-").replace("-", "")))):
            given = p.c_nvmlUUID_t()
            given.type = kind
            ctypes.memmove(ctypes.byref(given, 8), value, len(value))
            found = p.c_nvmlDevice_t()
            by_uuid = p._nvmlGetFunctionPointer("nvmlDeviceGetHandleByUUIDV")
            assert by_uuid(ctypes.byref(given), ctypes.byref(found)) == 0
            assert p.nvmlDeviceGetIndex(found) == index
            given.type = 3
            assert by_uuid(ctypes.byref(given), ctypes.byref(found)) == p.NVML_ERROR_INVALID_ARGUMENT
            given.version += 1
            assert by_uuid(ctypes.byref(given), ctypes.byref(found)) == p.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        one["same"] = [p.nvmlDeviceGetIndex(other) for other in same]
        rates = p.nvmlDeviceGetUtilizationRates(handle)
        assert 0 <= rates.gpu <= 100
        assert 0 <= rates.memory <= 100
        out[f"device {index}"] = one
    first, second = (p.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    out["two"] = [ask("nvmlDeviceGetTopologyCommonAncestor", first, second), ask("nvmlDeviceOnSameBoard", first, first)]
    out["bad"] = [
        ask("nvmlDeviceGetHandleByIndex", 2),
        ask("nvmlDeviceGetHandleBySerial", "1234"),
        ask("nvmlDeviceGetHandleByPciBusId", "nowhere"),
        ask("nvmlDeviceGetHandleByUUID", "GPU-none"),
        ask("nvmlDeviceGetName", None),
    ]
    out["texts"] = [str(p.NVMLError(number)) for number in (1, 2, 3, 6, 7, 13, 25, 999)]
    assert "python" in p.nvmlSystemGetProcessName(os.getpid())

    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    before = p.nvmlDeviceGetMemoryInfo(second).used
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(32 << 20)) == 0
    assert cuda.cuCtxSynchronize() == 0
    assert p.nvmlDeviceGetMemoryInfo(second).used - before == 32 << 20
    assert p.nvmlDeviceGetComputeRunningProcesses(first) == []
    (process,) = p.nvmlDeviceGetComputeRunningProcesses(second)
    assert process.pid == os.getpid()
    assert process.usedGpuMemory >= 32 << 20

    # A failure that CUDA still owes the program stays CUDA's: NVML neither reports nor swallows it.
    cuda.cuMemsetD8_v2(ctypes.c_uint64(4096), 0, ctypes.c_size_t(16))
    assert p.nvmlDeviceGetMemoryInfo(second).used

    wrong = []

    def work():
        for _ in range(20):
            if p.nvmlDeviceGetMemoryInfo(first).used or p.nvmlDeviceGetCount() != 2:
                wrong.append("memory")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    p.nvmlShutdown()
    assert p.nvmlDeviceGetCount() == 2
    p.nvmlShutdown()
    out["after"] = ask("nvmlDeviceGetCount")
    print(json.dumps(out))


main()
