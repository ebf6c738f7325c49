"""Calls to records, as `lanGPU.wire.records` defines them, and replies back into the program's memory.

`measure` finds every length before LOCK is taken and looks at every pointer the caller gave; `encode` only writes.
"""

from lanGPU.client import layout as lay
from lanGPU.constants import (
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY,
    INLINE_MAX_BYTES,
    LAUNCH_BLOCK,
    LAUNCH_GRID,
    LAUNCH_SHARED_BYTES,
    LAUNCH_THREADS,
    MAX_CSTRING_BYTES,
    MAX_HANDLES,
    MAX_KERNEL_PARAMS_BYTES,
    REPLY_INLINE_MAX_BYTES,
)
from lanGPU.driverapi.descriptor import NO_ARG
from lanGPU.driverapi.model import ArgKind, HandleType
from lanGPU.native.irtext import Function
from lanGPU.wire.records import (
    HANDLE_GENERATION_SHIFT,
    HANDLE_INDEX_MASK,
    HANDLE_TAG,
    HANDLE_TAG_MASK,
    NULL_WORD,
    RECORD_HEADER,
    REPLY_HEADER,
)

NULL = NULL_WORD - (1 << 64)  # as i64
TOO_LONG = 1 << 62
USE_AGENT = -1

# How kernel parameters arrive, in the call's scratch area.
AUX_SOURCE, AUX_MODE, AUX_FIRST, AUX_COUNT = 0, 8, 16, 24
MODE_NONE, MODE_PARAMS, MODE_BUFFER = 0, 1, 2

TOTALS = 4
TOTAL_DOUBTFUL = 24
DOUBTFUL, DOUBTFUL_LAUNCH = 1, 2
"""Of `measure`'s totals: a call that may well be refused (odd sizes, null pointers to copy between), so that its result is waited for."""
LAUNCH_PARAMS = 9
"""Where cuLaunchKernel has its kernelParams; words 1 to 7 are grid, block and dynamic shared memory."""


def _argument(f: Function, index: str) -> str:
    """The descriptor's entry of an argument."""
    return f.at("%desc", f.add(f.mul(index, 8), 8))


def _word(f: Function, index: str | int) -> str:
    return f.load("i64", "%args", f.mul(index, 8))


def _pad(f: Function, size: str) -> str:
    return f.land(f.add(size, 7), -8)


def extent() -> str:
    """``extent(desc, args, entry) -> i64``: how many bytes a BYTES_* argument covers, by its size rule."""
    f = Function("internal i64 @extent(ptr %desc, ptr %args, ptr %entry)", "nounwind")
    constant = f.zext(f.load("i32", "%entry", 4), "i32")
    source = f.zext(f.load("i8", "%entry", 2), "i8")
    with f.when(f.cmp("eq", source, NO_ARG)):
        f.ret("i64", constant)
    count = f.var("i64", _word(f, source))
    counter = f.load("i8", _argument(f, source))
    with f.when(f.cmp("eq", counter, ArgKind.SCALAR, "i8")):  # a 32-bit count: the register's upper half is undefined
        f.set(count, f.land(f.get(count), 0xFFFF_FFFF))
    value = f.get(count)
    with f.when(f.cmp("ugt", value, 1 << 40)):
        f.ret("i64", TOO_LONG)
    f.ret("i64", f.mul(value, constant))
    return f.text()


def string_length() -> str:
    """``string_length(ptr) -> i64``: with the NUL; TOO_LONG beyond the limit."""
    f = Function("internal i64 @string_length(ptr %s)", "nounwind noinline")
    with f.count(MAX_CSTRING_BYTES) as i, f.when(f.cmp("eq", f.load("i8", "%s", i), 0, "i8")):
        f.ret("i64", f.add(i, 1))
    f.ret("i64", TOO_LONG)
    return f.text()


