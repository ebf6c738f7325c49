"""Replies that are not what their call asked for: never another call's bytes."""

import pytest

from lanGPU.constants import CUDA_ERROR_UNKNOWN
from tests.helpers.fake_agent import FakeAgent, filled
from tests.helpers.shim_program import Program

ASKED = [
    ("cuCtxGetLimit", [("out", 8), ("int", 0)]),
    ("cuMemcpyDtoH_v2", [("out", 100), ("int", 0), ("int", 100)]),
    ("cuEventElapsedTime", [("out", 4), ("int", 0), ("int", 0)]),
]


@pytest.mark.parametrize(("symbol", "specs"), ASKED, ids=[symbol for symbol, _ in ASKED])
@pytest.mark.parametrize("change", [-8, 8], ids=["too short", "too long"])
def test_a_reply_of_another_size(agent: FakeAgent, program: Program, symbol: str, specs: list[tuple[str, int]], change: int) -> None:
    count = specs[0][1]
    padded = (count + 7) & ~7
    assert program.call(symbol, *specs) == (0, [filled(count), *[None] * (len(specs) - 1)])
    agent.on_record = lambda session, record: session.reply(record, 0, [b"\x77" * (padded + change)] if padded + change else [])
    result, after = program.call(symbol, *specs)
    assert (result, after[0]) == (CUDA_ERROR_UNKNOWN, b"\xee" * count)


def test_outputs_nobody_asked_for(agent: FakeAgent, program: Program) -> None:
    agent.on_record = lambda session, record: session.reply(record, 0, [b"\x77" * 8])
    assert program.call("cuCtxSynchronize")[0] == CUDA_ERROR_UNKNOWN


def test_a_failure_needs_no_outputs(agent: FakeAgent, program: Program) -> None:
    agent.on_record = lambda session, record: session.reply(record, 1)
    assert program.call("cuCtxGetLimit", ("out", 8), ("int", 0)) == (1, [b"\xee" * 8, None])
