"""Records and replies: golden bytes, what is refused, and replies of every shape."""

import struct

import pytest

from lanGPU.constants import MAX_CSTRING_BYTES, MAX_RECORD_BYTES, MAX_THREADS
from lanGPU.driverapi import table
from lanGPU.errors import LocalProtocolError
from lanGPU.wire.records import (
    FLAG_PER_THREAD,
    FLAG_REPLY,
    MAX_OUTPUT_BYTES,
    NULL_WORD,
    RECORD_HEADER,
    Value,
    decode,
    decode_all,
    decode_reply,
    encode,
    encode_reply,
    is_handle,
    make_handle,
)

LAUNCH = table.BY_NAME["cuLaunchKernel"]
MEMSET = table.BY_NAME["cuMemsetD8_v2"]
COPY = table.BY_NAME["cuMemcpyHtoD_v2"]
GLOBAL = table.BY_NAME["cuModuleGetGlobal_v2"]
CREATE = table.BY_NAME["cuStreamCreate"]
INFO = table.BY_NAME["cuMemGetInfo_v2"]


def record(name: str, *values: Value, thread: int = 0, token: int = 0, flags: int = 0) -> bytes:
    return encode(table.BY_NAME[name], values, thread=thread, token=token, flags=flags)


GOLDEN = {
    "posted scalars": (
        record("cuMemsetD8_v2", 0x7000, 0x55, 16, thread=3),
        "2800 0000 c003 0000 0300 0000 0000 0000  0070 0000 0000 0000 5500 0000 0000 0000 1000 0000 0000 0000",
    ),
    "bytes padded, a reply wanted": (
        record("cuMemcpyHtoD_v2", 0x7000, b"abcde", 5, token=9),
        "3000 0000 8003 0100 0000 0000 0900 0000  0070 0000 0000 0000 0500 0000 0000 0000 0500 0000 0000 0000 6162 6364 6500 0000",
    ),
    "NULL pointers": (
        record("cuMemGetInfo_v2", None, 8, token=1, flags=FLAG_REPLY),
        "2000 0000 0003 0100 0000 0000 0100 0000  ffff ffff ffff ffff 0800 0000 0000 0000",
    ),
    "a name": (
        record("cuStreamCreate", make_handle(5, 2), 1, flags=FLAG_PER_THREAD),
        "2000 0000 0005 0200 0000 0000 0000 0000  0500 0002 004c 0000 0100 0000 0000 0000",
    ),
}


@pytest.mark.parametrize("which", GOLDEN)
def test_records_of_version_1_keep_their_bytes(which: str) -> None:
    got, golden = GOLDEN[which]
    # api_ids are permanent, too: they are part of what is golden here.
    assert got.hex() == golden.replace(" ", "")


@pytest.mark.parametrize("which", GOLDEN)
def test_every_cut_and_every_junk_behind(which: str) -> None:
    data = GOLDEN[which][0]
    for end in range(len(data)):
        with pytest.raises(LocalProtocolError):
            decode(memoryview(data)[:end], table.BY_ID)
    assert decode(memoryview(data + b"junk!"), table.BY_ID).size == len(data)
    with pytest.raises(LocalProtocolError):
        list(decode_all(memoryview(data + b"junk!"), table.BY_ID))


def test_decode_all_yields_every_record_in_order() -> None:
    data = b"".join(data for data, _ in GOLDEN.values())
    assert [r.row.name for r in decode_all(memoryview(data), table.BY_ID)] == [
        "cuMemsetD8_v2",
        "cuMemcpyHtoD_v2",
        "cuMemGetInfo_v2",
        "cuStreamCreate",
    ]


def patched(data: bytes, offset: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, offset, value)
    return bytes(out)


