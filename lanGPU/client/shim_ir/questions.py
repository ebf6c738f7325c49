"""Questions about state that frameworks ask thousands of times, answered without leaving the thread.

Each function takes the call's arguments and returns the CUresult, or USE_AGENT where it does not know: then the call takes its usual way,
which knows every case. So these hold the common, valid cases only.
"""

from collections.abc import Callable
from typing import Final

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir.encode import USE_AGENT
from lanGPU.constants import CUDA_SUCCESS, MAX_HANDLES
from lanGPU.native.irtext import Function
from lanGPU.wire.records import HANDLE_GENERATION_SHIFT, HANDLE_INDEX_MASK, HANDLE_TAG, HANDLE_TAG_MASK

_RESULT_INVALIDATED: Final = 901  # CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: the capture is over
_FUNCTION_SHARED_LIMIT: Final = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEVICE_SHARED_LIMIT: Final = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_LAST_SPECIAL_STREAM: Final = 2  # CU_STREAM_PER_THREAD


def _slot(f: Function) -> str:
    return f.at("%base", f.add(lay.SLOTS, f.mul(f.zext("%number", "i32"), lay.SLOT_BYTES)))


def _argument(f: Function, index: int) -> str:
    return f.load("i64", "%args", 8 * index)


def _int_argument(f: Function, index: int) -> str:
    return f.zext(f.load("i32", "%args", 8 * index), "i32")


def _give_up_if(f: Function, condition: str) -> None:
    with f.when(condition):
        f.ret("i32", USE_AGENT)


def _pointer_argument(f: Function, index: int) -> str:
    word = _argument(f, index)
    _give_up_if(f, f.cmp("eq", word, 0))
    return f.pointer(word)


def context_device() -> str:
    """``context_device(base, context) -> i64``: the ordinal of a living context's device; -1: not known."""
    f = Function("internal i64 @context_device(ptr %base, i64 %context)")
    count = f.zext(f.load_atomic("i32", "%base", lay.CONTEXT_COUNT), "i32")
    with f.count(count) as i:
        entry = f.at("%base", f.add(lay.CONTEXTS, f.mul(i, 16)))
        with f.when(f.cmp("eq", f.load("i64", entry), "%context")):
            f.ret("i64", f.load("i64", entry, 8))
    f.ret("i64", -1)
    return f.text()


def _current_context(f: Function) -> None:
    """cuCtxGetCurrent(CUcontext *pctx)"""
    out = _pointer_argument(f, 0)
    f.store("i64", f.load("i64", _slot(f), lay.SLOT_CONTEXT), out)
    f.ret("i32", CUDA_SUCCESS)


def _device_of(f: Function, context: str) -> None:
    device = f.call("i64", "context_device", "ptr %base", f"i64 {context}")
    _give_up_if(f, f.cmp("slt", device, 0))
    f.store("i32", f.trunc(device), _pointer_argument(f, 0))
    f.ret("i32", CUDA_SUCCESS)


def _current_device(f: Function) -> None:
    """cuCtxGetDevice(CUdevice *device)"""
    _device_of(f, f.load("i64", _slot(f), lay.SLOT_CONTEXT))


def _device_of_context(f: Function) -> None:
    """cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)"""
    given = _argument(f, 1)
    current = f.load("i64", _slot(f), lay.SLOT_CONTEXT)
    _device_of(f, f.select(f.cmp("eq", given, 0), "i64", current, given))


def _set_current(f: Function) -> None:
    """cuCtxSetCurrent(CUcontext ctx), where one living context replaces another."""
    context = _argument(f, 0)
    slot = _slot(f)
    old = f.load("i64", slot, lay.SLOT_CONTEXT)
    _give_up_if(f, f.cmp("eq", old, 0))
    for handle in (old, context):
        _give_up_if(f, f.cmp("slt", f.call("i64", "context_device", "ptr %base", f"i64 {handle}"), 0))
    with f.unless(f.cmp("eq", old, context)):
        arguments = ("ptr %page", "ptr %base", "i32 %number", "ptr %desc", "ptr %args", "i16 0", "i1 false")
        result = f.call("i32", "carry", *arguments)
        with f.unless(f.cmp("eq", result, CUDA_SUCCESS, "i32")):
            f.ret("i32", result)
        f.store("i64", context, slot, lay.SLOT_CONTEXT)
    f.ret("i32", CUDA_SUCCESS)


def _primary_state(f: Function) -> None:
    """cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)"""
    device = _int_argument(f, 0)
    _give_up_if(f, f.cmp("uge", device, lay.DEVICES_CAPACITY))
    flags, active = _pointer_argument(f, 1), _pointer_argument(f, 2)
    state = f.load_atomic("i64", "%base", f.add(lay.PRIMARIES, f.mul(device, 8)))
    _give_up_if(f, f.cmp("eq", f.land(state, lay.PRIMARY_KNOWN), 0))
    f.store("i32", f.trunc(state), flags)
    f.store("i32", f.zext(f.cmp("ne", f.land(state, lay.PRIMARY_ACTIVE), 0), "i1", "i32"), active)
    f.ret("i32", CUDA_SUCCESS)


