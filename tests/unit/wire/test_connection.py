"""Connection: one list of conversations, read whole, byte by byte and with a trailing cut; one list of bad inputs."""

import struct
from dataclasses import replace

import pytest

from lanGPU.constants import MAX_BODY_BYTES, MAX_BULK_BYTES, MAX_KERNEL_OUTPUT_BYTES, PROTOCOL_VERSION
from lanGPU.errors import LocalProtocolError, RemoteProtocolError, VersionMismatchError
from lanGPU.wire import events as ev
from lanGPU.wire.connection import TRANSITIONS, Buffer, Connection, Direction, Role, State, joined
from lanGPU.wire.frames import HEADER, HEADER_BYTES, MAGIC, FrameType, encode_body, encode_host_call
from lanGPU.wire.handshake import CAP_KERNEL_OUTPUT, DeviceInfo, Hello, Refusal, Welcome, choose_version

HELLO = Hello(program="infer.py", pid=42, host="laptop", caps=("zstd",))
DEVICE = DeviceInfo(name="Test GPU", uuid=bytes(range(16)), total_bytes=8 << 30, pci_bus_id="0000:01:00.0", attributes={75: 8, 76: -1})
WELCOME = Welcome(session="ab12", server="desktop", driver_version=13000, devices=(DEVICE,), emulated=True)
REFUSAL = Refusal(reason="busy", message="one session is running", hint="try later")


def frame(kind: int, body: bytes = b"", bulk: bytes = b"", *, magic: int = MAGIC, flags: int = 0, stream: int | None = None) -> bytes:
    if stream is None:
        stream = int(kind in (FrameType.RECORDS, FrameType.REPLY))
    return HEADER.pack(magic, kind, flags, stream, len(body), len(bulk)) + body + bulk


def server() -> Connection:
    return Connection(Role.SERVER, hello=HELLO)


def open_server() -> Connection:
    connection = server()
    connection.send_welcome(WELCOME)
    connection.data_to_send()
    return connection


def waiting_client() -> Connection:
    connection = Connection(Role.CLIENT)
    connection.send_hello(HELLO)
    connection.data_to_send()
    return connection


def printing_client() -> Connection:
    """One that takes kernel output."""
    connection = Connection(Role.CLIENT)
    connection.send_hello(replace(HELLO, caps=(CAP_KERNEL_OUTPUT,)))
    connection.data_to_send()
    return opened(connection)


def open_client() -> Connection:
    return opened(waiting_client())


def opened(connection: Connection) -> Connection:
    peer = server()
    peer.send_welcome(WELCOME)
    feed(connection, joined(peer.data_to_send()))
    return connection


def detach(event: ev.Event) -> ev.Event:
    if isinstance(event, ev.RecordsReceived | ev.ReplyReceived):
        event.data = memoryview(bytes(event.data))
    return event


def drain(connection: Connection) -> list[ev.Event]:
    out: list[ev.Event] = []
    while (event := connection.next_event()) is not None:
        out.append(detach(event))
    return out


def feed(connection: Connection, data: bytes, step: int = 0) -> list[ev.Event]:
    out: list[ev.Event] = []
    step = step or max(1, len(data))
    for i in range(0, len(data), step):
        connection.receive_data(data[i : i + step])
        out += drain(connection)
    return out


REPLY_BYTES = struct.pack("<IIiHH", 3, 7, -1 & 0x7FFFFFFF, 9, 0) + b"12345678"
# (receiver in its state, what the peer sends, events)
CASES = [
    (lambda: Connection(Role.SERVER), frame(1, encode_body(HELLO.to_body())), [ev.HelloReceived(HELLO)]),
    (
        lambda: Connection(Role.SERVER),
        frame(1, encode_body({**HELLO.to_body(), "new": [1, {"x": b"y"}], "caps": ["zstd"]})),
        [ev.HelloReceived(HELLO)],
    ),
    (waiting_client, frame(2, encode_body(WELCOME.to_body())), [ev.WelcomeReceived(WELCOME)]),
    (waiting_client, frame(3, encode_body(REFUSAL.to_body())), [ev.RefuseReceived(REFUSAL)]),
    (
        waiting_client,
        frame(6, encode_body({"name": "x", "devices": [{"gb": 1.5}]})),
        [ev.StatusReceived({"name": "x", "devices": [{"gb": 1.5}]})],
    ),
    (open_server, frame(4, bulk=b"abcdefgh") * 2, [ev.RecordsReceived(memoryview(b"abcdefgh"))] * 2),
    (open_server, frame(4, bulk=b""), [ev.RecordsReceived(memoryview(b""))]),
    (open_client, frame(5, bulk=REPLY_BYTES), [ev.ReplyReceived(3, 7, 0x7FFFFFFF, 9, memoryview(REPLY_BYTES))]),
    (open_client, frame(7, encode_body({"level": "error", "text": "a\x1b[31mb"})), [ev.LogReceived("error", "a?[31mb")]),
    (
        printing_client,
        frame(11, encode_body({"fd": 1, "data": b"a\0b"}), stream=1) + frame(5, bulk=REPLY_BYTES),
        [ev.KernelOutputReceived(1, b"a\0b"), ev.ReplyReceived(3, 7, 0x7FFFFFFF, 9, memoryview(REPLY_BYTES))],
    ),
    (open_client, frame(9, encode_body({"id": 5})) + frame(10, encode_body({"id": 6})), [ev.PingReceived(5), ev.PongReceived(6)]),
    (open_client, encode_host_call(5, 1 << 63, 700), [ev.HostCallReceived(5, 1 << 63, 700)]),
    (open_server, frame(13, encode_body({"call": 5})), [ev.HostDoneReceived(5)]),
    (
        open_server,
        frame(4, bulk=b"x" * 8) + frame(8, encode_body({"reason": "done"})),
        [ev.RecordsReceived(memoryview(b"x" * 8)), ev.GoodbyeReceived("done")],
    ),
]