def measure() -> str:
    """``measure(base, desc, args, lengths, totals, aux) -> i32``: 0, a CUresult, or USE_AGENT.

    `lengths`: i64 for each argument (NULL for a null pointer); `totals`: bytes of the record, bytes of the reply,
    1 if the call makes or ends a handle, DOUBTFUL if the driver may well refuse it.
    """
    f = Function("internal i32 @measure(ptr %base, ptr %desc, ptr %args, ptr %lengths, ptr %totals, ptr %aux)", "nounwind")
    count = f.zext(f.load("i8", "%desc", 2), "i8")
    total = f.var("i64", f.add(f.mul(count, 8), RECORD_HEADER.size))
    reply = f.var("i64", REPLY_HEADER.size)
    kernel = f.var("i64", 0)
    named = f.var("i64", 0)
    copies = f.var("i64", 0)
    f.store("i64", 0, "%totals", TOTAL_DOUBTFUL)
    with f.count(count) as i:
        entry = _argument(f, i)
        kind = f.zext(f.load("i8", entry), "i8")
        value = _word(f, i)
        place = f.at("%lengths", f.mul(i, 8))
        with f.when(f.cmp("eq", kind, ArgKind.HANDLE)), f.when(f.cmp("eq", f.load("i8", entry, 1), HandleType.FUNCTION, "i8")):
            f.set(kernel, value)
        with f.when(f.cmp("eq", kind, ArgKind.DPTR)):
            f.set(copies, 1)
            with f.when(f.cmp("eq", value, 0)):
                f.store("i64", DOUBTFUL, "%totals", TOTAL_DOUBTFUL)
        with f.when(f.cmp("uge", kind, ArgKind.HANDLE_OUT)):
            data_in = f.either(f.cmp("eq", kind, ArgKind.BYTES_IN), f.cmp("eq", kind, ArgKind.BYTES_INOUT))
            data_out = f.either(f.cmp("eq", kind, ArgKind.BYTES_OUT), f.cmp("eq", kind, ArgKind.BYTES_INOUT))
            null = f.cmp("eq", value, 0)
            with f.when(f.either(data_in, data_out)):
                f.store("i64", NULL, place)
                with f.when(f.both(null, f.both(data_in, f.cmp("ne", f.get(copies), 0)))):  # as the source of a copy
                    f.store("i64", DOUBTFUL, "%totals", TOTAL_DOUBTFUL)
                with f.unless(null):
                    size = f.call("i64", "extent", "ptr %desc", "ptr %args", f"ptr {entry}")
                    f.store("i64", size, place)
                    with f.when(data_in):
                        with f.when(f.cmp("ugt", size, INLINE_MAX_BYTES)):
                            f.ret("i32", USE_AGENT)
                        f.set(total, f.add(f.get(total), _pad(f, size)))
                    with f.when(data_out):
                        with f.when(f.cmp("ugt", size, REPLY_INLINE_MAX_BYTES)):
                            f.ret("i32", USE_AGENT)
                        f.set(reply, f.add(f.get(reply), _pad(f, size)))
            with f.when(f.cmp("eq", kind, ArgKind.CSTRING)):
                f.store("i64", NULL, place)
                with f.unless(null):
                    size = f.call("i64", "string_length", f"ptr {f.pointer(value)}")
                    with f.when(f.cmp("eq", size, TOO_LONG)):
                        f.ret("i32", CUDA_ERROR_INVALID_VALUE)
                    f.store("i64", size, place)
                    f.set(total, f.add(f.get(total), _pad(f, size)))
            with f.when(f.cmp("eq", kind, ArgKind.HANDLE_QUERY)), f.unless(null):
                f.set(reply, f.add(f.get(reply), 8))
            with f.when(f.cmp("ule", kind, ArgKind.HANDLE_DESTROY)):
                f.set(named, 1)
                with f.when(f.both(f.cmp("eq", kind, ArgKind.HANDLE_OUT), null)):
                    f.ret("i32", CUDA_ERROR_INVALID_VALUE)
            with f.when(f.both(f.cmp("eq", kind, ArgKind.NULL_ONLY), f.cmp("ne", value, 0))):
                f.ret("i32", CUDA_ERROR_NOT_SUPPORTED)
            with f.when(f.cmp("eq", kind, ArgKind.HOST_PTR)):
                f.ret("i32", USE_AGENT)
            with f.when(f.cmp("eq", kind, ArgKind.KERNEL_PARAMS)):
                extra = _word(f, f.add(i, 1))
                arguments = ("ptr %base", f"i64 {f.get(kernel)}", f"i64 {value}", f"i64 {extra}", f"ptr {place}", "ptr %aux")
                status = f.call("i32", "measure_kernel", *arguments)
                with f.when(f.cmp("ne", status, 0, "i32")):
                    f.ret("i32", status)
                size = f.load("i64", place)
                with f.unless(f.cmp("eq", size, NULL)):
                    f.set(total, f.add(f.get(total), _pad(f, size)))
                with f.when(f.cmp("eq", i, LAUNCH_PARAMS)):
                    doubtful = f.call("i1", "doubtful", "ptr %base", "ptr %args", f"i64 {f.get(kernel)}")
                    f.store("i64", f.select(doubtful, "i64", DOUBTFUL_LAUNCH, 0), "%totals", TOTAL_DOUBTFUL)
    with f.when(f.cmp("ugt", f.get(reply), REPLY_INLINE_MAX_BYTES)):
        f.ret("i32", USE_AGENT)
    f.store("i64", f.get(total), "%totals")
    f.store("i64", f.get(reply), "%totals", 8)
    f.store("i64", f.get(named), "%totals", 16)
    f.ret("i32", 0)
    return f.text()


