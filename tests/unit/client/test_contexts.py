"""Context stacks and primary contexts."""

import pytest

from tests.helpers.call_driver import Program

INVALID_VALUE, INVALID_DEVICE, INVALID_CONTEXT, DESTROYED, NOT_SUPPORTED = 1, 101, 201, 709, 801


@pytest.fixture
def program() -> Program:
    return Program()


def current(program: Program, thread: int = 0) -> int:
    out = program.put(8)
    assert program.call("cuCtxGetCurrent", out, thread=thread) == 0
    return program.u64(out)


def create(program: Program, flags: int = 0, thread: int = 0) -> int:
    out = program.put(8)
    assert program.call("cuCtxCreate_v2", out, flags, 0, thread=thread) == 0
    return program.u64(out)


def retain(program: Program) -> int:
    out = program.put(8)
    assert program.call("cuDevicePrimaryCtxRetain", out, 0) == 0
    return program.u64(out)


def names(program: Program) -> list[str]:
    return [name for name, _ in program.sent]


def test_create_pushes_without_a_second_record(program: Program) -> None:
    ctx = create(program, flags=4)
    assert current(program) == ctx
    assert program.sent == [("cuCtxCreate_v2", (ctx, 4, 0))]
    out = program.put(8)
    assert program.call("cuCtxGetFlags", out) == 0
    assert program.u32(out) == 4
    assert program.call("cuCtxGetDevice", out) == 0
    assert program.call("cuCtxGetApiVersion", ctx, out) == 0
    assert program.u32(out) == 3020


def test_failed_create_changes_nothing() -> None:
    program = Program(lambda name, values: 2)
    out = program.put(b"\xaa" * 8)
    assert program.call("cuCtxCreate_v2", out, 0, 0) == 2
    assert program.read(out, 8) == b"\xaa" * 8
    assert current(program) == 0


def test_bad_creations(program: Program) -> None:
    out = program.put(8)
    assert program.call("cuCtxCreate_v2", out, 3, 0) == INVALID_VALUE
    assert program.call("cuCtxCreate_v2", out, 0x1000, 0) == INVALID_VALUE
    assert program.call("cuCtxCreate_v2", out, 0, 5) == INVALID_DEVICE
    assert program.call("cuCtxCreate_v2", 0, 0, 0) == INVALID_VALUE
    assert program.call("cuCtxCreate_v3", out, program.put(8), 1, 0, 0) == NOT_SUPPORTED
    assert program.call("cuCtxCreate_v4", out, program.put(b"\1" + bytes(23)), 0, 0) == NOT_SUPPORTED
    assert program.call("cuCtxCreate_v4", out, program.put(24), 0, 0) == 0
    assert names(program) == ["cuCtxCreate_v2"]


def test_push_pop_tells_the_server_each_change(program: Program) -> None:
    a = create(program)
    b = create(program)
    out = program.put(8)
    assert program.call("cuCtxPopCurrent_v2", out) == 0
    assert program.u64(out) == b
    assert current(program) == a
    assert program.call("cuCtxPushCurrent_v2", b) == 0
    assert program.call("cuCtxPushCurrent_v2", b) == 0  # twice on the stack, no change
    assert names(program)[2:] == ["cuCtxSetCurrent", "cuCtxSetCurrent"]
    for expected in (b, a, 0):
        assert program.call("cuCtxPopCurrent_v2", 0) == 0
        assert current(program) == expected
    assert program.call("cuCtxPopCurrent_v2", out) == INVALID_CONTEXT
    assert program.call("cuCtxPushCurrent_v2", 0x1234) == INVALID_CONTEXT
    assert program.sent[-1] == ("cuCtxSetCurrent", (0,))


