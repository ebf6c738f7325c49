"""Compiles a unit and launches it: one native call a CPU core, each taking blocks in ascending order."""

import ctypes
import hashlib
import os
import struct
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
from platformdirs import user_cache_dir

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.allocations import AllocationMap
from lanGPU.emulator.ptx.system import SERVE, Services, enter, leave
from lanGPU.emulator.ptx.team import Task, cores, team
from lanGPU.emulator.ptx.unit import Unit
from lanGPU.errors import LanGPUError

ARENA_BYTES: Final = 4 * 1024 * 1024
"""Local memory of one worker for device functions and kernels that do not synchronise; CUDA allows 512 KiB a thread."""
COOPERATIVE_ARENA_BYTES: Final = 512 * 1024
"""The same where every block of a launch has a worker."""
WORKSPACE_BYTES: Final = 512
"""What cooperative groups find behind %envreg1 and %envreg2: a u32 size, the u32 of the grid's barrier; zero at the launch."""
CACHE_FORMAT: Final = 1
_KINDS = {
    c.FAULT_ILLEGAL_ADDRESS: "illegal address",
    c.FAULT_MISALIGNED: "misaligned address",
    c.FAULT_TRAP: "trap",
    c.FAULT_DEADLOCK: "deadlock",
    c.FAULT_LOCAL_OVERFLOW: "local memory overflow",
    c.FAULT_STACK_OVERFLOW: "stack overflow",
    c.FAULT_BAD_CALL: "call through a bad function pointer",
    c.FAULT_BAD_OBJECT: "bad texture or surface object",
    c.FAULT_SURFACE_RANGE: "surface access out of range",
    c.FAULT_ASSERT: "failed assertion",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a kernel stopped: ``kind`` is one of the FAULT_* words of `context` spelt out; thread and block are (x, y, z)."""

    kind: str
    address: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    line: int


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _machine() -> Any:
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="default", codemodel="jitdefault"
    )


_lock = threading.RLock()
"""LLVM's global context is not for several threads at a time."""


@cache
def _cache_dir() -> Path | None:
    path = Path(user_cache_dir("langpu")) / "ptx"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path


def _object_code(ir: str) -> bytes:
    """Machine code of `ir`, from the disk if it was compiled before on a processor like this."""
    key = hashlib.blake2b(digest_size=20)
    for part in (ir, llvmlite.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), str(CACHE_FORMAT)):
        key.update(part.encode())
        key.update(b"\0")
    folder = _cache_dir()
    path = folder / f"{key.hexdigest()}.o" if folder else None
    if path is not None:
        try:
            data = path.read_bytes()
        except OSError:
            pass
        else:
            digest, code = data[:20], data[20:]
            if hashlib.blake2b(code, digest_size=20).digest() == digest:
                return code
    with _lock:
        _initialise()
        machine = _machine()
        module = llvm.parse_assembly(ir)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        code = bytes(machine.emit_object(module))
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            temporary.write_bytes(hashlib.blake2b(code, digest_size=20).digest() + code)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk costs speed, nothing else
    return code


@cache
def _define_externals() -> None:
    """libm and libc functions that kernels call, by address: MCJIT would bind an unknown name to null."""
    for library, names in (
        ("libm.so.6", ("sinf", "cosf", "exp2f", "log2f", "tanhf", "fmaf", "fma")),
        (None, ("clock_gettime", "memcpy", "memset", "sched_yield", "usleep")),
    ):
        handle = ctypes.CDLL(library)
        for name in names:
            llvm.add_symbol(name, ctypes.cast(getattr(handle, name), ctypes.c_void_p).value)


