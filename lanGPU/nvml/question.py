"""What client and server say to each other about NVML: bytes inside the row `langpuNvml` (`lanGPU.nvml.rows`).

A question is msgpack: [exported name, [a value for each parameter]] (`lanGPU.nvml.functions.Kind` says which).
An answer is the nvmlReturn_t (i32, little-endian), then what each parameter brings back, in order, with the sizes of `output_sizes`.
After SUCCESS all of it counts, after ERROR_INSUFFICIENT_SIZE the counts, else nothing.
A corrupt question is a LocalProtocolError on the server, which closes the connection.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from lanGPU.errors import LocalProtocolError
from lanGPU.nvml.functions import FUNCTIONS, Function, Value, output_sizes

MAX_QUESTION_BYTES = 256 * 1024
"""4096 field values of 40 bytes fit."""
RESULT_BYTES = 4


class Question(NamedTuple):
    """A decoded question; `sizes` as `output_sizes`."""

    name: str
    function: Function
    values: Sequence[Value]
    sizes: list[int]


def encode_question(name: str, values: Sequence[Value]) -> bytes:
    """The bytes of a question."""
    return bytes(msgpack.packb([name, list(values)], use_bin_type=True))


def decode_question(data: bytes) -> Question:
    """A question from another machine, checked.

    Raises:
        LocalProtocolError: it is none, or about a function that is not asked of servers.
    """
    if len(data) > MAX_QUESTION_BYTES:
        raise LocalProtocolError(f"an NVML question of {len(data)} bytes")
    try:
        name, values = msgpack.unpackb(data, raw=False)
        function = FUNCTIONS.get(name)
        if function is None or function.local or not isinstance(values, list):
            raise ValueError(f"{name!r} is not asked of servers")
        return Question(name, function, values, output_sizes(function, values))
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as exc:
        raise LocalProtocolError(f"an NVML question is corrupt: {exc}") from exc


def answer_bytes(function: Function, values: Sequence[Value]) -> int:
    """Length of the answer to this question."""
    return RESULT_BYTES + sum(output_sizes(function, values))


def encode_answer(result: int, sizes: Sequence[int], outputs: Sequence[bytes]) -> bytes:
    """`outputs` padded or cut to `sizes`; empty ones count as zeros."""
    return result.to_bytes(RESULT_BYTES, "little", signed=True) + b"".join(
        bytes(data[:size]).ljust(size, b"\0") for data, size in zip(outputs, sizes, strict=True)
    )


def decode_answer(data: bytes, sizes: Sequence[int]) -> tuple[int, list[bytes]]:
    """nvmlReturn_t and what each parameter brings back.

    Raises:
        LocalProtocolError: it is too short.
    """
    if len(data) < RESULT_BYTES + sum(sizes):
        raise LocalProtocolError("an NVML answer is cut off")
    outputs, at = [], RESULT_BYTES
    for size in sizes:
        outputs.append(data[at : at + size])
        at += size
    return int.from_bytes(data[:RESULT_BYTES], "little", signed=True), outputs