def _device_attribute(f: Function) -> None:
    """cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)"""
    attribute, device = _int_argument(f, 1), _int_argument(f, 2)
    _give_up_if(f, f.either(f.cmp("uge", attribute, lay.ATTRIBUTES_CAPACITY), f.cmp("uge", device, lay.DEVICES_CAPACITY)))
    place = f.add(f.mul(device, lay.ATTRIBUTES_CAPACITY), attribute)
    word = f.load_atomic("i64", "%base", f.add(lay.ATTRIBUTES, f.mul(place, 8)))
    _give_up_if(f, f.cmp("eq", f.land(word, lay.ATTRIBUTE_KNOWN), 0))
    f.store("i32", f.trunc(word), _pointer_argument(f, 0))
    f.ret("i32", CUDA_SUCCESS)


def _no_capture(f: Function) -> str:
    """Where no stream captures and the stream lives, its status (0, CU_STREAM_CAPTURE_STATUS_NONE) is written; a pointer to it."""
    _give_up_if(f, f.cmp("ne", f.load_atomic("i32", "%base", lay.CAPTURES), 0, "i32"))
    current = f.load("i64", _slot(f), lay.SLOT_CONTEXT)
    _give_up_if(f, f.cmp("slt", f.call("i64", "context_device", "ptr %base", f"i64 {current}"), 0))
    stream = _argument(f, 0)
    with f.when(f.cmp("ugt", stream, _LAST_SPECIAL_STREAM)):
        _give_up_if(f, f.cmp("ne", f.land(stream, HANDLE_TAG_MASK), HANDLE_TAG))
        index = f.land(stream, HANDLE_INDEX_MASK)
        _give_up_if(f, f.cmp("uge", index, MAX_HANDLES))
        _give_up_if(f, f.cmp("uge", index, f.zext(f.load("i32", "%base", lay.NEXT_HANDLE), "i32")))
        generation = f.land(f.bin("lshr", "i64", stream, HANDLE_GENERATION_SHIFT), 0xFFFF)
        now = f.zext(f.load("i16", "%base", f.add(lay.GENERATIONS, f.mul(index, 2))), "i16")
        _give_up_if(f, f.cmp("ne", generation, now))
    status = _pointer_argument(f, 1)
    f.store("i32", 0, status)
    return status


def _is_capturing(f: Function) -> None:
    """cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status); cuStreamGetCaptureInfo's variants begin alike, and where
    nothing is captured the status is all that they write."""
    _no_capture(f)
    f.ret("i32", CUDA_SUCCESS)


def _set_shared_limit(f: Function, attribute: int, value: int, device: str) -> None:
    """More dynamic shared memory than the device has for a block is waited for: programs find out so what they may use."""
    _give_up_if(f, f.cmp("ne", _int_argument(f, attribute), _FUNCTION_SHARED_LIMIT))
    _give_up_if(f, f.cmp("uge", device, lay.DEVICES_CAPACITY))
    place = f.add(f.mul(device, lay.ATTRIBUTES_CAPACITY), _DEVICE_SHARED_LIMIT)
    word = f.load_atomic("i64", "%base", f.add(lay.ATTRIBUTES, f.mul(place, 8)))
    _give_up_if(f, f.cmp("eq", f.land(word, lay.ATTRIBUTE_KNOWN), 0))
    _give_up_if(f, f.cmp("ule", _int_argument(f, value), f.land(word, 0xFFFF_FFFF)))
    f.ret("i32", f.call("i32", "carry", "ptr %page", "ptr %base", "i32 %number", "ptr %desc", "ptr %args", "i16 0", "i1 true"))


def _set_function_attribute(f: Function) -> None:
    """cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)"""
    device = f.call("i64", "context_device", "ptr %base", f"i64 {f.load('i64', _slot(f), lay.SLOT_CONTEXT)}")
    _set_shared_limit(f, 1, 2, device)


def _set_kernel_attribute(f: Function) -> None:
    """cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)"""
    _set_shared_limit(f, 0, 1, _int_argument(f, 3))


def _storage_get(f: Function) -> None:
    """get(void **value, CUcontext ctx, void *key) of the context-local storage"""
    out, given, key = _pointer_argument(f, 0), _argument(f, 1), _argument(f, 2)
    current = f.load("i64", _slot(f), lay.SLOT_CONTEXT)
    context = f.select(f.cmp("eq", given, 0), "i64", current, given)
    mixed = f.mul(f.bin("xor", "i64", context, key), lay.STORAGE_MULTIPLIER - (1 << 64))
    first = f.bin("lshr", "i64", mixed, lay.STORAGE_SHIFT)
    with f.count(lay.STORAGE_CAPACITY) as i:
        place = f.land(f.add(first, i), lay.STORAGE_CAPACITY - 1)
        entry = f.at("%base", f.add(lay.STORAGE, f.mul(place, lay.STORAGE_ENTRY_BYTES)))
        found = f.load_atomic("i64", entry)
        _give_up_if(f, f.cmp("eq", found, 0))
        with f.when(f.both(f.cmp("eq", found, key), f.cmp("eq", f.load("i64", entry, 8), context))):
            f.store("i64", f.load("i64", entry, 16), out)
            f.ret("i32", CUDA_SUCCESS)
    f.ret("i32", USE_AGENT)


