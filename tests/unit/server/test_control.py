"""The channel to a worker: messages whole, cut and corrupt; the socket that travels beside one."""

import os
import socket
import sys

import pytest

from lanGPU.errors import LocalProtocolError
from lanGPU.server.control import ControlPair, MessageReader, WorkerControl, pack_message, session_message


@pytest.mark.parametrize("step", [1, 2, 5, 1000])
def test_messages_join_however_they_are_cut(step: int) -> None:
    messages = [{"type": "a", "n": 1}, {"type": "b", "data": b"x" * 100}, {}]
    data = b"".join(map(pack_message, messages))
    reader = MessageReader()
    assert [m for at in range(0, len(data), step) for m in reader.feed(data[at : at + step])] == messages


def test_an_absurd_length_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        MessageReader().feed(b"\xff\xff\xff\xff")


@pytest.mark.skipif(sys.platform == "win32", reason="sockets travel another way there")
def test_a_socket_travels_with_its_message() -> None:
    pair = ControlPair()
    arguments, _ = pair.child_options()
    worker = WorkerControl(os.dup(int(arguments[1])))
    pair.hand_over(0)
    left, right = socket.socketpair()
    try:
        data, fds = session_message(left, 0, {"type": "session"})
        socket.send_fds(pair.daemon, [data], fds)
        message = worker.receive()
        assert message == {"type": "session"}
        with worker.take_socket(message) as taken:
            taken.send(b"hello")
            assert right.recv(16) == b"hello"
        with pytest.raises(LocalProtocolError):
            worker.take_socket(message)
        worker.send({"type": "ready"})
        assert MessageReader().feed(pair.daemon.recv(100)) == [{"type": "ready"}]
        pair.close()
        assert worker.receive() is None
        worker.send({"type": "late"})
    finally:
        for sock in (left, right, worker._sock):
            sock.close()
        pair.close()
