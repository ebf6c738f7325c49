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
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lanGPU.constants import MAX_RECORD_BYTES, MAX_THREADS
from lanGPU.driverapi.model import ApiFunction, ArgKind
from lanGPU.errors import LocalProtocolError

RECORD_HEADER = struct.Struct("<IHHII")
REPLY_HEADER = struct.Struct("<IIiHH")
FLAG_REPLY = 1
FLAG_PER_THREAD = 2
NULL_WORD = 0xFFFF_FFFF_FFFF_FFFF

BLOB_KINDS = frozenset({ArgKind.BYTES_IN, ArgKind.BYTES_INOUT, ArgKind.CSTRING, ArgKind.KERNEL_PARAMS})
REPLY_KINDS = frozenset({ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT, ArgKind.HANDLE_QUERY})

# --- virtual handles -------------------------------------------------------------------------------------------------
HANDLE_TAG = 0x4C00_0000_0000
"""Bits 40-47 of every virtual handle: a canonical user-space number that no mapping of the program has."""
HANDLE_TAG_MASK = 0xFFFF_FF00_0000_0000
HANDLE_GENERATION_SHIFT = 24
HANDLE_INDEX_MASK = 0xFF_FFFF


def make_handle(index: int, generation: int) -> int:
    """The virtual handle with table `index` (1…) in its `generation`th life."""
    return HANDLE_TAG | (generation & 0xFFFF) << HANDLE_GENERATION_SHIFT | index


def pad8(n: int) -> int:
    """`n` rounded up to a multiple of 8."""
    return (n + 7) & ~7


Value: TypeAlias = int | bytes | bytearray | memoryview | None
"""What `encode` takes for one argument: int for plain words and capacities, bytes for blobs, None for a NULL pointer."""


def encode(row: ApiFunction, values: Sequence[Value], *, thread: int, token: int = 0, flags: int = 0) -> bytes:
    """One record. `values` has one entry per argument of `row`.

    Raises:
        LocalProtocolError: a value does not fit its argument's kind.
    """
    if len(values) != len(row.args):
        raise LocalProtocolError(f"{row.name} takes {len(row.args)} arguments, not {len(values)}")
    if not 0 <= thread < MAX_THREADS:
        raise LocalProtocolError(f"thread {thread} is out of range")
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
        elif arg.kind in (ArgKind.KERNEL_EXTRA, ArgKind.NULL_ONLY):
            words.append(0)
        elif value is None:
            words.append(NULL_WORD if arg.kind is ArgKind.BYTES_OUT else 0)
        elif isinstance(value, int):
            words.append(value & 0xFFFF_FFFF_FFFF_FFFF)
        else:
            raise LocalProtocolError(f"{row.name}: {arg.name} wants an integer")
    if token:
        flags |= FLAG_REPLY
    size = RECORD_HEADER.size + 8 * len(words) + sum(map(len, blobs))
    if size > MAX_RECORD_BYTES:
        raise LocalProtocolError(f"{row.name}: a record of {size} bytes is over the limit")
    head = RECORD_HEADER.pack(size, row.api_id, flags, thread, token)
    return b"".join([head, struct.pack(f"<{len(words)}Q", *words), *blobs])


@dataclass(slots=True)
class Record:
    """A decoded record; blobs are views into the buffer it was decoded from."""

    row: ApiFunction
    flags: int
    thread: int
    token: int
    values: list[int | memoryview | None]
    size: int