def _shared_place(f: Function, function: str) -> str:
    """Where FUNCTIONS keeps the dynamic shared memory with which a function, whose handle `measure_kernel` checked, has been launched."""
    index = f.land(function, HANDLE_INDEX_MASK)
    return f.at("%base", f.add(lay.FUNCTIONS + lay.FUNCTION_SHARED, f.mul(index, lay.FUNCTION_BYTES)))


def doubtful() -> str:
    """``doubtful(base, args, function) -> i1``: cuLaunchKernel with sizes that not every device and function allows.

    A program tests each launch with what it returns, and tries sizes that way. Much shared memory needs one answer a function.
    """
    f = Function("internal i1 @doubtful(ptr %base, ptr %args, i64 %function)", "nounwind")
    odd = "false"
    threads: str | int = 1
    for word, limit in enumerate((*LAUNCH_GRID, *LAUNCH_BLOCK), 1):
        size = f.load("i32", "%args", 8 * word)
        odd = f.either(odd, f.cmp("ugt", f.sub(size, 1, "i32"), limit - 1, "i32"))  # zero is too many, too
        if word > len(LAUNCH_GRID):
            threads = f.mul(f.zext(size, "i32"), threads)
    odd = f.either(odd, f.cmp("ugt", str(threads), LAUNCH_THREADS))
    shared = f.load("i32", "%args", 8 * 7)
    much = f.cmp("ugt", shared, LAUNCH_SHARED_BYTES, "i32")
    new = f.cmp("ugt", shared, f.load("i32", _shared_place(f, "%function")), "i32")
    f.ret("i1", f.either(odd, f.both(much, new)))
    return f.text()


def accepted() -> str:
    """``accepted(base, args)``: a doubtful cuLaunchKernel was answered with success."""
    f = Function("internal void @accepted(ptr %base, ptr %args)", "nounwind")
    f.store("i32", f.load("i32", "%args", 8 * 7), _shared_place(f, f.load("i64", "%args")))
    f.ret()
    return f.text()