def test_set_current_replaces_and_null_pops(program: Program) -> None:
    a, b = create(program), create(program)
    assert program.call("cuCtxSetCurrent", a) == 0
    assert program.state.thread(0).stack == [a, a]
    assert program.call("cuCtxSetCurrent", 0) == 0
    assert current(program) == a
    assert program.call("cuCtxSetCurrent", 0) == 0
    assert current(program) == 0
    assert program.call("cuCtxSetCurrent", 0) == 0
    assert program.call("cuCtxSetCurrent", b) == 0
    assert program.call("cuCtxSetCurrent", 77) == INVALID_CONTEXT
    assert current(program) == b


def test_destroy(program: Program) -> None:
    a = create(program)
    assert program.call("cuCtxPushCurrent_v2", a, thread=1) == 0
    assert program.call("cuCtxDestroy_v2", a) == 0
    assert current(program) == 0
    assert current(program, thread=1) == a  # stays current there, dead
    out = program.put(8)
    assert program.call("cuCtxGetDevice", out, thread=1) == DESTROYED
    assert program.call("cuCtxGetDevice", out) == INVALID_CONTEXT
    assert program.call("cuCtxDestroy_v2", a) == INVALID_CONTEXT
    assert program.call("cuCtxDestroy_v2", 0) == INVALID_CONTEXT
    assert create(program) != a


def test_destroying_the_current_context_uncovers_the_one_below(program: Program) -> None:
    below = create(program)
    above = create(program)
    assert program.call("cuCtxDestroy_v2", above) == 0
    assert current(program) == below


def test_primary_context_is_counted_here(program: Program) -> None:
    first = retain(program)
    assert retain(program) == first
    assert names(program) == ["cuDevicePrimaryCtxRetain"]
    assert program.call("cuCtxDestroy_v2", first) == INVALID_CONTEXT
    assert program.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    assert names(program) == ["cuDevicePrimaryCtxRetain"]
    assert program.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    assert names(program)[-1] == "cuDevicePrimaryCtxRelease_v2"
    assert program.call("cuDevicePrimaryCtxRelease_v2", 0) == INVALID_CONTEXT
    assert retain(program) == first  # one name for good


def test_primary_state_and_flags(program: Program) -> None:
    flags, active = program.put(4), program.put(4)

    def state() -> tuple[int, int]:
        assert program.call("cuDevicePrimaryCtxGetState", 0, flags, active) == 0
        return program.u32(flags), program.u32(active)

    assert state() == (0, 0)
    assert program.call("cuDevicePrimaryCtxSetFlags_v2", 0, 4) == 0
    assert program.call("cuDevicePrimaryCtxSetFlags_v2", 0, 7) == INVALID_VALUE
    assert state() == (4, 0)
    retain(program)
    assert state() == (4, 1)
    assert program.call("cuDevicePrimaryCtxReset_v2", 0) == 0
    assert state()[1] == 0
    ctx = retain(program)
    assert state()[1] == 1
    assert program.call("cuCtxSetCurrent", ctx) == 0
    # both references of the server's are given back
    assert program.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    assert program.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    assert names(program).count("cuDevicePrimaryCtxRelease_v2") == 2
    assert program.call("cuDevicePrimaryCtxGetState", 3, flags, active) == INVALID_DEVICE
    assert program.call("cuDevicePrimaryCtxGetState", 0, 0, active) == INVALID_VALUE


def test_ids_are_unique(program: Program) -> None:
    out = program.put(8)
    seen = set()
    for _ in range(3):
        ctx = create(program)
        assert program.call("cuCtxGetId", ctx, out) == 0
        seen.add(program.u64(out))
        assert program.call("cuCtxDestroy_v2", ctx) == 0
    assert len(seen) == 3


def test_capture_mode_is_swapped(program: Program) -> None:
    mode = program.put((2).to_bytes(4, "little"))
    assert program.call("cuThreadExchangeStreamCaptureMode", mode) == 0
    assert program.u32(mode) == 0
    assert program.call("cuThreadExchangeStreamCaptureMode", mode) == 0
    assert program.u32(mode) == 2
    assert program.call("cuThreadExchangeStreamCaptureMode", program.put(b"\x09\0\0\0")) == INVALID_VALUE
