"""Which way a call takes: posted, waited for, or asked of the agent."""

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir import place as pl
from lanGPU.client.shim_ir.encode import DOUBTFUL_LAUNCH, TOTAL_DOUBTFUL, TOTALS, USE_AGENT
from lanGPU.client.shim_ir.questions import CAPTURE_BEGINS
from lanGPU.client.shim_ir.slots import NO_SLOT
from lanGPU.constants import (
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_UNKNOWN,
    CUDA_SUCCESS,
    MAX_ARGS,
)
from lanGPU.driverapi.descriptor import DESCRIPTOR_BYTES, FLAG_LOOKED_AT, FLAG_UPLOAD, FLAG_WAITS, FLAG_WORK, Path
from lanGPU.driverapi.model import ArgKind
from lanGPU.native.irtext import Function
from lanGPU.native.x86_64 import MAX_REGISTER_ARGS
from lanGPU.nvml import results as nvml_results
from lanGPU.wire.records import FLAG_REPLY

NO_ROW = 0xFFFF


def constant(name: str, data: bytes) -> str:
    """Read-only bytes as a global of that name."""
    text = "".join(f"\\{b:02X}" for b in data)
    return f'@{name} = internal constant [{len(data)} x i8] c"{text}", align 16\n'


def tables(descriptors: bytes, symbols: bytes) -> str:
    """Read-only data: descriptors, and for each exported symbol u16 index of its descriptor (NO_ROW: none), u16 record flags."""

    return (
        constant("descriptors", descriptors)
        + constant("symbols", symbols)
        + (f"@reported = internal global [{max(1, len(symbols) // 4)} x i8] zeroinitializer\n")
    )


def carry() -> str:
    """``carry(page, base, number, desc, args, flags, wait) -> i32``: a call as a record; USE_AGENT if that cannot be.

    What is doubtful is waited for anyway.
    """
    f = Function("internal i32 @carry(ptr %page, ptr %base, i32 %number, ptr %desc, ptr %args, i16 %flags, i1 %wait)", "nounwind noinline")
    lengths, totals, aux = f.array("i64", MAX_ARGS), f.array("i64", TOTALS), f.array("i64", 4)
    status = f.call("i32", "measure", "ptr %base", "ptr %desc", "ptr %args", f"ptr {lengths}", f"ptr {totals}", f"ptr {aux}")
    with f.when(f.cmp("ne", status, 0, "i32")):
        f.ret("i32", status)
    doubtful = f.cmp("ne", f.load("i64", totals, TOTAL_DOUBTFUL), 0)
    wait = f.either("%wait", doubtful)
    slot = f.at("%base", f.add(lay.SLOTS, f.mul(f.zext("%number", "i32"), lay.SLOT_BYTES)))
    token, seen = f.var("i32", 0), f.var("i32", 0)
    with f.when(wait):
        following = f.add(f.load("i32", slot, lay.SLOT_TOKEN), 1, "i32")
        # Bit 31 is the agent's own; 0 says "no reply".
        following = f.land(following, 0x7FFF_FFFF, "i32")
        f.set(token, f.select(f.cmp("eq", following, 0, "i32"), "i32", 1, following))
        f.store("i32", f.get(token), slot, lay.SLOT_TOKEN)
        f.set(seen, f.load_atomic("i32", slot, lay.SLOT_REPLY_SEQ))
    size = f.load("i64", totals)
    named = f.cmp("ne", f.load("i64", totals, 16), 0)
    common = ("ptr %base", "ptr %desc", "ptr %args", f"ptr {lengths}")

    def give_back(kind: ArgKind) -> None:
        f.call("void", "names", *common, f"i64 {int(kind)}", "i1 false")

    f.call("void", "lock", "ptr %base")
    with f.unless(f.call("i1", "room", "ptr %page", "ptr %base", f"i64 {size}")):
        f.call("void", "unlock", "ptr %base")
        f.ret("i32", f.call("i32", "ended", "ptr %base"))
    head = f.load("i64", "%base", lay.HEAD)
    out = f.at("%base", f.add(lay.RING, f.land(head, lay.RING_BYTES - 1)))
    reply_flag = f.select(wait, "i16", FLAG_REPLY, 0)
    flags = f.bin("or", "i16", "%flags", reply_flag)
    numbers = ("i32 %number", f"i32 {f.get(token)}", f"i16 {flags}")
    status = f.call("i32", "encode", *common, f"ptr {totals}", f"ptr {aux}", f"ptr {out}", *numbers)
    with f.when(f.cmp("ne", status, 0, "i32")):
        f.call("void", "unlock", "ptr %base")
        f.ret("i32", status)
    with f.unless(wait), f.when(named):
        # Names go to the caller before anybody can see the record's effects; freed ones may be given again right behind it.
        f.call("void", "names", *common, f"i64 {int(ArgKind.HANDLE_OUT)}", "i1 true")
        give_back(ArgKind.HANDLE_DESTROY)
    counter = f.select(wait, "i64", lay.COUNT_SYNC, lay.COUNT_POSTED)
    f.store("i64", f.add(f.load("i64", "%base", counter), 1), "%base", counter)
    f.store_atomic("i64", f.add(head, size), "%base", lay.HEAD)
    f.call("void", "unlock", "ptr %base")
    f.call("void", "doorbell", "ptr %base")
    with f.unless(wait):
        f.ret("i32", CUDA_SUCCESS)
    result = f.var("i32")
    answered = f.call("i1", "wait", "ptr %page", "ptr %base", f"ptr {slot}", f"i32 {f.get(seen)}")
    with f.unless(answered):
        f.set(result, f.call("i32", "ended", "ptr %base"))
    with f.when(answered):
        data = f.at(slot, lay.SLOT_DATA)
        is_record = f.cmp("eq", f.load("i32", slot, lay.SLOT_REPLY_KIND), lay.REPLY_RECORD, "i32")
        with f.when(is_record):
            f.set(result, f.load("i32", data, 8))
            with f.when(f.cmp("eq", f.get(result), 0, "i32")):
                # A shorter reply would leave an earlier one's bytes to be taken for this call's.
                size = f.zext(f.load("i32", slot, lay.SLOT_REPLY_BYTES), "i32")
                whole = f.cmp("eq", size, f.load("i64", totals, 8))
                with f.when(whole):
                    f.call("void", "outputs", "ptr %desc", "ptr %args", f"ptr {lengths}", f"ptr {data}")
                with f.unless(whole):
                    f.set(result, CUDA_ERROR_UNKNOWN)
        with f.unless(is_record):
            outcome = f.call("i64", "obey", f"ptr {slot}")
            f.set(result, CUDA_ERROR_UNKNOWN)
            with f.when(f.cmp("sge", outcome, 0)):
                f.set(result, f.trunc(outcome))
    launch = f.cmp("eq", f.load("i64", totals, TOTAL_DOUBTFUL), DOUBTFUL_LAUNCH)
    with f.when(f.both(launch, f.cmp("eq", f.get(result), 0, "i32"))):
        f.call("void", "accepted", "ptr %base", "ptr %args")
    with f.unless(named):
        f.ret("i32", f.get(result))
    success = f.cmp("eq", f.get(result), 0, "i32")
    with f.when(success):
        f.call("void", "names", *common, f"i64 {int(ArgKind.HANDLE_OUT)}", "i1 true")
    f.call("void", "lock", "ptr %base")
    with f.when(success):
        give_back(ArgKind.HANDLE_DESTROY)
    with f.unless(success):
        give_back(ArgKind.HANDLE_OUT)
    f.call("void", "unlock", "ptr %base")
    f.ret("i32", f.get(result))
    return f.text()


