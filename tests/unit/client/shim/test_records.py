"""Every generic row through the shim: the record's bytes, the outputs, the names."""

import random
from collections.abc import Sequence

import pytest

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE
from lanGPU.driverapi.descriptor import Path, path_of
from lanGPU.driverapi.model import ApiFunction, ArgKind
from lanGPU.driverapi.table import ROWS
from lanGPU.wire.records import FLAG_PER_THREAD, Value, encode, is_handle
from tests.helpers.fake_agent import FakeAgent, filled
from tests.helpers.shim_program import Program, Spec

pytestmark = pytest.mark.slow

GENERIC = [row for row in ROWS if path_of(row) in (Path.POST, Path.SYNC) and not any(a.kind is ArgKind.KERNEL_PARAMS for a in row.args)]
ROUNDS = 6
POINTERS = (ArgKind.BYTES_IN, ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT)


def arguments(row: ApiFunction, rng: random.Random) -> tuple[list[Spec], list[Value]]:
    """Arguments of a call, and the values of the record it should become; a HANDLE_OUT's is None."""
    counts = {arg.size_from: rng.choice([0, 1, rng.randrange(2, 40)]) for arg in row.args if arg.size_from}
    specs: list[Spec] = []
    values: list[Value] = []
    for arg in row.args:
        null = rng.random() < 0.2
        match arg.kind:
            case ArgKind.BYTES_IN | ArgKind.BYTES_INOUT | ArgKind.BYTES_OUT:
                length = arg.size_const * (counts[arg.size_from] if arg.size_from else 1)
                if null:
                    specs.append(("int", 0))
                    values.append(None)
                elif arg.kind is ArgKind.BYTES_OUT:
                    specs.append(("out", length))
                    values.append(length)
                else:
                    data = rng.randbytes(length)
                    specs.append(("in", data))
                    values.append(data)
            case ArgKind.CSTRING:
                text = bytes(rng.randrange(1, 256) for _ in range(rng.choice([0, 1, 7, 8, 200, 4095]))) + b"\0"
                specs.append(("int", 0) if null else ("in", text + b"after"))
                values.append(None if null else text)
            case ArgKind.HANDLE_OUT:
                specs.append(("out", 8))
                values.append(None)
            case ArgKind.HANDLE_QUERY:
                specs.append(("int", 0) if null else ("out", 8))
                values.append(0 if null else 1)
            case ArgKind.NULL_ONLY | ArgKind.KERNEL_EXTRA:
                specs.append(("int", 0))
                values.append(0)
            case _ if arg.name in counts:
                word = counts[arg.name]
                if arg.kind is ArgKind.SCALAR:  # a 32-bit count: what is above it is not the count's
                    word |= rng.getrandbits(32) << 32
                specs.append(("int", word))
                values.append(word)
            case _:
                word = rng.choice([0, 1, 2, rng.getrandbits(31), rng.getrandbits(64)])
                specs.append(("int", word))
                values.append(word)
    return specs, values


def variants(row: ApiFunction) -> Sequence[tuple[str, int]]:
    """Exported symbols of a row and their record flags."""
    out = [(name, 0) for name in (row.name, *row.aliases)]
    return [*out, (row.name + row.per_thread, FLAG_PER_THREAD)] if row.per_thread else out


def doubtful(row: ApiFunction, values: Sequence[Value]) -> bool:
    """Whether a null pointer to copy between makes the call be waited for."""
    seen = False
    for arg, value in zip(row.args, values, strict=True):
        if arg.kind is ArgKind.DPTR:
            seen = True
            if value == 0:
                return True
        elif arg.kind in (ArgKind.BYTES_IN, ArgKind.BYTES_INOUT) and seen and value is None:
            return True
    return False


@pytest.mark.parametrize("blocking", [False, True], ids=["posting", "blocking"])
def test_every_row_becomes_the_record_of_the_reference(agent: FakeAgent, program: Program, blocking: bool) -> None:
    rng = random.Random(int(blocking))
    agent.prepare = lambda session: session.ring.set_blocking(blocking)
    cases = [(row, *v, *arguments(row, rng)) for row in GENERIC for v in variants(row) for _ in range(ROUNDS)]
    assert len({case[0].name for case in cases}) > 150
    outcomes = program.calls([(symbol, specs) for _, symbol, _, specs, _ in cases])
    program.call("cuCtxSynchronize")  # what was posted is there now
    records = agent.session.records
    assert len(records) == len(cases) + 1
    token, names = 0, set()
    for (row, symbol, flags, specs, values), (result, after), record in zip(cases, outcomes, records, strict=False):
        assert result == 0, symbol
        waits = blocking or path_of(row) is Path.SYNC or doubtful(row, values)
        token += waits
        for i, arg in enumerate(row.args):
            if arg.kind is ArgKind.HANDLE_OUT:
                name = after[i]
                assert name is not None
                values[i] = int.from_bytes(name, "little")
                assert is_handle(record.words[i])
                names.add(name)
            elif arg.kind is ArgKind.HANDLE_QUERY and specs[i][0] == "out":
                assert after[i] == (0x4C00_0000_1234).to_bytes(8, "little"), symbol
            elif arg.kind in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT) and specs[i][0] != "int":
                content = after[i]
                assert content is not None
                posted = b"\xee" * len(content) if specs[i][0] == "out" else specs[i][1]
                assert content == (filled(len(content)) if waits else posted), symbol
        assert record.row is row
        expected = encode(row, values, thread=0, token=token if waits else 0, flags=flags)
        assert encode(row, record.values, thread=record.thread, token=record.token, flags=record.flags) == expected, symbol
    assert bytes(agent.session.raw).startswith(
        b"".join(encode(r.row, r.values, thread=r.thread, token=r.token, flags=r.flags) for r in records[:-1])
    )
    assert len(names) == sum(arg.kind is ArgKind.HANDLE_OUT for case in cases for arg in case[0].args)


def test_a_string_without_its_end_in_the_limit_is_refused(agent: FakeAgent, program: Program) -> None:
    row = next(r for r in GENERIC if any(a.kind is ArgKind.CSTRING for a in r.args))
    specs, _ = arguments(row, random.Random(5))
    at = next(i for i, a in enumerate(row.args) if a.kind is ArgKind.CSTRING)
    specs[at] = ("in", b"x" * 4096 + b"\0")
    assert program.call(row.name, *specs)[0] == CUDA_ERROR_INVALID_VALUE
    specs[at] = ("in", b"x" * 4095 + b"\0")
    assert program.call(row.name, *specs)[0] == 0
    program.call("cuCtxSynchronize")
    assert [len(r.blobs[at] or b"") for r in agent.session.records[:-1]] == [4096]
