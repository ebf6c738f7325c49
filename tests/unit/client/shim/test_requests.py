"""What goes to the agent, the commands it answers with, and the flags it sets."""

import os
import struct
from collections.abc import Sequence

import pytest

from lanGPU.client import layout as lay
from lanGPU.client.ring import (
    Request,
    command_call,
    command_read,
    command_read_string,
    command_return,
    command_syscall,
    command_write,
)
from lanGPU.constants import (
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_UNKNOWN,
    INLINE_MAX_BYTES,
    REPLY_INLINE_MAX_BYTES,
)
from lanGPU.driverapi.exports import export_names, resolve_symbol
from lanGPU.driverapi.table import BY_NAME
from lanGPU.wire.records import FLAG_PER_THREAD
from tests.helpers.fake_agent import Answer, FakeAgent, FakeSession
from tests.helpers.shim_program import Program

pytestmark = pytest.mark.slow

ASKED = "cuModuleLoadData"  # hand-written on the client
MEMORY = """
memory = ctypes.create_string_buffer(content, len(content))
result = ctypes.addressof(memory)
"""


class Script:
    """Answers a thread's requests one after the other; what lay at SLOT_DATA when each came is kept."""

    def __init__(self, agent: FakeAgent, *answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[int, bytes]] = []
        self.requests: list[Request] = []
        agent.on_request = self

    def __call__(self, session: FakeSession, request: Request) -> Answer:
        if request.api_id == lay.API_THREAD_ATTACH:
            return [command_return(0)]
        self.requests.append(request)
        self.seen.append((request.api_id, bytes(session.ring.slot_data(request.slot, 4096))))
        return self.answers.pop(0)


def test_the_thread_introduces_itself_and_asks(agent: FakeAgent, program: Program) -> None:
    program.run("result = None")
    assert program.call(ASKED, ("int", 0x1111), ("int", 77))[0] == 0
    attach, call = agent.session.requests
    assert attach.api_id == lay.API_THREAD_ATTACH
    assert (call.api_id, call.flags, call.position, call.args[:2]) == (BY_NAME[ASKED].api_id, 0, 0, (0x1111, 77))
    assert attach.thread_pointer == program.run("import threading; result = threading.get_ident()")
    assert agent.session.ring.counts() == (0, 0, 1)
    _, abi, pid, tid, load_address, digest = agent.hellos[0]
    assert (abi, pid, tid, digest) == (lay.SHIM_ABI, program.process.pid, program.process.pid, program.info.digest)
    maps = program.run("result = open('/proc/self/maps').read()")
    assert any(line.startswith(f"{load_address:x}-") and "libcuda" in line for line in maps.splitlines())


def test_position_is_behind_what_was_posted(agent: FakeAgent, program: Program) -> None:
    program.call("cuMemsetD8_v2", ("int", 1), ("int", 2), ("int", 3))
    program.call(ASKED, ("int", 0), ("int", 0))
    assert agent.session.requests[-1].position == 16 + 3 * 8
    assert len(agent.session.records) == 1


def test_fifteen_arguments_and_per_thread_flag(agent: FakeAgent, program: Program) -> None:
    row = BY_NAME["cuMemcpyDtoHAsync_v2"]
    program.call(row.name + row.per_thread, *[("int", i) for i in (0x10, 0x20, 1 << 30, 0x40)])
    request = agent.session.requests[-1]
    assert (request.api_id, request.flags, request.args[:4]) == (row.api_id, FLAG_PER_THREAD, (0x10, 0x20, 1 << 30, 0x40))


@pytest.mark.parametrize("result", [0, 1, 999, 0xFFFF_FFFF])
def test_return(agent: FakeAgent, program: Program, result: int) -> None:
    Script(agent, [command_return(result)])
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] & 0xFFFF_FFFF == result