def ask_agent() -> str:
    """``ask_agent(page, base, number, api, args, count, flags) -> i32``: raw arguments into the slot, then `ask`."""
    f = Function(
        "internal i32 @ask_agent(ptr %page, ptr %base, i32 %number, i32 %api, ptr %args, i64 %count, i16 %flags)", "nounwind noinline"
    )
    slot = f.at("%base", f.add(lay.SLOTS, f.mul(f.zext("%number", "i32"), lay.SLOT_BYTES)))
    with f.count("%count") as i:
        f.store("i64", f.load("i64", "%args", f.mul(i, 8)), slot, f.add(lay.SLOT_ARGS, f.mul(i, 8)))
    f.store("i32", f.zext("%flags", "i16", "i32"), slot, lay.SLOT_FLAGS)
    f.ret("i32", f.call("i32", "ask", "ptr %page", "ptr %base", "i32 %number", "i32 %api"))
    return f.text()


def route() -> str:
    """``route(symbol index, registers, stack) -> i32``: every exported function's body."""
    f = Function("internal i32 @route(i32 %index, ptr %registers, ptr %stack)", "nounwind noinline")
    page = f.var("ptr")
    f.set(page, f.op("load atomic ptr, ptr @private acquire, align 8"))
    ready = f.var("i1", "false")
    with f.when(f.op(f"icmp ne ptr {f.get(page)}, null")):
        f.set(ready, f.cmp("eq", f.load_atomic("i32", f.get(page), pl.STATE), pl.ATTACHED, "i32"))
    with f.unless(f.get(ready)):
        failure = f.array("i32", 1)
        f.set(page, f.call("ptr", "attach", f"ptr {failure}"))
        with f.when(f.op(f"icmp eq ptr {f.get(page)}, null")):
            f.ret("i32", f.load("i32", failure))
    here = f.get(page)
    base = f.load("ptr", here)
    with f.when(f.cmp("ne", f.land(f.load_atomic("i32", base, lay.FLAGS), lay.FLAG_CLOSED, "i32"), 0, "i32")):
        f.ret("i32", f.load("i32", base, lay.CLOSED_RESULT))
    number = f.call("i32", "find_slot", f"ptr {here}", f"ptr {base}")
    with f.when(f.cmp("slt", number, 0, "i32")):
        out_of_slots = f.cmp("eq", number, NO_SLOT, "i32")
        f.ret("i32", f.select(out_of_slots, "i32", CUDA_ERROR_OUT_OF_MEMORY, f.call("i32", "ended", f"ptr {base}")))
    flags = f.load_atomic("i32", base, lay.FLAGS)
    symbol = f.at("@symbols", f.mul(f.zext("%index", "i32"), 4))
    row = f.zext(f.load("i16", symbol), "i16")
    record_flags = f.load("i16", symbol, 2)
    with f.when(f.cmp("eq", row, NO_ROW)):
        mark = f.at("@reported", f.zext("%index", "i32"))
        with f.when(f.cmp("eq", f.load("i8", mark), 0, "i8")):
            f.store("i8", 1, mark)
            word = f.array("i64", 1)
            f.store("i64", f.zext("%index", "i32"), word)
            arguments = (f"ptr {here}", f"ptr {base}", f"i32 {number}", f"i32 {lay.API_UNSUPPORTED}", f"ptr {word}", "i64 1", "i16 0")
            f.call("i32", "ask_agent", *arguments)
        f.ret("i32", CUDA_ERROR_NOT_SUPPORTED)
    descriptor = f.at("@descriptors", f.mul(row, DESCRIPTOR_BYTES))
    count = f.zext(f.load("i8", descriptor, 2), "i8")
    args = f.array("i64", MAX_ARGS)
    for register in range(MAX_REGISTER_ARGS):
        f.store("i64", f.load("i64", "%registers", 8 * register), args, 8 * register)
    on_stack = f.sub(count, MAX_REGISTER_ARGS)
    with f.when(f.cmp("sgt", on_stack, 0)), f.count(on_stack) as i:
        offset = f.mul(i, 8)
        f.store("i64", f.load("i64", "%stack", offset), args, f.add(offset, 8 * MAX_REGISTER_ARGS))
    question = f.zext(f.load("i16", descriptor, 6), "i16", "i32")
    place = (f"ptr {here}", f"ptr {base}", f"i32 {number}", f"ptr {descriptor}", f"ptr {args}")
    with f.when(f.cmp("ne", question, 0, "i32")):
        with f.when(f.cmp("ne", f.land(flags, lay.FLAG_READY, "i32"), 0, "i32")):
            known = f.call("i32", "answer", *place, f"i32 {f.land(question, CAPTURE_BEGINS - 1, 'i32')}")
            with f.unless(f.cmp("eq", known, USE_AGENT, "i32")):
                f.ret("i32", known)
        with f.when(f.cmp("ne", f.land(question, CAPTURE_BEGINS, "i32"), 0, "i32")):
            f.atomic_add("i32", 1, base, lay.CAPTURES)
    result = f.call("i32", "travel", *place, f"i32 {flags}", f"i16 {record_flags}")
    with f.when(f.cmp("uge", question, CAPTURE_BEGINS, "i32")):
        f.call("void", "count_capture", f"ptr {base}", f"i32 {question}", f"i32 {result}")
    f.ret("i32", result)
    return f.text()