def measure_kernel() -> str:
    """``measure_kernel(base, function, kernelParams, extra, length, aux) -> i32``: where a launch's parameters are, and how many bytes.

    The layout of a kernel comes from FUNCTIONS; unknown: ``kernelParams`` goes to the agent. ``extra`` holds
    CU_LAUNCH_PARAM_BUFFER_POINTER (1), CU_LAUNCH_PARAM_BUFFER_SIZE (2) and ends with CU_LAUNCH_PARAM_END (0).
    """
    f = Function(
        "internal i32 @measure_kernel(ptr %base, i64 %function, i64 %params, i64 %extra, ptr %length, ptr %aux)", "nounwind noinline"
    )
    f.store("i64", NULL, "%length")
    f.store("i64", MODE_NONE, "%aux", AUX_MODE)
    with f.unless(f.cmp("eq", f.land("%function", HANDLE_TAG_MASK - (1 << 64)), HANDLE_TAG)):
        f.ret("i32", CUDA_ERROR_INVALID_HANDLE)
    index = f.land("%function", HANDLE_INDEX_MASK)
    with f.when(f.cmp("uge", index, MAX_HANDLES)):
        f.ret("i32", CUDA_ERROR_INVALID_HANDLE)
    entry = f.at("%base", f.add(lay.FUNCTIONS, f.mul(index, lay.FUNCTION_BYTES)))
    generation = f.land(f.bin("lshr", "i64", "%function", HANDLE_GENERATION_SHIFT), 0xFFFF)
    fresh = f.cmp("eq", f.zext(f.load("i32", entry, 12), "i32"), generation)
    known = f.var("i64", 0)
    with f.when(fresh):
        f.set(known, f.zext(f.load("i32", entry), "i32"))
    has_params, has_extra = f.cmp("ne", "%params", 0), f.cmp("ne", "%extra", 0)
    with f.when(f.both(has_params, has_extra)):
        f.ret("i32", CUDA_ERROR_INVALID_VALUE)
    with f.when(has_extra):
        buffer, size = f.var("i64", 0), f.var("i64", 0)
        pairs = f.pointer("%extra")
        ended = f.var("i1", "false")
        with f.count(8) as i:
            key = f.load("i64", pairs, f.mul(i, 16))
            f.set(ended, f.cmp("eq", key, 0))
            f.leave(f.get(ended))
            value = f.load("i64", pairs, f.add(f.mul(i, 16), 8))
            with f.when(f.cmp("eq", key, 1)):
                f.set(buffer, value)
            with f.when(f.cmp("eq", key, 2)):
                with f.when(f.cmp("eq", value, 0)):
                    f.ret("i32", CUDA_ERROR_INVALID_VALUE)
                f.set(size, f.load("i64", f.pointer(value)))
            with f.when(f.cmp("ugt", key, 2)):
                f.ret("i32", CUDA_ERROR_INVALID_VALUE)
        with f.unless(f.get(ended)):
            f.ret("i32", CUDA_ERROR_INVALID_VALUE)
        bytes_ = f.get(size)
        with f.when(f.cmp("ugt", bytes_, MAX_KERNEL_PARAMS_BYTES)):
            f.ret("i32", CUDA_ERROR_INVALID_VALUE)
        with f.when(f.both(f.cmp("eq", f.get(buffer), 0), f.cmp("ne", bytes_, 0))):
            f.ret("i32", CUDA_ERROR_INVALID_VALUE)
        f.store("i64", bytes_, "%length")
        f.store("i64", f.get(buffer), "%aux", AUX_SOURCE)
        f.store("i64", MODE_BUFFER, "%aux", AUX_MODE)
        f.ret("i32", 0)
    layout_known = f.cmp("ne", f.get(known), 0)
    with f.unless(has_params):
        with f.when(f.cmp("ugt", f.get(known), 1)):  # parameters are needed and none were given
            f.ret("i32", CUDA_ERROR_INVALID_VALUE)
        f.ret("i32", 0)
    with f.unless(layout_known):
        f.ret("i32", USE_AGENT)
    number = f.sub(f.get(known), 1)
    with f.when(f.cmp("eq", number, 0)):
        f.ret("i32", 0)
    pointers = f.pointer("%params")
    with f.count(number) as i, f.when(f.cmp("eq", f.load("i64", pointers, f.mul(i, 8)), 0)):
        f.ret("i32", CUDA_ERROR_INVALID_VALUE)
    f.store("i64", f.zext(f.load("i32", entry, 4), "i32"), "%length")
    f.store("i64", "%params", "%aux", AUX_SOURCE)
    f.store("i64", MODE_PARAMS, "%aux", AUX_MODE)
    f.store("i64", f.zext(f.load("i32", entry, 8), "i32"), "%aux", AUX_FIRST)
    f.store("i64", number, "%aux", AUX_COUNT)
    f.ret("i32", 0)
    return f.text()


