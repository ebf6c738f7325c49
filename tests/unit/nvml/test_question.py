"""Questions about NVML as bytes, and what a corrupt one is."""

import msgpack
import pytest

from lanGPU.errors import LocalProtocolError
from lanGPU.nvml.functions import FUNCTIONS, MAX_ENTRIES, MAX_TEXT_BYTES, Kind, given_uuid, output_sizes
from lanGPU.nvml.names import NAMES
from lanGPU.nvml.question import MAX_QUESTION_BYTES, answer_bytes, decode_answer, decode_question, encode_answer, encode_question

MEMORY_V2 = (0x0200_0028).to_bytes(4, "little") + bytes(36)

GOOD = [
    ("nvmlDeviceGetPowerUsage", [1, None], [0, 4]),
    ("nvmlDeviceGetTemperature", [0, 0, None], [0, 0, 4]),
    ("nvmlDeviceGetMemoryInfo", [0, None], [0, 24]),
    ("nvmlDeviceGetMemoryInfo_v2", [0, MEMORY_V2], [0, 40]),
    ("nvmlDeviceGetSerial", [0, None, 30], [0, 30, 0]),
    ("nvmlDeviceGetSerial", [0, None, 1 << 30], [0, MAX_TEXT_BYTES, 0]),
    ("nvmlDeviceGetGspFirmwareVersion", [0, None], [0, 64]),
    ("nvmlDeviceGetComputeRunningProcesses_v3", [0, 3, True], [0, 4, 72]),
    ("nvmlDeviceGetComputeRunningProcesses_v3", [0, 0, False], [0, 4, 0]),
    ("nvmlDeviceGetSupportedMemoryClocks", [0, 0xFFFF_FFFF, True], [0, 4, 4 * MAX_ENTRIES]),
    ("nvmlDeviceGetFieldValues", [0, 2, bytes(80)], [0, 0, 80]),
    ("nvmlSystemGetDriverVersion", [None, 80], [80, 0]),
]
BAD = [
    b"",
    b"\xc1",
    msgpack.packb("nvmlDeviceGetPowerUsage"),
    msgpack.packb(["nvmlDeviceGetPowerUsage", [0, None], 1]),
    msgpack.packb(["nvmlDeviceGetPowerUsage", 7]),
    msgpack.packb([["nvmlDeviceGetPowerUsage"], [0, None]]),
    encode_question("nvmlDeviceSetPersistenceMode", [0, 1]),
    encode_question("nvmlDeviceGetName", [0, None, 80]),
    encode_question("system", [0]),
    encode_question("nvmlDeviceGetPowerUsage", [0]),
    encode_question("nvmlDeviceGetPowerUsage", [-1, None]),
    encode_question("nvmlDeviceGetPowerUsage", [1 << 32, None]),
    encode_question("nvmlDeviceGetPowerUsage", [b"0", None]),
    encode_question("nvmlDeviceGetPowerUsage", [True, None]),
    encode_question("nvmlDeviceGetMemoryInfo_v2", [0, MEMORY_V2[:39]]),
    encode_question("nvmlDeviceGetMemoryInfo_v2", [0, bytes(40)]),
    encode_question("nvmlDeviceGetMemoryInfo_v2", [0, None]),
    encode_question("nvmlDeviceGetSerial", [0, None, None]),
    encode_question("nvmlDeviceGetComputeRunningProcesses_v3", [0, 3, 1]),
    encode_question("nvmlDeviceGetFieldValues", [0, 3, bytes(80)]),
    encode_question("nvmlDeviceGetFieldValues", [0, MAX_ENTRIES + 1, bytes(40 * (MAX_ENTRIES + 1))]),
    encode_question("nvmlDeviceGetFieldValues", [0, 1 << 20, bytes(MAX_QUESTION_BYTES)]),
]


@pytest.mark.parametrize(("name", "values", "sizes"), GOOD)
def test_questions_arrive_as_they_were_asked(name: str, values: list[object], sizes: list[int]) -> None:
    question = decode_question(encode_question(name, values))  # type: ignore[arg-type]
    assert (question.name, list(question.values), question.sizes) == (name, values, sizes)
    assert question.function is FUNCTIONS[name]
    assert answer_bytes(question.function, question.values) == 4 + sum(sizes)


@pytest.mark.parametrize("data", BAD)
def test_corrupt_questions_are_refused(data: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        decode_question(data)


def test_uuids_in_structs() -> None:
    text = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    head = (0x0100_0034).to_bytes(4, "little")
    assert given_uuid(head + b"\1\0\0\0" + text.encode() + bytes(4)) == text
    assert given_uuid(head + b"\2\0\0\0" + bytes(range(16)) + bytes(28)) == text
    assert given_uuid(head + bytes(48)) is None


def test_answers() -> None:
    data = encode_answer(7, [0, 4, 3], [b"", b"\x05", b"abcdef"])
    assert decode_answer(data + b"padding", [0, 4, 3]) == (7, [b"", b"\x05\0\0\0", b"abc"])
    with pytest.raises(LocalProtocolError):
        decode_answer(data[:-1], [0, 4, 3])


def test_rows_are_whole() -> None:
    assert set(FUNCTIONS) <= set(NAMES)
    for name, function in FUNCTIONS.items():
        kinds = [param.kind for param in function.params]
        for place, param in enumerate(function.params):
            if param.kind in (Kind.ARRAY, Kind.PROCESSES):
                assert kinds[place - 1] is Kind.COUNT, name
            if param.kind is Kind.FIELDS:
                assert kinds[place - 1] is Kind.U32, name
            if param.kind is Kind.TEXT:
                assert param.size or kinds[place + 1] is Kind.LENGTH, name
            if param.kind in (Kind.OUT, Kind.STRUCT, Kind.ARRAY, Kind.PROCESSES, Kind.FIELDS):
                assert param.size, name
            if param.kind is Kind.STRING:
                assert function.local, name
    with pytest.raises(ValueError, match="cannot be sent"):
        output_sizes(FUNCTIONS["nvmlDeviceGetHandleByUUID"], [b"", None])