def test_writes_then_return(agent: FakeAgent, program: Program) -> None:
    address = program.run(MEMORY, content=bytes(400))
    pieces = [(0, b"a"), (1, b"bcd"), (16, b"e" * 8), (30, b"f" * 300), (399, b"g")]
    Script(agent, [*(command_write(address + at, data) for at, data in pieces), command_return(3)])
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] == 3
    expected = bytearray(400)
    for at, data in pieces:
        expected[at : at + len(data)] = data
    assert program.run("result = memory.raw") == bytes(expected)


def test_reading_goes_on_with_a_request(agent: FakeAgent, program: Program) -> None:
    content = os.urandom(300)
    address = program.run(MEMORY, content=content + b"text\0more")
    script = Script(
        agent,
        [command_read(address, 300)],
        [command_read_string(address + 300, 100)],
        [command_read_string(address + 300, 3)],
        [command_write(address, b"x")],
        [command_return(7)],
    )
    counts: list[int] = []
    answer = script.__call__

    def counting(session: FakeSession, request: Request) -> Answer:
        counts.append(session.ring.slot_reply_bytes(request.slot))
        return answer(session, request)

    agent.on_request = counting
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] == 7
    assert [api for api, _ in script.seen] == [BY_NAME[ASKED].api_id, *[lay.API_CONTINUE] * 4]
    assert script.seen[1][1].startswith(content)
    assert script.seen[2][1].startswith(b"text\0")
    assert script.seen[3][1].startswith(b"tex")
    assert counts[3:5] == [5, 3]
    assert program.run("result = memory.raw[:1]") == b"x"
    assert agent.session.ring.counts() == (0, 0, 1)


def test_system_call(agent: FakeAgent, program: Program) -> None:
    script = Script(agent, [command_syscall(39, ())], [command_syscall(9, (0, 0))], [command_return(0)])  # getpid; mmap of nothing
    program.call(ASKED, ("int", 0), ("int", 0))
    assert struct.unpack_from("<q", script.seen[1][1]) == (program.process.pid,)
    assert struct.unpack_from("<q", script.seen[2][1]) == (-22,)


def test_call_into_the_program(agent: FakeAgent, program: Program) -> None:
    address = program.run(
        """
        calls = []
        @ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 4)
        def callback(*args):
            calls.append(args)
            return 0x1234567890ABCDEF
        result = ctypes.cast(callback, ctypes.c_void_p).value
        """.replace("\n        ", "\n")
    )
    script = Script(agent, [command_call(address, (1, 2, 3, 1 << 63))], [command_return(0)])
    program.call(ASKED, ("int", 0), ("int", 0))
    assert program.run("result = calls") == [(1, 2, 3, 1 << 63)]
    assert struct.unpack_from("<Q", script.seen[1][1]) == (0x1234567890ABCDEF,)


def test_damaged_command(agent: FakeAgent, program: Program) -> None:
    Script(agent, [struct.pack("<II", lay.CMD_WRITE, 0) + bytes(24)])
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] == CUDA_ERROR_UNKNOWN


def test_a_reply_in_place_of_commands(agent: FakeAgent, program: Program) -> None:
    def answer(session: FakeSession, request: Request) -> Answer:
        if request.api_id == lay.API_THREAD_ATTACH:
            return [command_return(0)]
        session.ring.answer_record(request.slot, struct.pack("<IIiHH", request.slot, 0, 709, 0, 0))
        return None

    agent.on_request = answer
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] == 709


@pytest.mark.parametrize("count", [INLINE_MAX_BYTES, INLINE_MAX_BYTES + 1])
def test_large_input_goes_to_the_agent(agent: FakeAgent, program: Program, count: int) -> None:
    data = os.urandom(count)
    assert program.call("cuMemcpyHtoD_v2", ("int", 9), ("in", data), ("int", count))[0] == 0
    program.call("cuCtxSynchronize")
    inline = [bytes(r.blobs[1] or b"") for r in agent.session.records if r.row.name == "cuMemcpyHtoD_v2"]
    asked = [r.args[2] for r in agent.session.requests if r.api_id == BY_NAME["cuMemcpyHtoD_v2"].api_id]
    assert (inline, asked) == (([data], []) if count <= INLINE_MAX_BYTES else ([], [count]))