def new_handle() -> str:
    """``new_handle(base) -> i64``: under LOCK, a fresh name; 0 if there are none left."""
    f = Function("internal i64 @new_handle(ptr %base)", "nounwind")
    index = f.var("i64", 0)
    free = f.load("i32", "%base", lay.FREE_COUNT)
    have = f.cmp("ne", free, 0, "i32")
    with f.when(have):
        last = f.sub(free, 1, "i32")
        f.store("i32", last, "%base", lay.FREE_COUNT)
        f.set(index, f.zext(f.load("i32", "%base", f.add(lay.FREE_HANDLES, f.mul(f.zext(last, "i32"), 4))), "i32"))
    with f.unless(have):
        following = f.load("i32", "%base", lay.NEXT_HANDLE)
        following = f.select(f.cmp("eq", following, 0, "i32"), "i32", 1, following)  # the memory begins as zeros
        with f.when(f.cmp("uge", following, lay.AGENT_HANDLE_BASE, "i32")):
            f.ret("i64", 0)
        f.store("i32", f.add(following, 1, "i32"), "%base", lay.NEXT_HANDLE)
        f.set(index, f.zext(following, "i32"))
    i = f.get(index)
    generation = f.zext(f.load("i16", "%base", f.add(lay.GENERATIONS, f.mul(i, 2))), "i16")
    named = f.bin("or", "i64", f.bin("shl", "i64", generation, HANDLE_GENERATION_SHIFT), i)
    f.ret("i64", f.bin("or", "i64", named, HANDLE_TAG))
    return f.text()


def free_handle() -> str:
    """``free_handle(base, handle)``: under LOCK, the name may be given again, in its next generation; a freed one is left alone."""
    f = Function("internal void @free_handle(ptr %base, i64 %handle)", "nounwind")
    index = f.land("%handle", HANDLE_INDEX_MASK)
    ours = f.both(
        f.cmp("eq", f.land("%handle", HANDLE_TAG_MASK - (1 << 64)), HANDLE_TAG),
        f.both(f.cmp("ult", index, f.zext(f.load("i32", "%base", lay.NEXT_HANDLE), "i32")), f.cmp("ne", index, 0)),  # given before
    )
    with f.when(ours):
        place = f.at("%base", f.add(lay.GENERATIONS, f.mul(index, 2)))
        generation = f.load("i16", place)
        named = f.trunc(f.bin("lshr", "i64", "%handle", HANDLE_GENERATION_SHIFT), "i16")
        with f.when(f.cmp("eq", named, generation, "i16")):
            f.store("i16", f.add(generation, 1, "i16"), place)
            free = f.load("i32", "%base", lay.FREE_COUNT)
            f.store("i32", f.trunc(index), "%base", f.add(lay.FREE_HANDLES, f.mul(f.zext(free, "i32"), 4)))
            f.store("i32", f.add(free, 1, "i32"), "%base", lay.FREE_COUNT)
    f.ret()
    return f.text()


