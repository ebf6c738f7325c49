"""What strangers and bad networks do to the server's port: the server lives, and good clients are served."""

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator

import psutil
import pytest

from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role, joined
from lanGPU.wire.frames import HEADER, MAGIC
from lanGPU.wire.handshake import Hello
from lanGPU.wire.records import RECORD_HEADER
from tests.helpers.fault_proxy import Fault, FaultProxy, Rule
from tests.helpers.server import RawClient, ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(handshake_timeout_s=1.0) as server:
        yield server


def hello_bytes() -> bytes:
    connection = Connection(Role.CLIENT)
    connection.send_hello(Hello())
    return joined(connection.data_to_send())


def read_to_end(sock: socket.socket) -> bytes:
    """Everything up to the peer's end, which may be a reset."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


GARBAGE = {
    "nothing": b"",
    "a byte": b"x",
    "HTTP": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "zeros": bytes(100_000),
    "absurd lengths": HEADER.pack(MAGIC, 1, 0, 0, 0xFFFF_FFFF, 0xFFFF_FFFF),
    "no msgpack": HEADER.pack(MAGIC, 1, 0, 0, 4, 0) + b"\xc1\xc1\xc1\xc1",
    "records first": HEADER.pack(MAGIC, 4, 0, 1, 0, 16) + bytes(16),
    "a server's frame": HEADER.pack(MAGIC, 2, 0, 0, 1, 0) + b"\x80",
    "half a header": HEADER.pack(MAGIC, 1, 0, 0, 4, 0)[:9],
    "hello and more": hello_bytes() + b"more",
}


@pytest.mark.parametrize("what", list(GARBAGE))
def test_garbage_closes_the_connection_and_nothing_else(server: ServerProcess, what: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
        with contextlib.suppress(OSError):  # the server may have closed already: that is what it should do
            sock.sendall(GARBAGE[what])
            sock.shutdown(socket.SHUT_WR)
        answer = read_to_end(sock)
    assert not answer or answer.startswith(struct.pack("<HB", MAGIC, 3)), answer
    assert ask_status(server.port)["sessions"] == []


def test_many_strangers_cost_nothing(server: ServerProcess) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    dice = random.Random(seed)
    before = psutil.Process(server.pid).memory_info().rss
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            sock.sendall(dice.randbytes(dice.randrange(0, 400)))
    with RawClient(server.port) as client:
        client.open()
    assert psutil.Process(server.pid).memory_info().rss - before < 32 << 20
    assert wait_until(lambda: psutil.Process(server.pid).num_fds() < 40)


def test_a_slow_hello_is_ended_and_locks_nobody_out(server: ServerProcess) -> None:
    idlers = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(80)]
    try:
        for sock in idlers:
            sock.sendall(hello_bytes()[:10])
        with RawClient(server.port) as client:
            client.open()
        for sock in idlers:
            answer = read_to_end(sock)
            assert not answer or b"timeout" in answer
    finally:
        for sock in idlers:
            sock.close()


@pytest.mark.parametrize("after", [0, 1, 15, 16, 40])
@pytest.mark.parametrize("fault", [Fault.CUT, Fault.HALF_CLOSE])
def test_a_hello_that_breaks_off(server: ServerProcess, after: int, fault: Fault) -> None:
    with FaultProxy(server.port, to_server=Rule(after, fault)) as proxy, socket.create_connection(("127.0.0.1", proxy.port), 20) as sock:
        try:
            sock.sendall(hello_bytes())
        except OSError:
            assert fault is Fault.CUT
        read_to_end(sock)
    assert ask_status(server.port)["sessions"] == []


@pytest.mark.parametrize("after", [0, 10, 16, 300])
def test_a_welcome_that_breaks_off_ends_the_session(server: ServerProcess, after: int) -> None:
    with (
        FaultProxy(server.port, to_client=Rule(after, Fault.CUT)) as proxy,
        RawClient(proxy.port) as client,
        pytest.raises((ConnectionError, AssertionError)),
    ):
        client.open()
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [])


def write_until_cut(client: RawClient) -> None:
    while True:
        client.post("cuCtxSetCurrent", 0)
        client.ask("cuCtxSetCurrent", 0)


@pytest.mark.parametrize("cut", [1, 16, 17, 100, 5000])
def test_records_that_break_off_end_the_session(server: ServerProcess, cut: int) -> None:
    length = len(hello_bytes_of("test"))
    with FaultProxy(server.port, to_server=Rule(length + cut, Fault.CUT)) as proxy, RawClient(proxy.port) as client:
        client.open()
        with pytest.raises((OSError, AssertionError)):
            write_until_cut(client)
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [])


def hello_bytes_of(program: str) -> bytes:
    connection = Connection(Role.CLIENT)
    connection.send_hello(Hello(program=program, pid=os.getpid(), host="here"))
    return joined(connection.data_to_send())


def test_a_stalled_link_goes_on_where_it_stopped(server: ServerProcess) -> None:
    length = len(hello_bytes_of("test"))
    with FaultProxy(server.port, to_server=Rule(length + 20, Fault.STALL)) as proxy, RawClient(proxy.port) as client:
        client.open()
        token = client.send("cuCtxSetCurrent", 0)
        client.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.event()
        client.sock.settimeout(20)
        proxy.release()
        assert client.reply(token)[0] == 0
        client.goodbye()


@pytest.mark.parametrize(
    "record",
    [
        bytes(16),
        RECORD_HEADER.pack(0xFFFF_FFF8, 0x80, 0, 0, 0),
        RECORD_HEADER.pack(16, 0xFFFF, 0, 0, 0),
        RECORD_HEADER.pack(24, 0x80, 0, 1 << 30, 0) + bytes(8),
    ],
)
def test_corrupt_records_end_the_session_with_a_reason(server: ServerProcess, record: bytes) -> None:
    with RawClient(server.port) as client:
        client.open()
        client.connection.send_records(record)
        client.flush()
        event = client.event()
        assert isinstance(event, ev.GoodbyeReceived)
        assert "record" in event.reason or "api_id" in event.reason
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [])
