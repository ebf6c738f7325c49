"""Protocol version 1, byte for byte. These bytes are what released peers say and expect: they change only with PROTOCOL_VERSION.

Each frame and record is built from its meaning and must give the frozen bytes; the frozen bytes must give the meaning back.
"""

from dataclasses import replace
from typing import Final

import pytest

from lanGPU.constants import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from lanGPU.driverapi.table import BY_ID, BY_NAME
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role
from lanGPU.wire.frames import encode_host_call
from lanGPU.wire.handshake import DeviceInfo, Hello, Refusal, Welcome
from lanGPU.wire.records import FLAG_PER_THREAD, Value, decode, decode_reply, encode, encode_reply, make_handle

HELLO: Final = Hello(min=1, max=1, purpose="session", caps=("a",), package="0.1.0", program="python", pid=7, host="laptop")
DEVICE: Final = DeviceInfo("GPU", bytes(range(16)), 1 << 33, "0000:01:00.0", {75: 8, 76: 6}, b"")
WELCOME: Final = Welcome("ab", "desk", 13000, (DEVICE,), False, 1, (), "0.1.0")
REFUSAL: Final = Refusal("busy", "full", "wait", 1, 1)

HELLO_BYTES: Final = bytes.fromhex(
    "4c47010000000000510000000000000088a36d696e01a36d617801a7707572706f7365a773657373696f6ea46361707391a161a77061636b616765a5302e312e30"
    "a770726f6772616da6707974686f6ea370696407a4686f7374a66c6170746f70"
)
WELCOME_BYTES: Final = bytes.fromhex(
    "4c47020000000000bf0000000000000088a776657273696f6e01a46361707390a77061636b616765a5302e312e30a773657373696f6ea26162a6736572766572a4"
    "6465736bae6472697665725f76657273696f6ecd32c8a8656d756c61746564c2a7646576696365739186a46e616d65a3475055a475756964c41000010203040506"
    "0708090a0b0c0d0e0fab746f74616c5f6279746573cf0000000200000000aa7063695f6275735f6964ac303030303a30313a30302e30aa61747472696275746573"
    "824b084c06a46c756964c400"
)
REFUSAL_BYTES: Final = bytes.fromhex(
    "4c470300000000002e0000000000000085a6726561736f6ea462757379a76d657373616765a466756c6ca468696e74a477616974a36d696e01a36d617801"
)
RECORDS_BYTES: Final = bytes.fromhex("4c47040001000000000000001000000010000000530101000000000001000000")
REPLY_BYTES: Final = bytes.fromhex("4c47050001000000000000001000000000000000010000000000000000000000")
LOG_BYTES: Final = bytes.fromhex("4c47070000000000140000000000000082a56c6576656ca56572726f72a474657874a178")
KERNEL_OUTPUT_BYTES: Final = bytes.fromhex("4c470b00010000000f0000000000000082a2666402a464617461c403616263")
HOST_CALL_BYTES: Final = bytes.fromhex("4c470c00000000001b0000000000000083a463616c6c03a863616c6c6261636b07a6737461747573cd02bc")
HOST_DONE_BYTES: Final = bytes.fromhex("4c470d0000000000070000000000000081a463616c6c03")
GOODBYE_BYTES: Final = bytes.fromhex("4c470800000000000d0000000000000081a6726561736f6ea4646f6e65")

FUNCTION: Final = make_handle(3, 2)
STREAM: Final = make_handle(4, 1)
RECORDS: Final[dict[str, tuple[list[Value], dict[str, int], str]]] = {
    "cuLaunchKernel": (
        [FUNCTION, 1, 2, 3, 32, 1, 1, 64, STREAM, bytes(range(1, 10)), None],
        {"thread": 5},
        "7800000000060000050000000000000003000002004c0000010000000000000002000000000000000300000000000000200000000000000001000000000000000100"
        "000000000000400000000000000004000001004c00000900000000000000000000000000000001020304050607080900000000000000",
    ),
    "cuMemcpyHtoDAsync_v2": (
        [0x1000, b"abc", 3, 0],
        {"thread": 1, "flags": FLAG_PER_THREAD},
        "3800000081030200010000000000000000100000000000000300000000000000030000000000000000000000000000006162630000000000",
    ),
    "cuMemcpyDtoH_v2": (
        [3, 0x2000, 3],
        {"thread": 2, "token": 9},
        "28000000820301000200000009000000030000000000000000200000000000000300000000000000",
    ),
    "cuEventCreate": ([make_handle(7, 0), 2], {"thread": 0}, "2000000080050000000000000000000007000000004c00000200000000000000"),
    "cuModuleGetGlobal_v2": (
        [8, None, make_handle(1, 0), b"x\0"],
        {"thread": 0, "token": 3},
        "380000000802010000000000030000000800000000000000ffffffffffffffff01000000004c000002000000000000007800000000000000",
    ),
    "cuStreamDestroy_v2": ([STREAM], {"thread": 0}, "1800000002050000000000000000000004000001004c0000"),
}


def sent(connection: Connection) -> bytes:
    return b"".join(bytes(buffer) for buffer in connection.data_to_send())