def encode() -> str:
    """``encode(base, desc, args, lengths, totals, aux, out, number, token, flags) -> i32``: under LOCK, writes the record.

    Names of HANDLE_OUT arguments go to `lengths` too, for whoever writes or takes them back. OUT_OF_MEMORY: no names left.
    """
    f = Function(
        "internal i32 @encode(ptr %base, ptr %desc, ptr %args, ptr %lengths, ptr %totals, ptr %aux, ptr %out, "
        "i32 %number, i32 %token, i16 %flags)",
        "nounwind",
    )
    count = f.zext(f.load("i8", "%desc", 2), "i8")
    f.store("i32", f.trunc(f.load("i64", "%totals")), "%out")
    f.store("i16", f.load("i16", "%desc"), "%out", 4)
    f.store("i16", "%flags", "%out", 6)
    f.store("i32", "%number", "%out", 8)
    f.store("i32", "%token", "%out", 12)
    blob = f.var("i64", f.add(f.mul(count, 8), RECORD_HEADER.size))
    with f.count(count) as i:
        kind = f.zext(f.load("i8", _argument(f, i)), "i8")
        value = _word(f, i)
        word = f.var("i64", value)
        with f.when(f.cmp("uge", kind, ArgKind.HANDLE_OUT)):
            length = f.load("i64", "%lengths", f.mul(i, 8))
            with f.when(f.cmp("eq", kind, ArgKind.HANDLE_OUT)):
                name = f.call("i64", "new_handle", "ptr %base")
                with f.when(f.cmp("eq", name, 0)):
                    f.ret("i32", CUDA_ERROR_OUT_OF_MEMORY)
                f.store("i64", name, "%lengths", f.mul(i, 8))
                f.set(word, name)
            with f.when(f.cmp("eq", kind, ArgKind.HANDLE_QUERY)):
                f.set(word, f.zext(f.cmp("ne", value, 0), "i1"))
            sized = f.either(f.cmp("eq", kind, ArgKind.BYTES_OUT), f.cmp("eq", kind, ArgKind.CSTRING))
            sized = f.either(sized, f.either(f.cmp("eq", kind, ArgKind.BYTES_IN), f.cmp("eq", kind, ArgKind.BYTES_INOUT)))
            sized = f.either(sized, f.cmp("eq", kind, ArgKind.KERNEL_PARAMS))
            with f.when(sized):
                f.set(word, length)
            carried = f.both(sized, f.both(f.cmp("ne", kind, ArgKind.BYTES_OUT), f.cmp("ne", length, NULL)))
            with f.when(carried):
                place = f.at("%out", f.get(blob))
                padded = _pad(f, length)
                with f.when(f.cmp("ne", padded, 0)):  # the padding is zero, and so are the gaps between kernel parameters
                    f.store("i64", 0, place, f.sub(padded, 8))
                is_kernel = f.cmp("eq", kind, ArgKind.KERNEL_PARAMS)
                with f.when(is_kernel):
                    f.call("void", "copy_parameters", "ptr %base", "ptr %aux", f"ptr {place}", f"i64 {length}")
                with f.unless(is_kernel):
                    f.call("void", "copy", f"ptr {place}", f"ptr {f.pointer(value)}", f"i64 {length}")
                f.set(blob, f.add(f.get(blob), padded))
            empty = f.either(f.cmp("eq", kind, ArgKind.KERNEL_EXTRA), f.cmp("eq", kind, ArgKind.NULL_ONLY))
            with f.when(empty):
                f.set(word, 0)
        f.store("i64", f.get(word), "%out", f.add(f.mul(i, 8), RECORD_HEADER.size))
    f.ret("i32", 0)
    return f.text()