def travel() -> str:
    """``travel(page, base, number, desc, args, flags, record flags) -> i32``: a call by the way that its descriptor says."""
    f = Function(
        "internal i32 @travel(ptr %here, ptr %base, i32 %number, ptr %descriptor, ptr %args, i32 %flags, i16 %record_flags)", "nounwind"
    )
    here, base, number, descriptor, args = "%here", "%base", "%number", "%descriptor", "%args"
    flags, record_flags = "%flags", "%record_flags"
    count = f.zext(f.load("i8", descriptor, 2), "i8")
    path = f.load("i8", descriptor, 3)
    by_agent = f.cmp("eq", path, Path.AGENT, "i8")
    shared = f.cmp("ne", f.land(flags, lay.FLAG_SHARED, "i32"), 0, "i32")
    kind = f.zext(f.load("i8", descriptor, 4), "i8", "i32")
    captures = f.cmp("ne", f.load_atomic("i32", base, lay.CAPTURES), 0, "i32")
    looked_at = f.var("i1", f.both(captures, f.cmp("ne", f.land(kind, FLAG_UPLOAD, "i32"), 0, "i32")))
    with f.when(shared):
        seen = f.cmp("ne", f.land(kind, FLAG_LOOKED_AT, "i32"), 0, "i32")
        only_work = f.cmp("eq", f.land(kind, FLAG_LOOKED_AT | FLAG_WAITS | FLAG_WORK, "i32"), FLAG_LOOKED_AT | FLAG_WORK, "i32")
        nothing_new = f.both(only_work, f.cmp("ne", f.land(flags, lay.FLAG_DEVICE_PHASE, "i32"), 0, "i32"))
        f.set(looked_at, f.either(f.get(looked_at), f.select(nothing_new, "i1", "false", seen)))
    with f.unless(f.either(by_agent, f.get(looked_at))):
        with f.when(f.cmp("eq", f.land(flags, lay.FLAG_READY, "i32"), 0, "i32")):
            f.ret("i32", CUDA_ERROR_NOT_INITIALIZED)
        blocking = f.cmp("ne", f.land(flags, lay.FLAG_BLOCKING, "i32"), 0, "i32")
        wait = f.either(f.cmp("eq", path, Path.SYNC, "i8"), blocking)
        arguments = (f"ptr {here}", f"ptr {base}", f"i32 {number}", f"ptr {descriptor}", f"ptr {args}", f"i16 {record_flags}", f"i1 {wait}")
        result = f.call("i32", "carry", *arguments)
        with f.unless(f.cmp("eq", result, USE_AGENT, "i32")):
            f.ret("i32", result)
    api = f.zext(f.load("i16", descriptor), "i16", "i32")
    arguments = (f"ptr {here}", f"ptr {base}", f"i32 {number}", f"i32 {api}", f"ptr {args}", f"i64 {count}", f"i16 {record_flags}")
    f.ret("i32", f.call("i32", "ask_agent", *arguments))
    return f.text()