@pytest.mark.parametrize(
    ("count", "by_record"), [(REPLY_INLINE_MAX_BYTES - 16, True), (REPLY_INLINE_MAX_BYTES - 15, False), (1 << 63, False)]
)
def test_large_output_goes_to_the_agent(agent: FakeAgent, program: Program, count: int, by_record: bool) -> None:
    out = count if by_record else 16
    assert program.call("cuMemcpyDtoH_v2", ("out", out), ("int", 9), ("int", count))[0] == 0
    assert len(agent.session.records) == by_record
    assert len(agent.session.requests) == 1 + (not by_record)


# --- flags -----------------------------------------------------------------------------------------------------------


def test_before_cu_init(agent: FakeAgent, program: Program) -> None:
    agent.ready = False
    assert program.call("cuCtxSynchronize")[0] == CUDA_ERROR_NOT_INITIALIZED
    assert program.call("cuMemsetD8_v2", ("int", 1), ("int", 2), ("int", 3))[0] == CUDA_ERROR_NOT_INITIALIZED
    assert program.call("cuInit", ("int", 0))[0] == 0
    agent.session.ring.set_ready()
    assert program.call("cuCtxSynchronize")[0] == 0


def test_closed(agent: FakeAgent, program: Program) -> None:
    assert program.call("cuCtxSynchronize")[0] == 0
    agent.session.ring.set_closed(709)
    before = len(agent.session.records), len(agent.session.requests)
    assert program.call("cuCtxSynchronize")[0] == 709
    assert program.call("cuMemsetD8_v2", ("int", 1), ("int", 2), ("int", 3))[0] == 709
    assert program.call(ASKED, ("int", 0), ("int", 0))[0] == 709
    other = """
import threading
result = []
thread = threading.Thread(target=lambda: result.append(cuda.cuCtxSynchronize()))
thread.start()
thread.join()
"""
    assert program.run(other) == [709]
    assert (len(agent.session.records), len(agent.session.requests)) == before


def test_blocking_posts_wait(agent: FakeAgent, program: Program) -> None:
    agent.prepare = lambda session: session.ring.set_blocking(True)
    agent.on_record = lambda session, record: session.reply(record, 719)
    assert program.call("cuMemsetD8_v2", ("int", 1), ("int", 2), ("int", 3))[0] == 719
    assert agent.session.ring.counts() == (0, 1, 0)


def test_counts(agent: FakeAgent, program: Program) -> None:
    program.calls([("cuMemsetD8_v2", [("int", 1)] * 3)] * 3 + [("cuCtxSynchronize", [])] * 2 + [(ASKED, [("int", 0)] * 2)])
    assert agent.session.ring.counts() == (3, 2, 1)


def test_an_unsupported_function_is_told_once(agent: FakeAgent, program: Program) -> None:
    names = export_names()
    missing = [name for name in names if resolve_symbol(name)[0] is None]
    some = [missing[0], missing[-1], missing[0], missing[len(missing) // 2], missing[-1]]
    assert [result for result, _ in program.calls([(name, [("int", 0)] * 8) for name in some])] == [CUDA_ERROR_NOT_SUPPORTED] * 5
    told = [names[r.args[0]] for r in agent.session.requests if r.api_id == lay.API_UNSUPPORTED]
    assert told == [missing[0], missing[-1], missing[len(missing) // 2]]
    assert agent.session.ring.counts() == (0, 0, 0)


def test_every_symbol_can_be_called(agent: FakeAgent, program: Program) -> None:
    agent.ready = False
    names = [name for name in export_names() if resolve_symbol(name)[0] is None]
    assert len(names) > 100
    assert {result for result, _ in program.calls([(name, [("int", 0)] * 12) for name in names])} == {CUDA_ERROR_NOT_SUPPORTED}