@pytest.mark.parametrize("step", [0, 1, 3, 17])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_conversation_is_the_same_however_it_is_cut(case: int, step: int) -> None:
    make, data, events = CASES[case]
    assert feed(make(), data, step) == events


@pytest.mark.parametrize("case", range(len(CASES)))
def test_end_in_the_middle_of_a_frame_is_not_orderly(case: int) -> None:
    make, data, events = CASES[case]
    connection = make()
    seen = feed(connection, data[:-1])
    connection.receive_data(b"")
    seen += drain(connection)
    assert seen[-1] == ev.ConnectionClosed(orderly=False)
    assert seen[:-1] == events[: len(seen) - 1]
    assert drain(connection) == []


BAD = [
    (lambda: Connection(Role.SERVER), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not http"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body(HELLO.to_body()), magic=0x4C48), "magic"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body(HELLO.to_body()), flags=1), "flags"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body(HELLO.to_body()), stream=1), "stream"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body(HELLO.to_body()) + b"\0"), "trailing junk in the body"),
    (lambda: Connection(Role.SERVER), frame(1, b"\xc1"), "no msgpack"),
    (lambda: Connection(Role.SERVER), frame(1, b"\x91" * 2000 + b"\xc0"), "deep nesting"),
    (lambda: Connection(Role.SERVER), frame(1, b"\x81\x90\x01"), "unhashable key"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body(["a"])), "not a map"),
    (lambda: Connection(Role.SERVER), frame(1), "no fields"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "min": True})), "bool as int"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "min": 3, "max": 2})), "empty range"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "program": "x" * 256})), "long text"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "caps": [1]})), "caps type"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "caps": ["x"] * 65})), "many caps"),
    (lambda: Connection(Role.SERVER), frame(1, encode_body({**HELLO.to_body(), "pid": -1})), "pid"),
    (lambda: Connection(Role.SERVER), frame(4, bulk=b"12345678"), "records before hello"),
    (lambda: Connection(Role.SERVER), frame(2, encode_body(WELCOME.to_body())), "wrong direction"),
    (lambda: Connection(Role.SERVER), frame(77), "unknown type"),
    (lambda: Connection(Role.SERVER), HEADER.pack(MAGIC, 1, 0, 0, 33 * 1024, 0), "hello too large"),
    (lambda: Connection(Role.SERVER), HEADER.pack(MAGIC, 1, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF), "absurd lengths"),
    (server, frame(4, bulk=b"12345678"), "records before welcome"),
    (open_server, frame(1, encode_body(HELLO.to_body())), "second hello"),
    (open_server, frame(5, bulk=REPLY_BYTES), "reply to a server"),
    (open_server, HEADER.pack(MAGIC, 4, 0, 1, 1, 8), "records with a body"),
    (open_server, HEADER.pack(MAGIC, 4, 0, 1, 0, MAX_BULK_BYTES + 1), "records too large"),
    (open_server, frame(8, encode_body({})) + frame(4, bulk=b""), "records after goodbye"),
    (open_server, frame(9, encode_body({"id": "x"})), "ping id"),
    (waiting_client, frame(2, encode_body({**WELCOME.to_body(), "version": PROTOCOL_VERSION + 1})), "version not offered"),
    (waiting_client, frame(2, encode_body({**WELCOME.to_body(), "devices": [{"name": "x"}]})), "device fields"),
    (waiting_client, frame(2, encode_body({**WELCOME.to_body(), "devices": [{**DEVICE.to_body(), "uuid": b"x"}]})), "uuid length"),
    (
        waiting_client,
        frame(2, encode_body({**WELCOME.to_body(), "devices": [{**DEVICE.to_body(), "attributes": {1: 1 << 40}}]})),
        "attribute",
    ),
    (waiting_client, frame(2, encode_body({**WELCOME.to_body(), "emulated": 1})), "emulated type"),
    (waiting_client, HEADER.pack(MAGIC, 2, 0, 0, MAX_BODY_BYTES + 1, 0), "welcome too large"),
    (waiting_client, frame(6, encode_body({"x": b"bytes"})), "status holds bytes"),
    (waiting_client, frame(3, encode_body(REFUSAL.to_body())) * 2, "two refusals"),
    (open_client, frame(5, bulk=b"short"), "short reply"),
    (open_client, frame(11, encode_body({"fd": 1, "data": b"x"}), stream=1), "output that was not asked for"),
    (printing_client, frame(11, encode_body({"fd": 0, "data": b"x"}), stream=1), "output for standard input"),
    (printing_client, frame(11, encode_body({"fd": 3, "data": b"x"}), stream=1), "output for another descriptor"),
    (printing_client, frame(11, encode_body({"fd": 1, "data": "x"}), stream=1), "output that is text"),
    (printing_client, frame(11, encode_body({"fd": 1}), stream=1), "output without data"),
    (printing_client, frame(11, encode_body({"fd": 1, "data": b"x"}), stream=0), "output on the control stream"),
    (printing_client, HEADER.pack(MAGIC, 11, 0, 1, MAX_KERNEL_OUTPUT_BYTES + 65, 0), "too much output"),
    (printing_client, frame(11, encode_body({"fd": 1, "data": b"x" * (MAX_KERNEL_OUTPUT_BYTES + 1)}), stream=1), "output over its limit"),
    (open_server, encode_host_call(1, 2, 0), "host call to a server"),
    (open_client, frame(13, encode_body({"call": 1})), "host done to a client"),
    (open_client, frame(12, encode_body({"call": -1, "callback": 2})), "host call number"),
    (open_client, frame(12, encode_body({"call": 1})), "host call without a callback"),
    (open_client, frame(12, encode_body({"call": 1, "callback": 2, "status": -1})), "host call status"),
    (open_server, frame(13, encode_body({"call": "x"})), "host done number"),
    (open_server, frame(11, encode_body({"fd": 1, "data": b"x"}), stream=1), "output to a server"),
    (open_client, frame(5, bulk=struct.pack("<IIiHH", 0, 0, 0, 0, 1)), "reply reserved"),
]


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("case", range(len(BAD)), ids=[name for _, _, name in BAD])
def test_bad_bytes_are_a_remote_protocol_error(case: int, step: int) -> None:
    make, data, _ = BAD[case]
    connection = make()
    with pytest.raises(RemoteProtocolError):
        feed(connection, data, step)
    assert connection.state is State.ERROR
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
    assert connection.buffered_bytes == 0