def copy_parameters() -> str:
    """``copy_parameters(base, aux, out, length)``: the packed parameter buffer of a launch."""
    f = Function("internal void @copy_parameters(ptr %base, ptr %aux, ptr %out, i64 %length)", "nounwind")
    source = f.pointer(f.load("i64", "%aux", AUX_SOURCE))
    with f.when(f.cmp("eq", f.load("i64", "%aux", AUX_MODE), MODE_BUFFER)):
        f.call("void", "copy", "ptr %out", f"ptr {source}", "i64 %length")
        f.ret()
    words = f.bin("lshr", "i64", f.add("%length", 7), 3)
    with f.count(words) as i:
        f.store("i64", 0, "%out", f.mul(i, 8))
    layout = f.at("%base", f.add(lay.PARAMS, f.mul(f.load("i64", "%aux", AUX_FIRST), 8)))
    with f.count(f.load("i64", "%aux", AUX_COUNT)) as i:
        pair = f.at(layout, f.mul(i, 8))
        offset, size = f.zext(f.load("i32", pair), "i32"), f.zext(f.load("i32", pair, 4), "i32")
        value = f.pointer(f.load("i64", source, f.mul(i, 8)))
        place = f.at("%out", offset)
        eight, four = f.cmp("eq", size, 8), f.cmp("eq", size, 4)
        with f.when(eight):
            f.store("i64", f.load("i64", value), place)
        with f.when(four):
            f.store("i32", f.load("i32", value), place)
        with f.unless(f.either(eight, four)):
            f.call("void", "copy", f"ptr {place}", f"ptr {value}", f"i64 {size}")
    f.ret()
    return f.text()


def outputs() -> str:
    """``outputs(desc, args, lengths, reply)``: a successful reply's bytes and names go where the arguments point."""
    f = Function("internal void @outputs(ptr %desc, ptr %args, ptr %lengths, ptr %reply)", "nounwind")
    count = f.zext(f.load("i8", "%desc", 2), "i8")
    at = f.var("i64", REPLY_HEADER.size)
    with f.count(count) as i:
        kind = f.zext(f.load("i8", _argument(f, i)), "i8")
        value = _word(f, i)
        filled = f.either(f.cmp("eq", kind, ArgKind.BYTES_OUT), f.cmp("eq", kind, ArgKind.BYTES_INOUT))
        with f.when(f.both(filled, f.cmp("ne", value, 0))):
            size = f.load("i64", "%lengths", f.mul(i, 8))
            f.call("void", "copy", f"ptr {f.pointer(value)}", f"ptr {f.at('%reply', f.get(at))}", f"i64 {size}")
            f.set(at, f.add(f.get(at), _pad(f, size)))
        with f.when(f.both(f.cmp("eq", kind, ArgKind.HANDLE_QUERY), f.cmp("ne", value, 0))):
            f.store("i64", f.load("i64", "%reply", f.get(at)), f.pointer(value))
            f.set(at, f.add(f.get(at), 8))
    f.ret()
    return f.text()


def names() -> str:
    """``names(base, desc, args, lengths, kind, give)``: for every HANDLE_OUT (kind 4) its name is written to the caller (give 1) or freed
    (give 0); for HANDLE_DESTROY (kind 5) the caller's handle is freed. Freeing needs LOCK."""
    f = Function("internal void @names(ptr %base, ptr %desc, ptr %args, ptr %lengths, i64 %kind, i1 %give)", "nounwind")
    count = f.zext(f.load("i8", "%desc", 2), "i8")
    with f.count(count) as i:
        kind = f.zext(f.load("i8", _argument(f, i)), "i8")
        with f.when(f.cmp("eq", kind, "%kind")):
            created = f.cmp("eq", kind, ArgKind.HANDLE_OUT)
            name = f.load("i64", "%lengths", f.mul(i, 8))
            with f.when("%give"):
                f.store("i64", name, f.pointer(_word(f, i)))
            with f.unless("%give"):
                f.call("void", "free_handle", "ptr %base", f"i64 {f.select(created, 'i64', name, _word(f, i))}")
    f.ret()
    return f.text()


def text() -> str:
    """This part's IR."""
    measuring = (extent, string_length, doubtful, accepted, measure_kernel, measure)
    parts = (*measuring, new_handle, free_handle, copy_parameters, encode, outputs, names)
    return "".join(part() for part in parts)