class _Worker:
    """A context with its buffers, kept between launches of one kernel."""

    def __init__(self, kernel: "CompiledKernel", arena_bytes: int = ARENA_BYTES) -> None:
        self.context = ctypes.create_string_buffer(c.SITES + c.SITE_BYTES * max(1, kernel.sites) + 64)
        self.address = ctypes.addressof(self.context)
        self.arena = ctypes.create_string_buffer(arena_bytes if kernel.needs_arena else 64)
        self.shared: Any = None
        self.records: Any = None
        self.warps: Any = None
        self._shared_bytes = self._threads = -1

    def prepare(self, kernel: "CompiledKernel", shared_bytes: int, threads: int) -> None:
        """Buffers of at least these sizes."""
        if shared_bytes > self._shared_bytes:
            self.shared = ctypes.create_string_buffer(shared_bytes + 1024)
            self._shared_bytes = shared_bytes
        if kernel.record_bytes and threads > self._threads:
            self.records = ctypes.create_string_buffer(kernel.record_bytes * threads + 64)
            self.warps = ctypes.create_string_buffer(c.WARP_BYTES * (-(-threads // 32)))
            self._threads = threads


def _aligned(buffer: Any, alignment: int) -> int:
    return -(-ctypes.addressof(buffer) // alignment) * alignment


class CompiledKernel:
    """Machine code of one kernel."""

    def __init__(self, unit: Unit, addresses: dict[str, int]) -> None:
        ir = unit.lower()
        self.name = unit.kernel
        self.static_shared_bytes = unit.shared_bytes
        self.record_bytes = unit.record_bytes
        self.local_bytes = unit.local_bytes
        self.sites = unit.sites
        self.uses_system, self.uses_heap = unit.uses_system, unit.uses_heap
        self.needs_arena = True
        missing = [name for name in unit.global_names if name not in addresses]
        if missing:
            raise LanGPUError(f"module variable {missing[0]} has no address: bind() comes first")
        self._globals = (ctypes.c_uint64 * max(1, len(unit.global_names)))(*(addresses[n] for n in unit.global_names))
        code = _object_code(ir)
        with _lock:
            _initialise()
            _define_externals()
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            address = self._engine.get_function_address(self.name)
            wait = self._engine.get_function_address("ptx.wait")
        pointer = ctypes.c_void_p
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_uint64, pointer, ctypes.c_int)(address)
        self._wait = ctypes.CFUNCTYPE(None, pointer)(wait)
        self._workers: list[_Worker] = []
        self._free = threading.Lock()

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared_bytes: int,
        params: bytes,
        allocations: AllocationMap,
        services: Services | None = None,
        *,
        cooperative: bool = False,
    ) -> Fault | None:
        """Runs the whole grid and returns when it ended; on all cores, the GIL released. A kernel that `uses_system` needs `services`.

        The blocks of a `cooperative` launch are all at work at once, each in a thread, so that they may wait for each other.
        """
        if self.uses_system and services is None:
            raise LanGPUError(f"{self.name} calls functions of the device runtime and was launched without them")
        total = grid[0] * grid[1] * grid[2]
        threads = block[0] * block[1] * block[2]
        count = total if cooperative else max(1, min(cores(), total))
        workspace = ctypes.create_string_buffer(2 * WORKSPACE_BYTES) if cooperative else None
        place = _aligned(workspace, WORKSPACE_BYTES) if cooperative else 0
        if cooperative:
            ctypes.c_uint32.from_address(place).value = WORKSPACE_BYTES
            allocations.add(place, WORKSPACE_BYTES)
        table = allocations.hold()
        shared_bytes = self.static_shared_bytes + dynamic_shared_bytes
        parameters = ctypes.create_string_buffer(params, len(params) + 16)
        following = ctypes.c_uint64(0)
        stop = ctypes.c_int32(0)
        if cooperative:
            workers = [_Worker(self, COOPERATIVE_ARENA_BYTES) for _ in range(count)]
        else:
            with self._free:
                workers = [self._workers.pop() if self._workers else _Worker(self) for _ in range(count)]
        for number, worker in enumerate(workers):
            worker.prepare(self, shared_bytes, threads)
            base = worker.address
            ctypes.memset(base, 0, c.SITES + c.SITE_BYTES * self.sites)
            shared = _aligned(worker.shared, 512)
            arena = _aligned(worker.arena, 16)
            fields = worker.context
            struct.pack_into("<Q6I", fields, c.PARAMS, _aligned16(parameters), *block, *grid)
            struct.pack_into("<QQQ", fields, c.SHARED, shared, shared_bytes, ctypes.addressof(table))
            struct.pack_into("<I", fields, c.DYNAMIC_BYTES, dynamic_shared_bytes)
            struct.pack_into("<I", fields, c.PARAM_BYTES, len(params))
            struct.pack_into("<QQQ", fields, c.ARENA, arena, arena, arena + len(worker.arena) - 16)
            if self.record_bytes:
                struct.pack_into("<QQ", fields, c.RECORDS, _aligned(worker.records, 64), ctypes.addressof(worker.warps))
            struct.pack_into("<II", fields, c.WORKER, number, count)
            struct.pack_into("<Q", fields, c.TEXTURES, allocations.textures.address)
            if services is not None:
                struct.pack_into("<Q", fields, c.SYSTEM, SERVE)
                enter(worker.address, services, allocations)
            if cooperative:
                struct.pack_into("<QQ", fields, c.WORKSPACE, place, ctypes.addressof(stop))
            struct.pack_into("<Q", fields, c.GLOBALS, ctypes.addressof(self._globals))
        arguments = (ctypes.addressof(following), total, ctypes.addressof(stop))
        task = Task(lambda number: self._run(workers[number].address, *arguments, 0))
        for worker in workers:
            struct.pack_into("<Q", worker.context, c.ACTIVE, ctypes.addressof(task.active))
        try:
            for number in range(1, count):
                if cooperative:
                    threading.Thread(target=task.join, args=(number,), name=f"lanGPU-emulator-block-{number}", daemon=True).start()
                else:
                    team().offer(task, number)
        except RuntimeError:  # no more threads: the blocks that run would wait for ever
            stop.value = 1
            raise
        finally:
            self._run(workers[0].address, *arguments, 1)
            task.close()
            if cooperative:
                self._wait(ctypes.addressof(task.active))
                allocations.remove(place)
        self._wait(ctypes.addressof(task.active))
        fault = None
        for worker in workers:
            if fault is None and struct.unpack_from("<I", worker.context, c.FAULT_KIND)[0]:
                fault = _read_fault(worker.context)
        if services is not None:
            for worker in workers:
                leave(worker.address)
        if not cooperative:
            with self._free:
                self._workers.extend(workers)
        return fault


def _aligned16(buffer: Any) -> int:
    return ctypes.addressof(buffer)


def _new_machine() -> Any:
    return llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="default", codemodel="jitdefault")


def _read_fault(context: Any) -> Fault:
    kind, line, address, tx, ty, tz, bx, by, bz = struct.unpack_from("<IIQ3I3I", context, c.FAULT_KIND)
    return Fault(_KINDS.get(kind, f"fault {kind}"), address, (bx, by, bz), (tx, ty, tz), line)