def test_a_peer_that_broke_the_rules_can_be_told() -> None:
    connection = Connection(Role.SERVER)
    with pytest.raises(RemoteProtocolError):
        feed(connection, b"GET / HTTP/1.1\r\n\r\n")
    connection.send_refuse(REFUSAL)
    assert feed(waiting_client(), joined(connection.data_to_send())) == [ev.RefuseReceived(REFUSAL)]
    with pytest.raises(LocalProtocolError):
        connection.send_refuse(REFUSAL)
    session = open_server()
    with pytest.raises(RemoteProtocolError):
        feed(session, frame(77))
    session.send_goodbye("protocol error")
    assert feed(open_client(), joined(session.data_to_send())) == [ev.GoodbyeReceived("protocol error")]
    with pytest.raises(RemoteProtocolError):
        session.next_event()


def test_whole_session_between_two_connections() -> None:
    client, host = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(HELLO)
    assert feed(host, joined(client.data_to_send())) == [ev.HelloReceived(HELLO)]
    assert host.buffered_bytes == 0
    host.send_welcome(WELCOME)
    assert feed(client, joined(host.data_to_send())) == [ev.WelcomeReceived(WELCOME)]
    client.send_records(b"abcd", memoryview(b"efgh"))
    client.send_ping(1)
    assert feed(host, joined(client.data_to_send())) == [ev.RecordsReceived(memoryview(b"abcdefgh")), ev.PingReceived(1)]
    host.send_pong(1)
    host.send_reply(REPLY_BYTES)
    host.send_log("warning", "text")
    replies = feed(client, joined(host.data_to_send()))
    assert [type(e) for e in replies] == [ev.PongReceived, ev.ReplyReceived, ev.LogReceived]
    assert isinstance(replies[1], ev.ReplyReceived)
    assert bytes(replies[1].outputs) == b"12345678"
    client.send_goodbye("exit")
    assert feed(host, joined(client.data_to_send())) == [ev.GoodbyeReceived("exit")]
    host.send_reply(REPLY_BYTES)
    host.send_goodbye("bye")
    assert len(feed(client, joined(host.data_to_send()))) == 2
    for connection in (client, host):
        assert connection.state is State.CLOSED
        connection.receive_data(b"")
        assert drain(connection) == [ev.ConnectionClosed(orderly=True)]