def dispatch(nvml: range, error_string: int) -> str:
    """``dispatch(symbol index, registers, stack) -> i64``: what trampolines enter; `route`, but for what is NVML's own.

    `nvml`: symbol indexes of NVML's functions, the last ones; `error_string`: that of nvmlErrorString, which returns an address and is
    called when nothing else works any more. A CUresult of the shim's (no agent, no server) becomes NVML's word for it.
    """
    f = Function("i64 @dispatch(i32 %index, ptr %registers, ptr %stack)", "nounwind noinline")
    with f.when(f.cmp("eq", "%index", error_string, "i32")):
        code = f.load("i32", "%registers")
        known = f.select(f.cmp("ult", code, _TEXTS - 1, "i32"), "i32", code, _TEXTS - 1)
        text = f.at("@nvml_texts", f.mul(f.zext(known, "i32"), _TEXT_BYTES))
        f.ret("i64", f.op(f"ptrtoint ptr {text} to i64"))
    result = f.var("i32", f.call("i32", "route", "i32 %index", "ptr %registers", "ptr %stack"))
    with f.when(f.cmp("uge", "%index", nvml.start, "i32")):
        said = f.get(result)
        foreign = f.both(f.cmp("ugt", said, nvml_results.LAST_KNOWN, "i32"), f.cmp("ne", said, nvml_results.ERROR_UNKNOWN, "i32"))
        with f.when(foreign):
            lost = f.either(
                f.cmp("eq", said, CUDA_ERROR_CONTEXT_IS_DESTROYED, "i32"), f.cmp("eq", said, CUDA_ERROR_SYSTEM_NOT_READY, "i32")
            )
            f.set(result, f.select(lost, "i32", nvml_results.ERROR_GPU_IS_LOST, nvml_results.ERROR_DRIVER_NOT_LOADED))
    f.ret("i64", f.zext(f.get(result), "i32"))
    return f.text()


_TEXTS = nvml_results.LAST_KNOWN + 2
_TEXT_BYTES = 128
"""Places of @nvml_texts: nvmlReturn_t from 0 to the last with a text, then that of all others."""


def nvml_texts() -> str:
    """Read-only data: NUL-terminated texts, _TEXT_BYTES each."""
    texts = [nvml_results.text(code).encode() for code in (*range(_TEXTS - 1), nvml_results.ERROR_UNKNOWN)]
    if max(map(len, texts)) >= _TEXT_BYTES:
        raise ValueError("a text of NVML's is too long")
    return constant("nvml_texts", b"".join(text.ljust(_TEXT_BYTES, b"\0") for text in texts))


def text(descriptors: bytes, symbols: bytes, nvml: range, error_string: int) -> str:
    """This part's IR."""
    own = tables(descriptors, symbols) + nvml_texts()
    return own + carry() + ask_agent() + travel() + route() + dispatch(nvml, error_string)
