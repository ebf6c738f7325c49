"""The emulated driver's state: devices, contexts, every thread's context stack, handles."""

from __future__ import annotations

import ctypes
import os
from itertools import count
from threading import RLock, get_native_id
from typing import TYPE_CHECKING, Final

from lanGPU.emulator.attributes import device_attributes
from lanGPU.emulator.config import EmulatorConfig, device_uuid
from lanGPU.emulator.driver.objects import STREAM_LEGACY, STREAM_PER_THREAD, Context, Device, HandleTable, Pool, Stream
from lanGPU.emulator.memory import Kind, Memory
from lanGPU.emulator.queue import DeviceQueue, Operation, Program
from lanGPU.emulator.results import (
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    LAUNCH_TIMEOUT,
    NOT_INITIALIZED,
    STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_UNSUPPORTED,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.capture import Capture
    from lanGPU.emulator.driver.graph_memory import Highs
    from lanGPU.emulator.driver.nodes import GraphMemory
    from lanGPU.emulator.kernel_output import KernelOutput

_PRUNE_STACKS_AT: Final = 512
_DESTRUCTOR: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""Context, key, value of an entry of context-local storage."""


class Driver:
    """One emulated driver. A process has one; tests make their own. Thread-safe."""

    def __init__(self, config: EmulatorConfig) -> None:
        self.config = config
        self.handles = HandleTable()
        self.memory = Memory([config.memory_bytes] * config.devices)
        self.queue = DeviceQueue()
        self.lock = RLock()
        self.ids = count(1)
        self.captures: set[Capture] = set()
        self.graph_memory: dict[int, GraphMemory] = {}
        """By address: memory of allocation nodes."""
        self.graph_memory_highs: dict[int, Highs] = {}
        """By device ordinal."""
        self.capture_modes: dict[int, int] = {}
        """Thread -> CUstreamCaptureMode set by cuThreadExchangeStreamCaptureMode."""
        self.stacks: dict[int, list[Context]] = {}
        """Keyed by the kernel's thread id: a thread that is not Python's has no thread-local storage between two calls."""
        self.outputs: list[KernelOutput] = []
        """Buffers of the contexts whose kernels print."""
        self.ready = False
        self.forked = False
        self.devices = [
            Device(ordinal, device_attributes(ordinal, config.multiprocessors), device_uuid(ordinal)) for ordinal in range(config.devices)
        ]
        for device in self.devices:
            device.default_pool = device.pool = Pool(device, is_default=True)
            device.pool.handle = self.handles.add(device.pool)

    # --- what a call needs ---------------------------------------------------------------------------------------------
    def require_init(self) -> None:
        """CUDA_ERROR_NOT_INITIALIZED before cuInit, and in a process forked after it."""
        if not self.ready or self.forked:
            raise CuError(NOT_INITIALIZED)

    def require_context(self) -> Context:
        """The calling thread's current context, if it is alive and without error."""
        stack = self.stacks.get(get_native_id())
        if not stack or self.forked:
            self.require_init()
            raise CuError(INVALID_CONTEXT)
        context = stack[-1]
        if not context.alive:
            raise CuError(CONTEXT_IS_DESTROYED)
        if context.error:
            raise CuError(context.error)
        return context

    def context_for(self, handle: int) -> Context:
        """The calling thread's current context; where there is none, that of the object. Errors as `require_context`."""
        if not self.stacks.get(get_native_id()) and not self.forked:
            context = getattr(self.handles.peek(handle), "context", None)
            if isinstance(context, Context):
                if not context.alive:
                    raise CuError(CONTEXT_IS_DESTROYED)
                if context.error:
                    raise CuError(context.error)
                return context
        return self.require_context()

    def device(self, ordinal: int) -> Device:
        """The device, or CUDA_ERROR_INVALID_DEVICE."""
        if not 0 <= ordinal < len(self.devices):
            raise CuError(INVALID_DEVICE)
        return self.devices[ordinal]

    def stack(self) -> list[Context]:
        """The calling thread's context stack, top last."""
        thread = get_native_id()
        stack = self.stacks.get(thread)
        if stack is None:
            if len(self.stacks) >= _PRUNE_STACKS_AT:
                self._prune()
            stack = self.stacks[thread] = []
        return stack

    def _prune(self) -> None:
        """Forgets threads that ended; without /proc they are kept."""
        try:
            alive = {int(name) for name in os.listdir("/proc/self/task")}
        except OSError:
            return
        for thread in [t for t in self.stacks if t not in alive]:
            self.stacks.pop(thread, None)

    # --- contexts --------------------------------------------------------------------------------------------------------
    def new_context(self, device: Device, flags: int, *, primary: bool = False, api_version: int = 3020) -> Context:
        """A new context of `device`, current to no thread."""
        context = Context(device, flags, next(self.ids), primary, api_version=api_version)
        context.handle = self.handles.add(context)
        context.legacy = Stream(context, next(self.ids), handle=STREAM_LEGACY)
        return context

    def context(self, handle: int) -> Context:
        """The live context behind a handle, or CUDA_ERROR_INVALID_CONTEXT."""
        context = self.handles.get(handle, Context, INVALID_CONTEXT)
        if not context.alive:
            raise CuError(CONTEXT_IS_DESTROYED)
        return context

    def end_context(self, context: Context) -> None:
        """Waits for the context's work, then gives back all that it owns; handles into it are invalid afterwards."""
        self._destroy_storage(context)
        if not context.error:
            self.queue.drain()
        with self.lock:
            context.alive = False
            if context.services is not None:
                context.services.output.print()
                self.outputs.remove(context.services.output)
                context.services = None
            context.limits.clear()
            for handle, thing in list(self.handles.all(object)):
                if getattr(thing, "context", None) is context and not isinstance(thing, Context):
                    self.handles.remove(handle)
            for module in context.modules.values():
                for function in module.functions.values():
                    self.handles.remove(function)
            context.modules.clear()
            owned = [a for a in self.memory.allocations.values() if a.context is context and a.kind is not Kind.PHYSICAL]
            for allocation in owned:
                self.memory.forget(allocation)
                if not self.queue.hung:  # else a kernel that never ends may still use it
                    self.memory.reclaim(allocation)
            self.memory.map.textures.remove_where(lambda owner: getattr(owner, "context", None) is context)
            context.streams.clear()
            context.per_thread.clear()

    @staticmethod
    def _destroy_storage(context: Context) -> None:
        """Runtime libraries learn here that what they kept for the context is of no use any more."""
        while context.storage:
            key, (value, destructor) = context.storage.popitem()
            if destructor:
                _DESTRUCTOR(destructor)(context.handle, key, value)

    def give_up(self) -> None:
        """After an interrupted wait: every context has failed, and nothing waits again."""
        self.queue.give_up()
        for _, context in self.handles.all(Context):
            if not context.error:
                context.error = LAUNCH_TIMEOUT

    def print_output(self) -> None:
        """Prints what kernels of any context wrote so far."""
        for output in list(self.outputs):
            output.print()

    # --- streams ---------------------------------------------------------------------------------------------------------
    def stream(self, context: Context, handle: int) -> Stream:
        """The stream that `handle` names for a call made in `context`.

        Raises:
            CuError: INVALID_HANDLE, or STREAM_CAPTURE_IMPLICIT for the legacy stream while a stream that it waits for captures.
        """
        if handle in (0, STREAM_LEGACY):
            if self.captures:
                self._check_legacy(context)
            return context.legacy
        if handle == STREAM_PER_THREAD:
            thread = get_native_id()
            stream = context.per_thread.get(thread)
            if stream is None:
                stream = context.per_thread[thread] = Stream(context, next(self.ids), handle=STREAM_PER_THREAD)
            return stream
        stream = self.handles.get(handle, Stream, INVALID_HANDLE)
        if not stream.context.alive:
            raise CuError(CONTEXT_IS_DESTROYED)
        if stream.context.error:
            raise CuError(stream.context.error)
        return stream

    def _check_legacy(self, context: Context) -> None:
        for capture in list(self.captures):
            if any(s.context is context and s.blocking for s in capture.streams):
                capture.invalidate()
                raise CuError(STREAM_CAPTURE_IMPLICIT)

    def submit(self, stream: Stream, operation: Operation) -> None:
        """Queues an operation in `stream`, or adds it to the graph that the stream captures."""
        if stream.capture is not None:
            stream.capture.add(stream, operation)
            return
        stream.last = self.queue.submit(stream.context, operation)

    def run(self, stream: Stream, operation: Operation, *, wait: bool) -> None:
        """As `submit`, but at once where the queue is empty; with `wait` returns when it is done."""
        if stream.capture is not None:
            if wait:
                stream.capture.invalidate()
                raise CuError(STREAM_CAPTURE_UNSUPPORTED)
            stream.capture.add(stream, operation)
            return
        if Program.called and not stream.blocking and self.queue.done(stream.last):
            # A stream of its own does not wait for the function that another one is in, and that may wait for it.
            self.queue.run_beside(stream.context, operation)
            return
        stream.last = number = self.queue.run(stream.context, operation)
        if wait:
            self.queue.wait(number)
            if stream.context.error:
                raise CuError(stream.context.error)

    def last_of(self, stream: Stream) -> int:
        """Number of the newest operation that waiting for `stream` waits for; the legacy stream stands for all blocking ones."""
        context = stream.context
        if stream is not context.legacy:
            return stream.last
        blocking = [s.last for s in (*context.streams, *context.per_thread.values()) if s.blocking]
        return max(stream.last, *blocking) if blocking else stream.last

    def break_captures(self, symbol: str) -> None:
        """A call that is unsafe during capture: it invalidates captures of global mode, and of this thread, and fails."""
        thread = get_native_id()
        if self.capture_modes.get(thread, 0) == 2:  # CU_STREAM_CAPTURE_MODE_RELAXED
            return
        mine = self.capture_modes.get(thread, 0)
        broken = [c for c in self.captures if c.mode != 2 and (c.thread == thread or (c.mode == 0 and mine == 0))]
        for capture in broken:
            capture.invalidate()
        if broken:
            raise CuError(STREAM_CAPTURE_UNSUPPORTED, f"{symbol} is not permitted while a stream is capturing")

    # --- memory ------------------------------------------------------------------------------------------------------------
    def check_range(self, address: int, size: int) -> None:
        """CUDA_ERROR_INVALID_VALUE unless kernels may use the whole range."""
        if not self.memory.contains(address, size):
            raise CuError(INVALID_VALUE, f"{size} bytes at {address:#x} are not device memory")

    def close(self) -> None:
        """Ends the device thread and gives memory back: for tests."""
        self.queue.finish()
        if not self.queue.hung:
            self.memory.release_all()