def test_zero_copy_receive_keeps_views_alive_until_the_next_buffer() -> None:
    connection = open_server()
    data = frame(4, bulk=b"a" * 4096) + frame(4, bulk=b"b" * 4096)
    room = connection.get_buffer()
    room[: len(data)] = data
    connection.buffer_received(len(data))
    first, second = connection.next_event(), connection.next_event()
    assert isinstance(first, ev.RecordsReceived)
    assert isinstance(second, ev.RecordsReceived)
    assert bytes(first.data) == b"a" * 4096
    assert bytes(second.data) == b"b" * 4096
    assert first.data.obj is room.obj


def test_largest_frame_passes_and_memory_stays_bounded() -> None:
    connection = open_server()
    data = frame(4, bulk=bytes(MAX_BULK_BYTES))
    for _ in range(3):
        sent = 0
        while sent < len(data):
            room = connection.get_buffer()
            assert len(room) <= len(data) + 512 * 1024
            n = min(len(room), 100_000, len(data) - sent)
            room[:n] = data[sent : sent + n]
            connection.buffer_received(n)
            sent += n
            if sent < len(data):
                assert connection.next_event() is None
        (event,) = drain(connection)
        assert isinstance(event, ev.RecordsReceived)
        assert len(event.data) == MAX_BULK_BYTES


def test_undrained_receiving_is_our_error() -> None:
    connection = open_server()
    for _ in range(8):
        connection.receive_data(bytes(1024 * 1024))
    with pytest.raises(LocalProtocolError):
        connection.receive_data(bytes(2 * 1024 * 1024))


def test_large_records_are_cut_into_frames() -> None:
    client, host = open_client(), open_server()
    pieces: list[Buffer] = [bytes(5 << 20), bytes(5 << 20), b"x" * 8]
    client.send_records(*pieces)
    sizes = []
    for piece in client.data_to_send():
        for start in range(0, len(piece), 1 << 20):
            host.receive_data(piece[start : start + (1 << 20)])
            sizes += [len(e.data) for e in drain(host) if isinstance(e, ev.RecordsReceived)]
    assert sizes == [MAX_BULK_BYTES, (2 << 20) + 8]


@pytest.mark.parametrize("role", list(Role))
def test_sending_out_of_state_is_our_error(role: Role) -> None:
    connection = Connection(role)
    for send in (
        lambda: connection.send_records(b""),
        lambda: connection.send_reply(REPLY_BYTES),
        lambda: connection.send_log("info", "x"),
        lambda: connection.send_goodbye("x"),
        lambda: connection.send_ping(1),
        lambda: connection.send_status({}),
        lambda: connection.send_welcome(WELCOME),
    ):
        with pytest.raises(LocalProtocolError):
            send()
    assert connection.data_to_send() == []


def test_both_roles_agree_on_every_transition() -> None:
    """What one side may send, the other may receive in the mirrored state, and both arrive in mirrored states."""
    mirror = {State.WE_LEFT: State.PEER_LEFT, State.PEER_LEFT: State.WE_LEFT}
    for (state, direction, kind), after in TRANSITIONS[Role.CLIENT].items():
        if state is State.ERROR:
            continue  # last words: the peer does not see our error
        other = Direction.SEND if direction is Direction.RECEIVE else Direction.RECEIVE
        assert TRANSITIONS[Role.SERVER][mirror.get(state, state), other, kind] is mirror.get(after, after)


@pytest.mark.parametrize(
    ("lowest", "highest", "chosen"), [(1, 1, 1), (1, 9, PROTOCOL_VERSION), (PROTOCOL_VERSION, PROTOCOL_VERSION, PROTOCOL_VERSION)]
)
def test_choose_version(lowest: int, highest: int, chosen: int) -> None:
    assert choose_version(lowest, highest) == chosen


def test_choose_version_names_both_ranges() -> None:
    with pytest.raises(VersionMismatchError, match=rf"{PROTOCOL_VERSION + 1} to {PROTOCOL_VERSION + 3}"):
        choose_version(PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 3)


def test_header_is_sixteen_bytes() -> None:
    assert HEADER_BYTES == 16
