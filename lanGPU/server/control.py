"""The channel between the daemon and a worker process: small maps, and the accepted socket of a session.

Each message is a u32 length (little-endian) and a msgpack map. On Unix the channel is a socket pair that the child inherits and a
session's socket travels as SCM_RIGHTS beside the message; on Windows both are duplicated with socket.share. What differs is in this
file only. End of file on either side means that the other process is gone.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from lanGPU.errors import LocalProtocolError

MAX_MESSAGE_BYTES: Final = 1 << 20
"""A probe's answer for 64 devices with all attributes is below 128 KiB."""
_LENGTH: Final = struct.Struct("<I")
_WINDOWS: Final = sys.platform == "win32"


def pack_message(message: Mapping[str, Any]) -> bytes:
    """`message` framed for the channel."""
    body = msgpack.packb(message, use_bin_type=True)
    return _LENGTH.pack(len(body)) + bytes(body)


class MessageReader:
    """Cuts the channel's bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that `data` completes.

        Raises:
            LocalProtocolError: the channel is corrupt (both ends are ours).
        """
        self._data += data
        messages = []
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if length > MAX_MESSAGE_BYTES:
                raise LocalProtocolError(f"a control message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            messages.append(msgpack.unpackb(bytes(self._data[_LENGTH.size : end]), raw=False, strict_map_key=False))
            del self._data[:end]
        return messages


def session_message(sock: socket.socket, worker_pid: int, message: Mapping[str, Any]) -> tuple[bytes, list[int]]:
    """The bytes and file descriptors that hand `sock` to the worker `worker_pid` together with `message`."""
    if sys.platform == "win32":
        return pack_message({**message, "share": sock.share(worker_pid)}), []
    return pack_message(message), [sock.fileno()]


class ControlPair:
    """The daemon's end, and what the child needs to find its own."""

    def __init__(self) -> None:
        self.daemon, self._child = socket.socketpair()
        self.daemon.setblocking(False)

    def child_options(self) -> tuple[list[str], dict[str, Any]]:
        """Arguments for the worker and keyword arguments for the function that starts it."""
        if _WINDOWS:
            return [], {}
        return ["--control", str(self._child.fileno())], {"pass_fds": [self._child.fileno()]}

    def hand_over(self, pid: int) -> bytes:
        """After the start: what must be written to the child's stdin (empty on Unix). Closes our copy of the child's end."""
        data = b""
        if sys.platform == "win32":
            share = self._child.share(pid)
            data = _LENGTH.pack(len(share)) + share
        self._child.close()
        return data

    def close(self) -> None:
        """Closes both ends."""
        self._child.close()
        self.daemon.close()


class WorkerControl:
    """The worker's end; blocking. Sending is safe from any thread (a message is one send), receiving is for one thread."""

    def __init__(self, control_fd: int | None) -> None:
        if sys.platform == "win32":
            (length,) = _LENGTH.unpack(sys.stdin.buffer.read(_LENGTH.size))
            self._sock = socket.fromshare(sys.stdin.buffer.read(length))
        else:
            if control_fd is None:
                raise LocalProtocolError("a worker is started by the daemon only")
            self._sock = socket.socket(fileno=control_fd)
            os.set_inheritable(control_fd, False)
        self._sock.setblocking(True)
        self._reader = MessageReader()
        self._ready: list[dict[str, Any]] = []
        self._fds: list[int] = []

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends `message`; a daemon that is gone is no error here (the next receive says so)."""
        with contextlib.suppress(OSError):
            self._sock.sendall(pack_message(message))

    def receive(self) -> dict[str, Any] | None:
        """The next message; None: the daemon is gone."""
        while not self._ready:
            try:
                if sys.platform == "win32":
                    data = self._sock.recv(65536)
                else:
                    data, fds, _, _ = socket.recv_fds(self._sock, 65536, 4)
                    self._fds += fds
            except OSError:
                return None
            if not data:
                return None
            self._ready += self._reader.feed(data)
        return self._ready.pop(0)

    def take_socket(self, message: Mapping[str, Any]) -> socket.socket:
        """The session's socket that came with `message`."""
        if sys.platform == "win32":
            return socket.fromshare(message["share"])
        if not self._fds:
            raise LocalProtocolError("a session came without its socket")
        return socket.socket(fileno=self._fds.pop(0))
