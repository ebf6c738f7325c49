"""Kernel parameters: gathered by the layout that the agent left, or taken from ``extra``."""

import pytest

from lanGPU.constants import (
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    MAX_HANDLES,
    MAX_KERNEL_PARAMS_BYTES,
)
from lanGPU.driverapi.table import BY_NAME
from lanGPU.wire.records import FLAG_REPLY, make_handle
from tests.helpers.fake_agent import FakeAgent, FakeSession
from tests.helpers.shim_program import Program

pytestmark = pytest.mark.slow

ROW = BY_NAME["cuLaunchKernel"]
INDEX = 600_000
FUNCTION = make_handle(INDEX, 3)
LAUNCH = """
values = [ctypes.create_string_buffer(v, len(v)) for v in params]
array = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) if v is not None else None for v in values])
numbers = [1, 2, 3, 4, 5, 6, 7, 0x123]
u64 = ctypes.c_uint64
result = cuda.cuLaunchKernel(u64(function), *map(u64, numbers), array if given else u64(0), u64(0))
"""
EXTRA = """
data = ctypes.create_string_buffer(buffer, len(buffer)) if buffer is not None else None
count = ctypes.c_uint64(size)
places = {"data": ctypes.addressof(data) if data else 0, "count": ctypes.addressof(count)}
array = (ctypes.c_uint64 * len(keys))(*[places.get(k, k) for k in keys])
u64 = ctypes.c_uint64
kernel = (ctypes.c_void_p * 1)(ctypes.addressof(count))
result = cuda.cuLaunchKernel(u64(function), *[u64(1)] * 8, kernel if both else u64(0), array)
"""
USUAL = [1, "data", 2, "count", 0]


def known(params: tuple[tuple[int, int], ...], packed: int, *, index: int = INDEX, generation: int = 3) -> object:
    """A `prepare` that makes a kernel known."""

    def prepare(session: FakeSession) -> None:
        assert session.ring.set_function(index, generation, params, packed)

    return prepare


def launch(program: Program, params: list[bytes], *, function: int = FUNCTION, given: bool = True) -> int:
    return int(program.run(LAUNCH, params=params, function=function, given=given))


def extra(program: Program, keys: list[int | str], buffer: bytes | None, size: int, *, both: bool = False) -> int:
    return int(program.run(EXTRA, keys=keys, buffer=buffer, size=size, function=FUNCTION, both=both))


def packed(agent: FakeAgent, program: Program) -> list[bytes | None]:
    """Parameter buffers of the launches so far."""
    program.call("cuCtxSynchronize")
    launches = [r for r in agent.session.records if r.row is ROW]
    return [None if (blob := r.blobs[ROW.arg_index["kernelParams"]]) is None else bytes(blob) for r in launches]


@pytest.mark.parametrize(
    "layout",
    [
        ((0, 8), (8, 4), (12, 4)),
        ((0, 1), (2, 2), (4, 1), (8, 8), (16, 3), (32, 48), (81, 1)),
        ((0, 4),),
        ((7, 1),),
        ((0, 4096), (4096, 8), (4200, 2000)),
        tuple((8 * i, 8) for i in range(200)),
    ],
    ids=["usual", "odd", "one", "late", "large", "many"],
)
def test_parameters_are_gathered_with_zeros_between(agent: FakeAgent, program: Program, layout: tuple[tuple[int, int], ...]) -> None:
    size = layout[-1][0] + layout[-1][1]
    agent.prepare = known(layout, size)  # type: ignore[assignment]
    params = [bytes((i * 31 + j + 1) & 0xFF for j in range(n)) for i, (_, n) in enumerate(layout)]
    expected = bytearray(size)
    for (offset, n), value in zip(layout, params, strict=True):
        expected[offset : offset + n] = value
    # The ring's memory is not zero any more when the second comes to lie where the first ended.
    program.calls([("cuMemcpyHtoD_v2", [("int", 5), ("in", b"\xff" * 60000), ("int", 60000)])] * 71)
    assert launch(program, params) == 0
    assert launch(program, params) == 0
    assert packed(agent, program) == [bytes(expected)] * 2
    record = next(r for r in agent.session.records if r.row is ROW)
    assert record.words[:9] == [FUNCTION, 1, 2, 3, 4, 5, 6, 7, 0x123]
    assert record.words[10] == 0
    end = bytes(agent.session.raw).rfind(bytes(expected))
    assert not any(agent.session.raw[end + size : end + (size + 7) // 8 * 8])


def test_no_parameters(agent: FakeAgent, program: Program) -> None:
    agent.prepare = known((), 0)  # type: ignore[assignment]
    assert launch(program, [], given=False) == launch(program, [], given=True) == 0
    assert packed(agent, program) == [None, None]


def test_parameters_that_are_needed_and_missing(agent: FakeAgent, program: Program) -> None:
    agent.prepare = known(((0, 4),), 4)  # type: ignore[assignment]
    assert launch(program, [], given=False) == CUDA_ERROR_INVALID_VALUE
    null = LAUNCH.replace("result =", "array[0] = None\nresult =")
    assert program.run(null, params=[b"1234"], function=FUNCTION, given=True) == CUDA_ERROR_INVALID_VALUE
    assert packed(agent, program) == []


@pytest.mark.parametrize("function", [FUNCTION, make_handle(INDEX, 2), make_handle(INDEX + 1, 0)], ids=["unknown", "stale", "never"])
def test_an_unknown_layout_goes_to_the_agent(agent: FakeAgent, program: Program, function: int) -> None:
    if function != FUNCTION:
        agent.prepare = known(((0, 4),), 4)  # type: ignore[assignment]
    assert launch(program, [b"abcd"], function=function) == 0
    request = agent.session.requests[-1]
    assert (request.api_id, request.args[0], request.args[8]) == (ROW.api_id, function, 0x123)
    assert packed(agent, program) == []


@pytest.mark.parametrize("function", [0, 1, 0x7FFF_0000_1234, 0x4C00_0000_0000 | MAX_HANDLES])
def test_no_function(agent: FakeAgent, program: Program, function: int) -> None:
    assert launch(program, [], function=function) == CUDA_ERROR_INVALID_HANDLE


@pytest.mark.parametrize("size", [0, 1, 8, 31, MAX_KERNEL_PARAMS_BYTES])
def test_extra(agent: FakeAgent, program: Program, size: int) -> None:
    data = bytes(i % 251 + 1 for i in range(size))
    assert extra(program, USUAL, data or b"x", size) == 0
    assert extra(program, [2, "count", 1, "data", 0], data or b"x", size) == 0
    assert packed(agent, program) == [data, data]


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        (USUAL, MAX_KERNEL_PARAMS_BYTES + 1),
        ([1, "data", 2, 0, 0], 4),
        ([2, "count", 0], 4),
        ([3, "data", 2, "count", 0], 4),
        ([1, "data"] * 40, 4),
    ],
    ids=["long", "no size", "no buffer", "odd key", "endless"],
)
def test_extra_that_is_wrong(agent: FakeAgent, program: Program, keys: list[int | str], size: int) -> None:
    assert extra(program, keys, b"data", size) == CUDA_ERROR_INVALID_VALUE
    assert packed(agent, program) == []


