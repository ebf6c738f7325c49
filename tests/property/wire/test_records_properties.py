"""Every row of the table round-trips; any damage decodes to something valid or raises LocalProtocolError."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanGPU.constants import MAX_THREADS
from lanGPU.driverapi import table
from lanGPU.driverapi.model import ApiFunction, ArgKind
from lanGPU.errors import LocalProtocolError
from lanGPU.wire.records import BLOB_KINDS, FLAG_PER_THREAD, MAX_OUTPUT_BYTES, REPLY_KINDS, decode, decode_reply, encode, encode_reply, pad8
from tests.helpers.record_values import values_of

ROWS = st.sampled_from(table.ROWS)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    row = draw(ROWS)
    return encode(row, draw(values_of(row)), thread=draw(st.integers(0, MAX_THREADS - 1)), token=draw(st.integers(0, 3)))


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_row_round_trips(row: ApiFunction, data: st.DataObject) -> None:
    values = data.draw(values_of(row))
    thread, token = data.draw(st.integers(0, MAX_THREADS - 1)), data.draw(st.integers(0, (1 << 32) - 1))
    flags = data.draw(st.sampled_from([0, FLAG_PER_THREAD]))
    encoded = encode(row, values, thread=thread, token=token, flags=flags)
    record = decode(memoryview(encoded), table.BY_ID)
    assert (record.row, record.thread, record.token, record.size) == (row, thread, token, len(encoded))
    assert record.flags == flags | bool(token)
    assert tuple(record.values) == values
    assert encode(row, record.values, thread=thread, token=token, flags=flags) == encoded


@pytest.mark.parametrize("row", [r for r in table.ROWS if any(a.kind in REPLY_KINDS for a in r.args)], ids=lambda row: row.name)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_the_reply_of_every_row_round_trips(row: ApiFunction, data: st.DataObject) -> None:
    request = data.draw(values_of(row))
    expected: list[bytes | int | None] = []
    for arg, value in zip(row.args, request, strict=True):
        if arg.kind not in REPLY_KINDS or value is None or (arg.kind is ArgKind.HANDLE_QUERY and not value):
            expected.append(None)
        elif arg.kind is ArgKind.HANDLE_QUERY:
            expected.append(data.draw(st.integers(0, (1 << 64) - 1)))
        else:
            length = value if isinstance(value, int) else len(value)
            expected.append(data.draw(st.binary(min_size=length, max_size=length)))
    encoded = encode_reply(1, 2, 0, [out for out in expected if out is not None])
    assert decode_reply(row, request, memoryview(encoded)).outputs == expected


def _check(data: bytes) -> None:
    """`data` decodes to a record whose every part lies inside it, or is refused."""
    try:
        record = decode(memoryview(data), table.BY_ID)
    except LocalProtocolError:
        return
    assert record.size <= len(data)
    assert record.thread < MAX_THREADS
    assert bool(record.token) == bool(record.flags & 1)
    held = sum(pad8(len(blob)) for blob in record.blobs if blob is not None)
    assert 16 + 8 * len(record.row.args) + held == record.size
    wanted = [
        pad8(len(value) if arg.kind in BLOB_KINDS else value)  # type: ignore[arg-type]
        for arg, value in zip(record.row.args, record.values, strict=True)
        if arg.kind in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT) and value is not None
    ]
    assert sum(wanted) <= MAX_OUTPUT_BYTES


@settings(max_examples=300, deadline=None)
@given(record=records(), at=st.integers(0, 1 << 20), value=st.integers(0, 255))
def test_a_changed_byte_is_valid_or_refused(record: bytes, at: int, value: int) -> None:
    data = bytearray(record)
    data[at % len(data)] = value
    _check(bytes(data))


@settings(max_examples=200, deadline=None)
@given(record=records(), end=st.integers(0, 1 << 20))
def test_a_cut_record_is_refused(record: bytes, end: int) -> None:
    with pytest.raises(LocalProtocolError):
        decode(memoryview(record)[: end % len(record)], table.BY_ID)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    _check(data)


@settings(max_examples=200, deadline=None)
@given(row=ROWS, values=st.data(), data=st.binary(max_size=100))
def test_garbage_replies_are_refused(row: ApiFunction, values: st.DataObject, data: bytes) -> None:
    request = values.draw(values_of(row))
    try:
        reply = decode_reply(row, request, memoryview(data))
    except LocalProtocolError:
        return
    assert reply.thread < MAX_THREADS
