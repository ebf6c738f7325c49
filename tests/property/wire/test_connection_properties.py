"""Any split of the bytes gives the same events; any garbage gives a RemoteProtocolError or nothing, never another exception."""

import contextlib
import itertools

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from lanGPU.errors import RemoteProtocolError
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role, State, joined
from lanGPU.wire.frames import HEADER, MAGIC, FrameType, encode_body
from lanGPU.wire.handshake import DeviceInfo, Hello, Refusal, Welcome

TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=40)
HELLOS = st.builds(
    Hello,
    min=st.just(1),
    max=st.integers(1, 5),
    purpose=st.sampled_from(["session", "status"]),
    program=TEXT,
    pid=st.integers(0, 1 << 22),
    host=TEXT,
)
DEVICES = st.builds(
    DeviceInfo,
    name=TEXT,
    uuid=st.binary(min_size=16, max_size=16),
    total_bytes=st.integers(0, (1 << 64) - 1),
    pci_bus_id=TEXT,
    attributes=st.dictionaries(st.integers(1, 200), st.integers(-(1 << 31), (1 << 31) - 1)),
    luid=st.sampled_from([b"", bytes(8)]),
)
WELCOMES = st.builds(
    Welcome,
    session=TEXT,
    server=TEXT,
    driver_version=st.integers(0, 99999),
    devices=st.lists(DEVICES, max_size=3).map(tuple),
    emulated=st.booleans(),
)
REFUSALS = st.builds(Refusal, reason=st.text("abc", min_size=1, max_size=8), message=TEXT, hint=TEXT)
REPLIES = st.builds(lambda head, tail: head + bytes(2) + tail, st.binary(min_size=14, max_size=14), st.binary(max_size=300))


def drain(connection: Connection) -> list[ev.Event]:
    out: list[ev.Event] = []
    while (event := connection.next_event()) is not None:
        if isinstance(event, ev.RecordsReceived | ev.ReplyReceived):
            event.data = memoryview(bytes(event.data))
        out.append(event)
    return out


def feed_in_pieces(connection: Connection, data: bytes, cuts: list[int]) -> list[ev.Event]:
    out: list[ev.Event] = []
    edges = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    for a, b in itertools.pairwise(edges):
        done = a
        while done < b:
            room = connection.get_buffer()
            n = min(len(room), b - done)
            room[:n] = data[done : done + n]
            connection.buffer_received(n)
            done += n
            out += drain(connection)
    return out


def waiting_client() -> Connection:
    client = Connection(Role.CLIENT)
    client.send_hello(Hello())
    client.data_to_send()
    return client


@given(WELCOMES, st.lists(REPLIES, max_size=8), st.lists(st.integers(0, 3000), max_size=30))
def test_any_split_gives_the_same_events_to_a_client(welcome: Welcome, replies: list[bytes], cuts: list[int]) -> None:
    server = Connection(Role.SERVER, hello=Hello())
    server.send_welcome(welcome)
    for reply in replies:
        server.send_reply(reply)
    events = feed_in_pieces(waiting_client(), joined(server.data_to_send()), cuts)
    assert isinstance(events[0], ev.WelcomeReceived)
    assert events[0].welcome == welcome
    assert [bytes(e.data) for e in events[1:] if isinstance(e, ev.ReplyReceived)] == replies


@given(HELLOS, st.lists(st.binary(max_size=500), max_size=8), st.lists(st.integers(0, 3000), max_size=30))
def test_any_split_gives_the_same_stream_to_a_server(hello: Hello, records: list[bytes], cuts: list[int]) -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    client.send_hello(hello)
    assert feed_in_pieces(server, joined(client.data_to_send()), cuts) == [ev.HelloReceived(hello)]
    server.send_welcome(Welcome(session="x", server="y", driver_version=1, devices=()))
    client.receive_data(joined(server.data_to_send()))
    drain(client)
    for piece in records:
        client.send_records(piece)
    client.send_goodbye("end")
    events = feed_in_pieces(server, joined(client.data_to_send()), cuts)
    assert b"".join(bytes(e.data) for e in events if isinstance(e, ev.RecordsReceived)) == b"".join(records)
    assert events[-1] == ev.GoodbyeReceived("end")


@given(REFUSALS)
def test_refusal_round_trips(refusal: Refusal) -> None:
    server = Connection(Role.SERVER)
    server.send_refuse(refusal)
    client = waiting_client()
    client.receive_data(joined(server.data_to_send()))
    assert drain(client) == [ev.RefuseReceived(refusal)]


def connections() -> list[Connection]:
    open_server = Connection(Role.SERVER, hello=Hello())
    open_server.send_welcome(Welcome(session="x", server="y", driver_version=1, devices=()))
    open_client = waiting_client()
    open_client.receive_data(joined(open_server.data_to_send()))
    drain(open_client)
    return [Connection(Role.SERVER), Connection(Role.SERVER, hello=Hello()), open_server, waiting_client(), open_client]


def survives(connection: Connection, data: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(RemoteProtocolError):
        feed_in_pieces(connection, data, cuts)
        connection.receive_data(b"")
        drain(connection)
        assert connection.state is State.CLOSED
        return
    assert connection.state is State.ERROR


@given(st.integers(0, 4), st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_garbage_never_escapes_as_anything_else(which: int, data: bytes, cuts: list[int]) -> None:
    survives(connections()[which], data, cuts)


MSGPACK = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(-9, 200), inner, max_size=4),
    max_leaves=12,
)
KEYS = [
    *Hello().to_body(),
    *Refusal("x", "y").to_body(),
    "version",
    "session",
    "driver_version",
    "devices",
    "emulated",
    "level",
    "text",
    "id",
]
BODIES = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), MSGPACK, max_size=12).map(lambda b: bytes(msgpack.packb(b)))


@given(st.integers(0, 4), st.integers(0, 11), BODIES | st.binary(max_size=60), st.binary(max_size=40), st.integers(0, 2))
def test_well_framed_nonsense_never_escapes_as_anything_else(which: int, kind: int, body: bytes, bulk: bytes, stream: int) -> None:
    survives(connections()[which], HEADER.pack(MAGIC, kind, 0, stream, len(body), len(bulk)) + body + bulk, [])


@given(st.integers(0, 4), st.sampled_from(list(FrameType)), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_announced_lengths_cost_no_memory(which: int, kind: FrameType, body: int, bulk: int) -> None:
    connection = connections()[which]
    with contextlib.suppress(RemoteProtocolError):
        connection.receive_data(HEADER.pack(MAGIC, kind, 0, int(kind in (4, 5)), body, bulk))
        connection.next_event()
    assert len(connection.get_buffer()) <= 9 << 20


def test_body_helper_encodes_what_msgpack_decodes() -> None:
    assert msgpack.unpackb(encode_body({"a": [1, b"x", None]})) == {"a": [1, b"x", None]}
