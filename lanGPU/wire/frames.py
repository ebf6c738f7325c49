"""Frames: the fixed header, the frame types and what each may carry.

| offset | size | type | field | corrupt |
| --- | --- | --- | --- | --- |
| 0 | 2 | u16 | MAGIC | not our protocol: the connection is closed |
| 2 | 1 | u8 | FrameType | unknown or out of state: closed |
| 3 | 1 | u8 | flags, 0 in version 1 | closed |
| 4 | 4 | u32 | stream: STREAM_CONTROL or STREAM_CALLS | closed |
| 8 | 4 | u32 | bytes of the msgpack body | over the type's limit: closed before any of it is stored |
| 12 | 4 | u32 | bytes of bulk behind the body | as above |
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgpack

from lanGPU.constants import MAX_BODY_BYTES, MAX_BULK_BYTES, MAX_KERNEL_OUTPUT_BYTES
from lanGPU.errors import LocalProtocolError

MAGIC: Final = 0x474C
HEADER: Final = struct.Struct("<HBBIII")
HEADER_BYTES: Final = HEADER.size
STREAM_CONTROL: Final = 0
STREAM_CALLS: Final = 1


class FrameType(IntEnum):
    """What a frame is. Values are part of the wire format: append only."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    RECORDS = 4
    REPLY = 5
    STATUS = 6
    LOG = 7
    GOODBYE = 8
    PING = 9
    PONG = 10
    KERNEL_OUTPUT = 11
    HOST_CALL = 12
    HOST_DONE = 13


class FrameRule(NamedTuple):
    """What a type of frame may carry; sizes in bytes."""

    stream: int
    max_body: int
    max_bulk: int


FRAME_RULES: Final[Mapping[int, FrameRule]] = {
    # HELLO is all that a stranger may make us store, so its limit is tight: its texts and 64 capabilities fit four times over.
    FrameType.HELLO: FrameRule(STREAM_CONTROL, 32 * 1024, 0),
    FrameType.WELCOME: FrameRule(STREAM_CONTROL, MAX_BODY_BYTES, 0),
    FrameType.REFUSE: FrameRule(STREAM_CONTROL, 16 * 1024, 0),
    FrameType.RECORDS: FrameRule(STREAM_CALLS, 0, MAX_BULK_BYTES),
    FrameType.REPLY: FrameRule(STREAM_CALLS, 0, MAX_BULK_BYTES),
    FrameType.STATUS: FrameRule(STREAM_CONTROL, MAX_BODY_BYTES, 0),
    FrameType.LOG: FrameRule(STREAM_CONTROL, 64 * 1024, 0),
    FrameType.GOODBYE: FrameRule(STREAM_CONTROL, 4 * 1024, 0),
    FrameType.PING: FrameRule(STREAM_CONTROL, 64, 0),
    FrameType.PONG: FrameRule(STREAM_CONTROL, 64, 0),
    # Among the calls, because it must arrive before the reply of the call that printed it. The map around the bytes takes some 20 more.
    FrameType.KERNEL_OUTPUT: FrameRule(STREAM_CALLS, MAX_KERNEL_OUTPUT_BYTES + 64, 0),
    FrameType.HOST_CALL: FrameRule(STREAM_CONTROL, 128, 0),
    FrameType.HOST_DONE: FrameRule(STREAM_CONTROL, 64, 0),
}


class Header(NamedTuple):
    """A checked frame header; sizes in bytes."""

    type: FrameType
    body: int
    bulk: int


def encode_header(frame_type: FrameType, body: int, bulk: int) -> bytes:
    """The 16 header bytes of a frame.

    Raises:
        LocalProtocolError: more bytes than the type may carry.
    """
    rule = FRAME_RULES[frame_type]
    if not (0 <= body <= rule.max_body and 0 <= bulk <= rule.max_bulk):
        raise LocalProtocolError(f"{frame_type.name} of {body} + {bulk} bytes; the limit is {rule.max_body} + {rule.max_bulk}")
    return HEADER.pack(MAGIC, frame_type, 0, rule.stream, body, bulk)


def decode_header(data: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """The checked header at `offset`, of which HEADER_BYTES must be there.

    Raises:
        LocalProtocolError: not our magic, an unknown type, reserved bits, a wrong stream or a size over its limit.
    """
    magic, frame_type, flags, stream, body, bulk = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        raise LocalProtocolError(f"these bytes are not the lanGPU protocol (magic {magic:#06x})")
    rule = FRAME_RULES.get(frame_type)
    if rule is None:
        raise LocalProtocolError(f"frame type {frame_type} is unknown")
    if flags:
        raise LocalProtocolError(f"frame flags {flags:#x} are reserved")
    if stream != rule.stream:
        raise LocalProtocolError(f"{FrameType(frame_type).name} on stream {stream}")
    if body > rule.max_body or bulk > rule.max_bulk:
        raise LocalProtocolError(f"{FrameType(frame_type).name} of {body} + {bulk} bytes; the limit is {rule.max_body} + {rule.max_bulk}")
    return Header(FrameType(frame_type), body, bulk)


def encode_body(body: Mapping[str, object]) -> bytes:
    """`body` as msgpack.

    Raises:
        LocalProtocolError: a value that msgpack has no form for.
    """
    try:
        return bytes(msgpack.packb(body, use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as exc:
        raise LocalProtocolError(f"a frame body cannot be encoded: {exc}") from exc


def encode_host_call(call: int, callback: int, status: int) -> bytes:
    """A whole HOST_CALL frame, for threads of the driver's that must not touch the connection's state."""
    data = encode_body({"call": call, "callback": callback, "status": status})
    return encode_header(FrameType.HOST_CALL, len(data), 0) + data


def decode_body(data: bytes | bytearray | memoryview) -> dict[str, object]:
    """The map in a msgpack body; an empty body is an empty map. Keys that are not text are dropped (as unknown keys are).

    Raises:
        LocalProtocolError: malformed msgpack, or not a map.
    """
    if not len(data):
        return {}
    try:
        # Lengths inside are limited by msgpack to the bytes that are there; nesting by its own stack limit.
        body = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise LocalProtocolError(f"a frame body is not msgpack: {type(exc).__name__}") from exc
    if not isinstance(body, dict):
        raise LocalProtocolError("a frame body is not a map")
    return {key: value for key, value in body.items() if isinstance(key, str)}