def test_both(agent: FakeAgent, program: Program) -> None:
    agent.prepare = known(((0, 4),), 4)  # type: ignore[assignment]
    assert extra(program, USUAL, b"data", 4, both=True) == CUDA_ERROR_INVALID_VALUE
    assert packed(agent, program) == []


SIZED = LAUNCH.replace("numbers = [1, 2, 3, 4, 5, 6, 7, 0x123]", "numbers = [*sizes, 0x123]")


def waited_for(agent: FakeAgent, program: Program, *sizes: int, result: int = 0) -> bool:
    """Launch with these sizes; whether the program waited for the result, which then is `result`."""
    agent.on_record = lambda session, record: session.reply(record, result if record.row is ROW else 0)
    got = program.run(SIZED, params=[b"abcd"], function=FUNCTION, given=True, sizes=sizes)
    program.call("cuCtxSynchronize")
    record = [r for r in agent.session.records if r.row is ROW][-1]
    assert tuple(record.words[1:8]) == sizes
    waited = bool(record.flags & FLAG_REPLY)
    assert got == (result if waited else 0)
    return waited


@pytest.mark.parametrize(
    ("sizes", "doubtful"),
    [
        ((1, 1, 1, 1, 1, 1, 0), False),
        ((2**31 - 1, 65535, 65535, 16, 1, 64, 48 << 10), False),
        ((0, 1, 1, 1, 1, 1, 0), True),
        ((1, 1, 1, 32, 0, 1, 0), True),
        ((2**31, 1, 1, 1, 1, 1, 0), True),
        ((1, 65536, 1, 1, 1, 1, 0), True),
        ((1, 1, 65536, 1, 1, 1, 0), True),
        ((1, 1, 1, 1025, 1, 1, 0), True),
        ((1, 1, 1, 1, 1, 65, 0), True),
        ((1, 1, 1, 64, 17, 1, 0), True),
        ((1, 1, 1, 2**31, 2, 1, 0), True),
        ((1, 1, 1, 1, 1, 1, (48 << 10) + 1), True),
    ],
)
def test_a_launch_that_may_be_refused_is_waited_for(agent: FakeAgent, program: Program, sizes: tuple[int, ...], *, doubtful: bool) -> None:
    agent.prepare = known(((0, 4),), 4)  # type: ignore[assignment]
    assert waited_for(agent, program, *sizes, result=CUDA_ERROR_INVALID_VALUE) == doubtful


def test_much_shared_memory_is_waited_for_until_it_was_accepted(agent: FakeAgent, program: Program) -> None:
    agent.prepare = known(((0, 4),), 4)  # type: ignore[assignment]
    much, more = (1, 1, 1, 32, 1, 1, 60000), (1, 1, 1, 32, 1, 1, 60001)
    assert waited_for(agent, program, *much, result=CUDA_ERROR_INVALID_VALUE)
    assert waited_for(agent, program, *much)
    assert not waited_for(agent, program, *much)
    assert waited_for(agent, program, *more)
    assert not waited_for(agent, program, *much)


def test_a_null_to_copy_between_is_waited_for(agent: FakeAgent, program: Program) -> None:
    calls = [
        ("cuMemcpyHtoD_v2", [("int", 0), ("in", b"abcd"), ("int", 4)]),
        ("cuMemcpyHtoD_v2", [("int", 64), ("int", 0), ("int", 4)]),
        ("cuMemsetD8_v2", [("int", 0), ("int", 1), ("int", 4)]),
        ("cuMemcpyHtoD_v2", [("int", 64), ("in", b"abcd"), ("int", 4)]),
    ]
    agent.on_record = lambda session, record: session.reply(record, CUDA_ERROR_INVALID_VALUE)
    assert [result for result, _ in program.calls(calls)] == [CUDA_ERROR_INVALID_VALUE] * 3 + [0]  # type: ignore[arg-type]
