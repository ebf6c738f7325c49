"""Call records and replies: the binary format inside RECORDS and REPLY frames.

The shim (machine code) writes records, the server's executor (machine code) reads them; this module is the reference
implementation in Python, used by the agent, by hand-written calls and by the tests of both.

A record, everything little-endian, every part padded to 8 bytes:

| offset | size | field |
| --- | --- | --- |
| 0 | u32 | size of the whole record in bytes, a multiple of 8 |
| 4 | u16 | api_id |
| 6 | u16 | flags: 1 REPLY (the sender waits), 2 PER_THREAD (the `_ptsz`/`_ptds` variant was called) |
| 8 | u32 | thread: the slot of the calling application thread, below MAX_THREADS |
| 12 | u32 | token: names the reply; 0 without REPLY |
| 16 | 8 x n | one word per argument of the row, in order |
| … | | one blob per argument with bytes to carry, in order of arguments, each padded to 8 |

| kind | word | blob |
| --- | --- | --- |
| SCALAR, SIZE, DPTR | the value | |
| HANDLE, HANDLE_DESTROY | virtual handle, 0 or special value | |
| HANDLE_OUT, HANDLE_QUERY | HANDLE_OUT: the name the client gives; HANDLE_QUERY: 1; 0 if the pointer is NULL | |
| BYTES_IN, BYTES_INOUT, CSTRING | length in bytes; NULL_WORD if the pointer is NULL | the bytes |
| BYTES_OUT | capacity in bytes; NULL_WORD if the pointer is NULL | |
| KERNEL_PARAMS | length of the packed parameter buffer; NULL_WORD if neither pointer was given | the buffer |
| KERNEL_EXTRA, NULL_ONLY | 0 | |

A reply (bulk of a REPLY frame):

| offset | size | field |
| --- | --- | --- |
| 0 | u32 | thread |
| 4 | u32 | token |
| 8 | i32 | CUresult |
| 12 | u16 | api_id of an earlier posted call whose failure this CUresult reports; 0: the call's own result |
| 14 | u16 | 0 |
| 16 | | in order: per BYTES_OUT/BYTES_INOUT with a pointer its whole capacity padded to 8, per HANDLE_QUERY 8 bytes |

A non-zero CUresult carries no output bytes. Corrupt fields: RemoteProtocolError, the connection is closed.

What `decode` refuses, and machine code with it: a size that is no multiple of 8 or does not fit what the arguments say; unknown flags; a
token without REPLY or the reverse; a thread out of range; a blob that reaches past its record; outputs of more than MAX_OUTPUT_BYTES in
all; a name (HANDLE_OUT) that is no virtual handle; a CSTRING without its NUL or over MAX_CSTRING_BYTES; anything but 0 where 0 must be.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lanGPU.constants import CUDA_SUCCESS, MAX_BULK_BYTES, MAX_CSTRING_BYTES, MAX_HANDLES, MAX_RECORD_BYTES, MAX_THREADS
from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind
from lanGPU.errors import LocalProtocolError

RECORD_HEADER = struct.Struct("<IHHII")
REPLY_HEADER = struct.Struct("<IIiHH")
FLAG_REPLY = 1
FLAG_PER_THREAD = 2
KNOWN_FLAGS: Final = FLAG_REPLY | FLAG_PER_THREAD
NULL_WORD = 0xFFFF_FFFF_FFFF_FFFF
MAX_OUTPUT_BYTES: Final = MAX_BULK_BYTES - REPLY_HEADER.size
"""Outputs that one record may ask for: its reply has to fit one frame."""

BLOB_KINDS = frozenset({ArgKind.BYTES_IN, ArgKind.BYTES_INOUT, ArgKind.CSTRING, ArgKind.KERNEL_PARAMS})
REPLY_KINDS = frozenset({ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT, ArgKind.HANDLE_QUERY})
ZERO_KINDS: Final = frozenset({ArgKind.KERNEL_EXTRA, ArgKind.NULL_ONLY})

# --- virtual handles -------------------------------------------------------------------------------------------------
HANDLE_TAG = 0x4C00_0000_0000
"""Bits 40-47 of every virtual handle: a canonical user-space number that no mapping of the program has."""
HANDLE_TAG_MASK = 0xFFFF_FF00_0000_0000
HANDLE_GENERATION_SHIFT = 24
HANDLE_INDEX_MASK = 0xFF_FFFF


def make_handle(index: int, generation: int) -> int:
    """The virtual handle with table `index` (1…) in its `generation`th life."""
    return HANDLE_TAG | (generation & 0xFFFF) << HANDLE_GENERATION_SHIFT | index


def is_handle(word: int) -> bool:
    """`word` has the form of a virtual handle."""
    return word & HANDLE_TAG_MASK == HANDLE_TAG and 0 < word & HANDLE_INDEX_MASK < MAX_HANDLES


def pad8(n: int) -> int:
    """`n` rounded up to a multiple of 8."""
    return (n + 7) & ~7


Value: TypeAlias = int | bytes | bytearray | memoryview | None
"""What `encode` takes for one argument: int for plain words and capacities, bytes for blobs, None for a NULL pointer."""
Buffer: TypeAlias = bytes | bytearray | memoryview


def encode(row: ApiFunction, values: Sequence[Value], *, thread: int, token: int = 0, flags: int = 0) -> bytes:
    """One record. `values` has one entry per argument of `row`.

    Raises:
        LocalProtocolError: a value does not fit its argument's kind.
    """
    if len(values) != len(row.args):
        raise LocalProtocolError(f"{row.name} takes {len(row.args)} arguments, not {len(values)}")
    if not 0 <= thread < MAX_THREADS:
        raise LocalProtocolError(f"thread {thread} is out of range")
    if not 0 <= token < 1 << 32:
        raise LocalProtocolError(f"token {token} is out of range")
    words: list[int] = []
    blobs: list[bytes] = []
    for arg, value in zip(row.args, values, strict=True):
        if arg.kind in BLOB_KINDS:
            if value is None:
                words.append(NULL_WORD)
                continue
            if isinstance(value, int):
                raise LocalProtocolError(f"{row.name}: {arg.name} wants bytes")
            words.append(len(value))
            blobs.append(bytes(value).ljust(pad8(len(value)), b"\0"))
        elif arg.kind in ZERO_KINDS:
            words.append(0)
        elif value is None:
            words.append(NULL_WORD if arg.kind is ArgKind.BYTES_OUT else 0)
        elif isinstance(value, int):
            words.append(value & 0xFFFF_FFFF_FFFF_FFFF)
        else:
            raise LocalProtocolError(f"{row.name}: {arg.name} wants an integer")
    if token:
        flags |= FLAG_REPLY
    _check_flags(row, flags, token)
    size = RECORD_HEADER.size + 8 * len(words) + sum(map(len, blobs))
    if size > MAX_RECORD_BYTES:
        raise LocalProtocolError(f"{row.name}: a record of {size} bytes is over the limit")
    head = RECORD_HEADER.pack(size, row.api_id, flags, thread, token)
    return b"".join([head, struct.pack(f"<{len(words)}Q", *words), *blobs])


def _check_flags(row: ApiFunction, flags: int, token: int) -> None:
    if flags & ~KNOWN_FLAGS or bool(flags & FLAG_REPLY) != bool(token):
        raise LocalProtocolError(f"{row.name}: flags {flags:#x} with token {token}")


@dataclass(slots=True)
class Record:
    """A decoded record; blobs are views into the buffer it was decoded from."""

    row: ApiFunction
    flags: int
    thread: int
    token: int
    words: list[int]
    """One per argument, as on the wire."""
    blobs: list[memoryview | None]
    """One per argument; None for a NULL pointer and for arguments without bytes."""
    size: int
    """Bytes of the whole record."""

    @property
    def values(self) -> list[int | memoryview | None]:
        """What `encode` would take to make this record again."""
        return [
            blob if arg.kind in BLOB_KINDS else None if arg.kind is ArgKind.BYTES_OUT and word == NULL_WORD else word
            for arg, word, blob in zip(self.row.args, self.words, self.blobs, strict=True)
        ]


_Plan: TypeAlias = tuple[ApiFunction, struct.Struct, tuple[tuple[int, Arg], ...]]
_plans: dict[int, _Plan] = {}
_LOOKED_AT: Final = BLOB_KINDS | REPLY_KINDS | ZERO_KINDS | {ArgKind.HANDLE_OUT}


def _plan(row: ApiFunction) -> _Plan:
    """How to unpack the words of `row`, and which of its arguments need a look; made once a row."""
    plan = _plans.get(row.api_id)
    if plan is None or plan[0] is not row:
        looked_at = tuple((i, arg) for i, arg in enumerate(row.args) if arg.kind in _LOOKED_AT)
        plan = _plans[row.api_id] = (row, struct.Struct(f"<{len(row.args)}Q"), looked_at)
    return plan


def decode(view: memoryview, rows_by_id: Mapping[int, ApiFunction]) -> Record:
    """The record at the start of `view`, checked as this module's head says.

    Raises:
        LocalProtocolError: it breaks the format, or is not there to its end.
    """
    if len(view) < RECORD_HEADER.size:
        raise LocalProtocolError("a record is shorter than its header")
    size, api_id, flags, thread, token = RECORD_HEADER.unpack_from(view)
    row = rows_by_id.get(api_id)
    if row is None:
        raise LocalProtocolError(f"api_id {api_id:#x} is unknown")
    _, unpacker, looked_at = _plan(row)
    at = RECORD_HEADER.size + unpacker.size
    if size % 8 or size < at or size > min(MAX_RECORD_BYTES, len(view)) or thread >= MAX_THREADS:
        raise LocalProtocolError(f"{row.name}: the record's header is corrupt")
    _check_flags(row, flags, token)
    words = list(unpacker.unpack_from(view, RECORD_HEADER.size))
    blobs: list[memoryview | None] = [None] * len(words)
    outputs = 0
    for i, arg in looked_at:
        word, kind = words[i], arg.kind
        if kind in BLOB_KINDS and word != NULL_WORD:
            if word > size - at:
                raise LocalProtocolError(f"{row.name}: {arg.name} is longer than its record")
            blob = blobs[i] = view[at : at + word]
            at += pad8(word)
            if kind is ArgKind.CSTRING and not (0 < word <= MAX_CSTRING_BYTES and blob[-1] == 0):
                raise LocalProtocolError(f"{row.name}: {arg.name} is no C string")
        elif kind is ArgKind.HANDLE_OUT and word and not is_handle(word):
            raise LocalProtocolError(f"{row.name}: {word:#x} is no name for a handle")
        elif kind in ZERO_KINDS and word:
            raise LocalProtocolError(f"{row.name}: {arg.name} is not 0")
        if kind in REPLY_KINDS:
            outputs += _output_bytes(kind, word)
    if at != size:
        raise LocalProtocolError(f"{row.name}: the record has {size} bytes, its arguments {at}")
    if outputs > MAX_OUTPUT_BYTES:
        raise LocalProtocolError(f"{row.name}: {outputs} bytes of outputs fit no reply")
    return Record(row, flags, thread, token, words, blobs, size)


def decode_all(view: memoryview, rows_by_id: Mapping[int, ApiFunction]) -> Iterator[Record]:
    """The records of which `view` consists. Raises LocalProtocolError as `decode` does, also for an incomplete last one."""
    while len(view):
        record = decode(view, rows_by_id)
        yield record
        view = view[record.size :]


# --- replies ---------------------------------------------------------------------------------------------------------
def _output_bytes(kind: ArgKind, word: int) -> int:
    """Bytes in the reply of an argument of REPLY_KINDS whose word is `word`."""
    if kind is ArgKind.HANDLE_QUERY:
        return 8 if word else 0
    return 0 if word == NULL_WORD else pad8(word)


def encode_reply(thread: int, token: int, result: int, outputs: Sequence[Buffer | int] = (), *, failed_api: int = 0) -> bytes:
    """One reply. `outputs` in the order of arguments: bytes of a whole capacity, an int for a HANDLE_QUERY.

    Raises:
        LocalProtocolError: outputs of a failed call, or more than fit.
    """
    if result != CUDA_SUCCESS and outputs:
        raise LocalProtocolError("a call that failed has no outputs")
    parts = [struct.pack("<Q", out) if isinstance(out, int) else bytes(out).ljust(pad8(len(out)), b"\0") for out in outputs]
    if sum(map(len, parts)) > MAX_OUTPUT_BYTES:
        raise LocalProtocolError("these outputs fit no reply")
    return b"".join([REPLY_HEADER.pack(thread, token, result, failed_api, 0), *parts])


@dataclass(slots=True)
class Reply:
    """A decoded reply. `outputs` has one entry per argument: a view of the bytes, the int of a HANDLE_QUERY, else None."""

    thread: int
    token: int
    result: int
    failed_api: int
    outputs: list[memoryview | int | None]


def decode_reply(row: ApiFunction, request: Sequence[Value], data: memoryview) -> Reply:
    """The reply `data` to a record of `row` that was encoded from the values `request`. Rows with `server=` may answer with other outputs.

    Raises:
        LocalProtocolError: it is not as long as the request asked for.
    """
    if len(data) < REPLY_HEADER.size:
        raise LocalProtocolError(f"{row.name}: a reply is shorter than its header")
    thread, token, result, failed_api, zero = REPLY_HEADER.unpack_from(data)
    if zero or thread >= MAX_THREADS or (failed_api and result == CUDA_SUCCESS):
        raise LocalProtocolError(f"{row.name}: the reply's header is corrupt")
    outputs: list[memoryview | int | None] = [None] * len(row.args)
    at = REPLY_HEADER.size
    if result == CUDA_SUCCESS:
        for i, (arg, value) in enumerate(zip(row.args, request, strict=True)):
            if arg.kind not in REPLY_KINDS or value is None:
                continue
            length = value if isinstance(value, int) else len(value)
            end = at + _output_bytes(arg.kind, length)
            if end > len(data):
                raise LocalProtocolError(f"{row.name}: the reply ends before {arg.name}")
            if arg.kind is ArgKind.HANDLE_QUERY:
                outputs[i] = int.from_bytes(data[at:end], "little") if end > at else None
            else:
                outputs[i] = data[at : at + length]
            at = end
    if at != len(data):
        raise LocalProtocolError(f"{row.name}: a reply of {len(data)} bytes, {at} were asked for")
    return Reply(thread, token, result, failed_api, outputs)
