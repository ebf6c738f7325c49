"""Names of handles: who gives them, when they come back."""

import pytest

from lanGPU.client import layout as lay
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE
from lanGPU.wire.records import HANDLE_INDEX_MASK, make_handle
from tests.helpers.fake_agent import FakeAgent, FakeSession
from tests.helpers.shim_program import Program

pytestmark = pytest.mark.slow


def create(program: Program) -> int:
    """A stream: a posted call that names."""
    result, after = program.call("cuStreamCreate", ("out", 8), ("int", 0))
    assert result == 0
    assert after[0] is not None
    return int.from_bytes(after[0], "little")


def destroy(program: Program, handle: int) -> int:
    return program.call("cuStreamDestroy_v2", ("int", handle))[0]


def test_a_name_comes_back_in_its_next_generation(agent: FakeAgent, program: Program) -> None:
    first, second = create(program), create(program)
    assert (first, second) == (make_handle(1, 0), make_handle(2, 0))
    assert destroy(program, first) == 0
    assert destroy(program, first) == 0  # sent, for the server to refuse; the name is freed once
    assert create(program) == make_handle(1, 1)
    assert create(program) == make_handle(3, 0)
    destroy(program, first)
    assert create(program) == make_handle(4, 0)
    program.call("cuCtxSynchronize")
    assert [r.words[0] for r in agent.session.records if r.row.name == "cuStreamDestroy_v2"] == [first] * 3


@pytest.mark.parametrize(
    "stranger", [make_handle(77, 0), make_handle(lay.AGENT_HANDLE_BASE + 5, 0), 1, 2, 0, 0xDEAD_BEEF, 0x4C00_0000_0000]
)
def test_a_handle_that_was_never_given_is_not_freed(agent: FakeAgent, program: Program, stranger: int) -> None:
    program.call("cuStreamDestroy_v2", ("int", stranger))
    assert [create(program) for _ in range(80)] == [make_handle(i, 0) for i in range(1, 81)]


def test_a_failed_creation_gives_its_name_back_and_writes_nothing(agent: FakeAgent, program: Program) -> None:
    agent.prepare = lambda session: session.ring.set_blocking(True)
    agent.on_record = lambda session, record: session.reply(record, 2)
    assert program.call("cuStreamCreate", ("out", 8), ("int", 0)) == (2, [b"\xee" * 8, None])
    agent.on_record = lambda session, record: session.reply(record)
    assert create(program) == make_handle(1, 1)


def test_a_failed_destruction_keeps_the_name(agent: FakeAgent, program: Program) -> None:
    agent.prepare = lambda session: session.ring.set_blocking(True)
    stream = create(program)
    agent.on_record = lambda session, record: session.reply(record, 400)
    assert destroy(program, stream) == 400
    agent.on_record = lambda session, record: session.reply(record)
    assert create(program) == make_handle(2, 0)
    assert destroy(program, stream) == 0
    assert create(program) == make_handle(1, 1)


def test_a_failed_creation_from_a_pointer_to_null(agent: FakeAgent, program: Program) -> None:
    assert program.call("cuStreamCreate", ("int", 0), ("int", 0))[0] == CUDA_ERROR_INVALID_VALUE
    assert agent.session.records == []


def test_no_names_are_left(agent: FakeAgent, program: Program) -> None:
    def nearly_used_up(session: FakeSession) -> None:
        session.ring.bytes[lay.NEXT_HANDLE : lay.NEXT_HANDLE + 4] = (lay.AGENT_HANDLE_BASE - 1).to_bytes(4, "little")

    agent.prepare = nearly_used_up
    last = create(program)
    assert last & HANDLE_INDEX_MASK == lay.AGENT_HANDLE_BASE - 1
    assert program.call("cuStreamCreate", ("out", 8), ("int", 0)) == (2, [b"\xee" * 8, None])
    destroy(program, last)
    assert create(program) == make_handle(lay.AGENT_HANDLE_BASE - 1, 1)
    program.call("cuCtxSynchronize")
    assert len(agent.session.records) == 4
