"""The agent's two loops as machine code: `forward` and `receive` run outside of Python and return for what is not usual.

Made in this process when first needed. Where that is impossible (no LLVM for this processor) `load` returns None and the session
goes on in Python, slower.
"""

import ctypes
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lanGPU.client import pump_ir
from lanGPU.client.syscalls import NUMBERS

_log = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 256 * 1024
"""The loop's buffer: more than the largest reply that fits a slot."""
_FUNCTIONS: Final = ("sendmsg", "recv", "syscall", "__errno_location", "clock_gettime")


class Context(ctypes.Structure):
    """What the loops and Python share; the fields are described in `pump_ir`. Counters are read by anybody, written by their thread."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("fd", ctypes.c_int64),
        ("attention", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("buffer_bytes", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("bytes_sent", ctypes.c_uint64),
        ("record_bytes", ctypes.c_uint64),
        ("bytes_received", ctypes.c_uint64),
        ("replies", ctypes.c_uint64),
        ("asked", ctypes.c_uint64),
        ("wait_since", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("functions", ctypes.c_uint64 * len(_FUNCTIONS)),
        ("futex", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Pump:
    """The loops; each releases the GIL and returns a code of `pump_ir` or -errno."""

    forward: Callable[[int], int]
    receive: Callable[[int], int]
    keep: object
    """Owns the machine code."""


def _compile() -> Pump | None:
    try:
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        module = llvm.parse_assembly(pump_ir.text())
        module.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    except (ImportError, RuntimeError, OSError) as exc:
        _log.info("no machine code for the agent's loops, going on in Python: %s", exc)
        return None
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)
    forward = prototype(engine.get_function_address("forward"))
    receive = prototype(engine.get_function_address("receive"))
    return Pump(forward, receive, engine)


_lock = threading.Lock()
_made: list[Pump | None] = []


def load() -> Pump | None:
    """The loops, made once a process (a few tenths of a second); None: go on in Python."""
    with _lock:
        if not _made:
            _made.append(_compile())
        return _made[0]


def ready() -> Pump | None:
    """The loops if they are made already; never waits."""
    return _made[0] if _made else None


def new_context(base: int) -> Context:
    """A context for the shared memory at `base`; the socket and the buffer come later."""
    libc = ctypes.CDLL(None)
    context = Context(base=base, fd=-1, futex=NUMBERS["futex"])
    for i, name in enumerate(_FUNCTIONS):
        context.functions[i] = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
    return context