def _context_check(f: Function) -> None:
    """check(CUcontext ctx, unsigned int *result, void **pointer) of the context checks"""
    result, pointer = _pointer_argument(f, 1), _pointer_argument(f, 2)
    f.store("i32", 0, result)
    f.store("i64", 0, pointer)
    f.ret("i32", CUDA_SUCCESS)


def _fine(f: Function) -> None:
    """Nothing to do."""
    f.ret("i32", CUDA_SUCCESS)


QUESTIONS: Final[dict[str, Callable[[Function], None]]] = {
    "cuCtxGetCurrent": _current_context,
    "cuCtxGetDevice": _current_device,
    "cuCtxGetDevice_v2": _device_of_context,
    "cuCtxSetCurrent": _set_current,
    "cuDevicePrimaryCtxGetState": _primary_state,
    "cuDeviceGetAttribute": _device_attribute,
    "cuStreamIsCapturing": _is_capturing,
    "cuStreamGetCaptureInfo": _is_capturing,
    "cuStreamGetCaptureInfo_v2": _is_capturing,
    "cuStreamGetCaptureInfo_v3": _is_capturing,
    "cuFuncSetAttribute": _set_function_attribute,
    "cuKernelSetAttribute": _set_kernel_attribute,
    "langpu_storage_get": _storage_get,
    "langpu_context_checks_check": _context_check,
    "langpu_context_checks_fine": _fine,
}
"""Row -> its question."""
NUMBERS: Final = {name: number for number, name in enumerate(QUESTIONS, 1)}
"""Row -> the number in its descriptor; 0: no question."""
CAPTURE_BEGINS: Final = 0x100
CAPTURE_ENDS: Final = 0x200
"""Bits beside the number: calls that begin or end a capture."""
_BEGIN: Final = ("cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph", "cuStreamBeginRecaptureToGraph")
_END: Final = ("cuStreamEndCapture",)


def question_word(name: str) -> int:
    """The u16 of row `name`'s descriptor that this module reads."""
    return NUMBERS.get(name, 0) | (CAPTURE_BEGINS if name in _BEGIN else 0) | (CAPTURE_ENDS if name in _END else 0)


def answer() -> str:
    """``answer(page, base, number, desc, args, question) -> i32``: the CUresult, or USE_AGENT."""
    head = "(ptr %page, ptr %base, i32 %number, ptr %desc, ptr %args)"
    parts = []
    for name, number in NUMBERS.items():
        f = Function(f"internal i32 @question.{number}{head}", "nounwind")
        QUESTIONS[name](f)
        parts.append(f.text())
    f = Function("internal i32 @answer(ptr %page, ptr %base, i32 %number, ptr %desc, ptr %args, i32 %question)", "nounwind noinline")
    labels = {number: f.fresh("ask") for number in NUMBERS.values()}
    cases = " ".join(f"i32 {number}, label %{label}" for number, label in labels.items())
    nothing = f.fresh("nothing")
    f.emit(f"switch i32 %question, label %{nothing} [{cases}]")
    for number, label in labels.items():
        f.label(label)
        f.emit(f"%r{number} = call i32 @question.{number}(ptr %page, ptr %base, i32 %number, ptr %desc, ptr %args)")
        f.emit(f"ret i32 %r{number}")
    f.label(nothing)
    f.ret("i32", USE_AGENT)
    parts.append(f.text())
    return "".join(parts)


def count_capture() -> str:
    """``count_capture(base, question, result)``: after a call that begins or ends a capture. A begin was counted before the call."""
    f = Function("internal void @count_capture(ptr %base, i32 %question, i32 %result)")
    good = f.cmp("eq", "%result", CUDA_SUCCESS, "i32")
    begins = f.cmp("ne", f.land("%question", CAPTURE_BEGINS, "i32"), 0, "i32")
    ends = f.cmp("ne", f.land("%question", CAPTURE_ENDS, "i32"), 0, "i32")
    failed_begin = f.both(begins, f.bin("xor", "i1", good, "true"))
    over = f.either(good, f.cmp("eq", "%result", _RESULT_INVALIDATED, "i32"))
    with f.when(f.either(failed_begin, f.both(ends, over))):
        f.atomic_add("i32", -1, "%base", lay.CAPTURES)
    f.ret()
    return f.text()


def text() -> str:
    """This part's IR."""
    return context_device() + answer() + count_capture()
