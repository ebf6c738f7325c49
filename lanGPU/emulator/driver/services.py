"""What a context has for kernels that print, assert or allocate: the output buffer and the heap, of the sizes that cuCtxSetLimit set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.device_heap import DeviceHeap
from lanGPU.emulator.kernel_output import KernelOutput
from lanGPU.emulator.memory import Kind

if TYPE_CHECKING:
    from lanGPU.emulator.driver.objects import Context
    from lanGPU.emulator.driver.state import Driver

PRINTF_FIFO_SIZE: Final = ENUMS["CUlimit"]["CU_LIMIT_PRINTF_FIFO_SIZE"]
MALLOC_HEAP_SIZE: Final = ENUMS["CUlimit"]["CU_LIMIT_MALLOC_HEAP_SIZE"]
DEFAULT_FIFO_BYTES: Final = 1024 * 1024
DEFAULT_HEAP_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class KernelServices:
    """Of one context, from the first launch that needs them to the context's end."""

    output: KernelOutput
    heap: DeviceHeap | None = None
    """Made by the first launch of a kernel that allocates."""


def services_of(d: Driver, context: Context, *, heap: bool) -> KernelServices:
    """The context's services, made where they are missing.

    Raises:
        CuError: OUT_OF_MEMORY, the device has no room for the heap.
    """
    with d.lock:
        if context.services is None:
            output = KernelOutput(context.limits.get(PRINTF_FIFO_SIZE, DEFAULT_FIFO_BYTES))
            context.services = KernelServices(output)
            d.outputs.append(output)
        size = context.limits.get(MALLOC_HEAP_SIZE, DEFAULT_HEAP_BYTES)
        if heap and context.services.heap is None and size:
            allocation = d.memory.allocate(size, context.device.ordinal, Kind.HEAP, context=context)
            context.services.heap = DeviceHeap(allocation.address, allocation.size)
        return context.services