def pair(hello: Hello = HELLO) -> tuple[Connection, Connection]:
    """A client and a server behind HELLO and WELCOME."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(hello)
    server.receive_data(sent(client))
    assert isinstance(server.next_event(), ev.HelloReceived)
    server.send_welcome(WELCOME)
    client.receive_data(sent(server))
    assert isinstance(client.next_event(), ev.WelcomeReceived)
    return client, server


def test_this_release_speaks_the_frozen_version() -> None:
    """A new PROTOCOL_VERSION gets a file of its own beside this one; this one stays while the version is still spoken."""
    assert PROTOCOL_VERSION_MIN <= 1 <= PROTOCOL_VERSION


def test_hello() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(HELLO)
    assert sent(client) == HELLO_BYTES
    server.receive_data(HELLO_BYTES)
    assert server.next_event() == ev.HelloReceived(HELLO)


def test_welcome() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(HELLO)
    server.receive_data(HELLO_BYTES)
    server.next_event()
    server.send_welcome(WELCOME)
    assert sent(server) == WELCOME_BYTES
    sent(client)
    client.receive_data(WELCOME_BYTES)
    assert client.next_event() == ev.WelcomeReceived(WELCOME)


def test_refusal() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(HELLO)
    server.receive_data(HELLO_BYTES)
    server.next_event()
    server.send_refuse(REFUSAL)
    assert sent(server) == REFUSAL_BYTES
    sent(client)
    client.receive_data(REFUSAL_BYTES)
    assert client.next_event() == ev.RefuseReceived(REFUSAL)


def test_records_replies_log_and_goodbye() -> None:
    client, server = pair()
    client.send_records(encode(BY_NAME["cuCtxSynchronize"], [], thread=0, token=1))
    assert sent(client) == RECORDS_BYTES
    server.receive_data(RECORDS_BYTES)
    event = server.next_event()
    assert isinstance(event, ev.RecordsReceived)
    assert bytes(event.data) == RECORDS_BYTES[16:]
    server.send_reply(encode_reply(0, 1, 0))
    assert sent(server) == REPLY_BYTES
    server.send_log("error", "x")
    assert sent(server) == LOG_BYTES
    server.send_goodbye("done")
    assert sent(server) == GOODBYE_BYTES
    client.receive_data(REPLY_BYTES + LOG_BYTES + GOODBYE_BYTES)
    reply = client.next_event()
    assert isinstance(reply, ev.ReplyReceived)
    assert bytes(reply.data) == REPLY_BYTES[16:]
    assert client.next_event() == ev.LogReceived("error", "x")
    assert client.next_event() == ev.GoodbyeReceived("done")


def test_kernel_output() -> None:
    client, server = pair(replace(HELLO, caps=("kernel-output",)))
    server.send_kernel_output(2, b"abc")
    assert sent(server) == KERNEL_OUTPUT_BYTES
    client.receive_data(KERNEL_OUTPUT_BYTES)
    assert client.next_event() == ev.KernelOutputReceived(2, b"abc")


def test_host_calls() -> None:
    client, server = pair()
    assert encode_host_call(3, 7, 700) == HOST_CALL_BYTES
    client.receive_data(HOST_CALL_BYTES)
    assert client.next_event() == ev.HostCallReceived(3, 7, 700)
    client.send_host_done(3)
    assert sent(client) == HOST_DONE_BYTES
    server.receive_data(HOST_DONE_BYTES)
    assert server.next_event() == ev.HostDoneReceived(3)


@pytest.mark.parametrize("name", RECORDS)
def test_record(name: str) -> None:
    values, options, text = RECORDS[name]
    frozen = bytes.fromhex(text)
    assert encode(BY_NAME[name], values, **options).hex() == text
    record = decode(memoryview(frozen), BY_ID)
    assert (record.row.name, record.thread, record.token, record.size) == (name, options["thread"], options.get("token", 0), len(frozen))
    assert bool(record.flags & FLAG_PER_THREAD) == bool(options.get("flags", 0) & FLAG_PER_THREAD)
    for found, given in zip(record.values, values, strict=True):
        assert (bytes(found) if isinstance(found, memoryview) else found) in (given, given or 0)


def test_replies() -> None:
    good = bytes.fromhex("020000000900000000000000000000006162630000000000")
    assert encode_reply(2, 9, 0, [b"abc"]) == good
    reply = decode_reply(BY_NAME["cuMemcpyDtoH_v2"], [3, 0x2000, 3], memoryview(good))
    assert (reply.thread, reply.token, reply.result, reply.failed_api) == (2, 9, 0, 0)
    failed = bytes.fromhex("0200000009000000bc02000000060000")
    assert encode_reply(2, 9, 700, failed_api=BY_NAME["cuLaunchKernel"].api_id) == failed
    reply = decode_reply(BY_NAME["cuMemcpyDtoH_v2"], [3, 0x2000, 3], memoryview(failed))
    assert (reply.result, reply.failed_api) == (700, BY_NAME["cuLaunchKernel"].api_id)