GOOD = record("cuMemcpyHtoD_v2", 0x7000, b"abcde", 5, token=9)
STRING = record("cuModuleGetGlobal_v2", 8, 8, 0, b"name\0", token=1)
KERNEL = record("cuLaunchKernel", 0, 1, 1, 1, 1, 1, 1, 0, 0, b"params", None)
BAD = {
    "size 0": patched(GOOD, 0, "<I", 0),
    "size not of 8": patched(GOOD, 0, "<I", len(GOOD) - 1),
    "size without the blob": patched(GOOD, 0, "<I", len(GOOD) - 8),
    "size over the limit": patched(GOOD, 0, "<I", MAX_RECORD_BYTES + 8),
    "api_id": patched(GOOD, 4, "<H", 0xFFFF),
    "unknown flag": patched(GOOD, 6, "<H", FLAG_REPLY | 4),
    "REPLY without token": patched(GOOD, 12, "<I", 0),
    "token without REPLY": patched(GOOD, 6, "<H", 0),
    "thread": patched(GOOD, 8, "<I", MAX_THREADS),
    "blob longer than the record": patched(GOOD, 24, "<Q", 9),
    "blob shorter than the record": patched(GOOD, 24, "<Q", 0),
    "blob of nearly 2^64": patched(GOOD, 24, "<Q", NULL_WORD - 1),
    "blob that is not there": patched(GOOD, 24, "<Q", NULL_WORD),
    "string without NUL": patched(STRING, len(STRING) - 4, "<B", 1),
    "empty string": patched(patched(STRING, 16 + 24, "<Q", 0), 0, "<I", len(STRING) - 8),
    "long string": record("cuModuleGetGlobal_v2", 8, 8, 0, bytes(MAX_CSTRING_BYTES + 1), token=1),
    "outputs that fit no reply": record("cuMemGetInfo_v2", 8, MAX_OUTPUT_BYTES, token=1),
    "an output of nearly 2^64": record("cuMemGetInfo_v2", 8, NULL_WORD - 1, token=1),
    "a name that is none": record("cuStreamCreate", 0x1234, 0),
    "a name with index 0": record("cuStreamCreate", make_handle(0, 1), 0),
    "a name past the table": record("cuStreamCreate", make_handle(1 << 20, 1), 0),
    "extra that is not 0": patched(KERNEL, 16 + 80, "<Q", 1),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_records_are_refused(which: str) -> None:
    with pytest.raises(LocalProtocolError):
        decode(memoryview(BAD[which]), table.BY_ID)


def test_the_bad_records_are_one_change_away_from_good_ones() -> None:
    for data in (GOOD, STRING, KERNEL, record("cuMemGetInfo_v2", 8, MAX_OUTPUT_BYTES - 8, token=1)):
        assert decode(memoryview(data), table.BY_ID).size == len(data)


@pytest.mark.parametrize(
    ("values", "thread", "token", "flags"),
    [
        ((0, 0), 0, 0, 0),
        ((0, b"x", 0), 0, 0, 0),
        ((0, None, 0), 0, 0, 0),
        ((0, 0, 0), MAX_THREADS, 0, 0),
        ((0, 0, 0), -1, 0, 0),
        ((0, 0, 0), 0, 1 << 32, 0),
        ((0, 0, 0), 0, 0, FLAG_REPLY),
        ((0, 0, 0), 0, 0, 4),
    ],
)
def test_encode_refuses_what_does_not_fit(values: tuple[Value, ...], thread: int, token: int, flags: int) -> None:
    if values == (0, None, 0):
        assert encode(MEMSET, values, thread=0) == encode(MEMSET, (0, 0, 0), thread=0)
        return
    with pytest.raises(LocalProtocolError):
        encode(MEMSET, values, thread=thread, token=token, flags=flags)


def test_encode_wants_bytes_where_the_row_has_bytes() -> None:
    with pytest.raises(LocalProtocolError):
        encode(COPY, (0, 5, 5), thread=0)


def test_values_are_what_encode_took() -> None:
    values: list[Value] = [8, None, make_handle(3, 0), b"global\0"]
    data = encode(GLOBAL, values, thread=5, token=7)
    got = decode(memoryview(data), table.BY_ID)
    assert (got.row, got.thread, got.token, got.flags, got.values) == (GLOBAL, 5, 7, FLAG_REPLY, values)


def test_handles() -> None:
    assert make_handle(1, 0) == 0x4C00_0000_0001
    assert make_handle(2, 0x1_0003) == 0x4C00_0300_0002
    assert all(is_handle(make_handle(index, 0xFFFF)) for index in (1, (1 << 20) - 1))
    assert not any(map(is_handle, (0, 1, 2, 0x7F00_0000_0001, make_handle(0, 0), make_handle(1 << 20, 0), 1 << 48 | make_handle(1, 0))))


def test_a_reply_has_its_outputs_in_order() -> None:
    row = table.BY_NAME["cuGraphInstantiate_v2"]
    request: list[Value] = [make_handle(1, 0), 0, 1, 5, 5]
    data = encode_reply(3, 9, 0, (0x4C00_0000_0007, b"hello"))
    assert data.hex() == "03000000" + "09000000" + "00000000" + "00000000" + "07000000004c0000" + b"hello\0\0\0".hex()
    reply = decode_reply(row, request, memoryview(data))
    assert (reply.thread, reply.token, reply.result, reply.failed_api) == (3, 9, 0, 0)
    assert reply.outputs == [None, None, 0x4C00_0000_0007, b"hello", None]
    for end in range(len(data)):
        with pytest.raises(LocalProtocolError):
            decode_reply(row, request, memoryview(data)[:end])
    with pytest.raises(LocalProtocolError):
        decode_reply(row, request, memoryview(data + bytes(8)))


def test_pointers_that_were_null_have_no_place_in_a_reply() -> None:
    row = table.BY_NAME["cuGraphInstantiate_v2"]
    reply = decode_reply(row, [make_handle(1, 0), 0, 0, None, 0], memoryview(encode_reply(0, 1, 0)))
    assert reply.outputs == [None] * 5


def test_a_failed_call_has_no_outputs() -> None:
    data = encode_reply(1, 2, 700, failed_api=MEMSET.api_id)
    reply = decode_reply(INFO, [8, 8], memoryview(data))
    assert (reply.result, reply.failed_api, reply.outputs) == (700, MEMSET.api_id, [None, None])
    with pytest.raises(LocalProtocolError):
        decode_reply(INFO, [8, 8], memoryview(data + bytes(16)))
    with pytest.raises(LocalProtocolError):
        encode_reply(1, 2, 700, (b"x",))
    with pytest.raises(LocalProtocolError):
        encode_reply(1, 2, 0, (bytes(MAX_OUTPUT_BYTES), b"x"))


@pytest.mark.parametrize(("offset", "value"), [(0, MAX_THREADS), (14, 1), (12, 5)])
def test_corrupt_reply_headers_are_refused(offset: int, value: int) -> None:
    data = patched(encode_reply(0, 1, 0, (bytes(8), bytes(8))), offset, "<H", value)
    with pytest.raises(LocalProtocolError):
        decode_reply(INFO, [8, 8], memoryview(data))


def test_the_header_is_what_the_document_says() -> None:
    assert RECORD_HEADER.size == 16
    assert CREATE.api_id == 0x0500
    assert LAUNCH.api_id == 0x0600
