"""Where programs attach: a Unix socket at which each process's shim asks for its shared memory. Part of the agent's event loop."""

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lanGPU.client import layout as lay
from lanGPU.client.session import Session
from lanGPU.constants import CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_NOT_READY, CUDA_SUCCESS

_log = logging.getLogger(__name__)

_HELLO: Final = struct.Struct("<IIIIQ32s")
_ANSWER: Final = struct.Struct("<IIQ")
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid
_MAX_PATH_BYTES: Final = 100
"""sockaddr_un holds 108 bytes."""
_MAX_SESSIONS: Final = 256
"""Processes attached at once; each costs two threads and some address space."""

Maker = Callable[[int, int], Session]
"""Makes the session of (pid, load address of its shim)."""


def program_name(pid: int) -> str:
    """Base name of what a process runs, for people."""
    try:
        first = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0]
    except OSError:
        return ""
    return os.path.basename(os.fsdecode(first))


def runtime_folder() -> Path:
    """A fresh folder of mode 0700 for the socket, near the user's other runtime files."""
    preferred = os.environ.get("XDG_RUNTIME_DIR")
    if preferred and len(preferred) < _MAX_PATH_BYTES - 30 and os.access(preferred, os.W_OK):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="langpu-", dir=preferred))
    return Path(tempfile.mkdtemp(prefix="langpu-"))


class Registrar:
    """Accepts processes, keeps their sessions until they end. All methods on the event loop's thread."""

    def __init__(self, make_session: Maker, shim_digest: bytes) -> None:
        self._make_session = make_session
        self._shim_digest = shim_digest
        self._folder = runtime_folder()
        self.path = self._folder / "agent"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(os.fsencode(self.path))
        self._listener.listen(64)
        self._strangers: set[socket.socket] = set()
        self._attached: dict[socket.socket, tuple[Session, int]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.ended: list[Session] = []
        """Closed sessions, for their statistics."""
        self.changed = asyncio.Event()
        """Set whenever a process attaches or ends."""
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    @property
    def sessions(self) -> list[Session]:
        """Those of processes that live."""
        return [session for session, _ in self._attached.values()]

    def _accept(self) -> None:
        try:
            conn, _ = self._listener.accept()
        except OSError:
            return
        conn.setblocking(False)
        self._strangers.add(conn)
        asyncio.get_running_loop().add_reader(conn, self._greet, conn)

    def _drop(self, conn: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(conn)
        self._strangers.discard(conn)
        conn.close()

    def _greet(self, conn: socket.socket) -> None:
        """Read a shim's hello; anything else is turned away."""
        try:
            data = conn.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) != _HELLO.size:
            self._drop(conn)
            return
        magic, abi, _, _, load_address, digest = _HELLO.unpack(data)
        pid, uid, _ = _CREDENTIALS.unpack(conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if magic != lay.HELLO_MAGIC or uid != os.getuid():
            self._drop(conn)
            return
        if abi != lay.SHIM_ABI or digest != self._shim_digest:
            _log.error("process %d uses the libcuda.so.1 of another lanGPU; is one in its LD_LIBRARY_PATH or LD_PRELOAD?", pid)
            self._refuse(conn, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
            return
        if len(self._attached) >= _MAX_SESSIONS:
            _log.error("process %d cannot use the GPU: %d processes use it already", pid, _MAX_SESSIONS)
            self._refuse(conn, CUDA_ERROR_SYSTEM_NOT_READY)
            return
        self._attach(conn, pid, load_address)

    def _refuse(self, conn: socket.socket, result: int) -> None:
        with contextlib.suppress(OSError):
            conn.send(_ANSWER.pack(lay.HELLO_MAGIC, result, 0))
        self._drop(conn)

    def _attach(self, conn: socket.socket, pid: int, load_address: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # it ended in between
            self._drop(conn)
            return
        try:
            session = self._make_session(pid, load_address)
        except OSError as exc:
            _log.error("process %d cannot attach: %s", pid, exc.strerror)
            os.close(pidfd)
            self._refuse(conn, CUDA_ERROR_SYSTEM_NOT_READY)
            return
        session.start()
        self._strangers.discard(conn)
        self._attached[conn] = session, pidfd
        loop.remove_reader(conn)
        loop.add_reader(conn, self._heard, conn)
        loop.add_reader(pidfd, self._end, conn)
        try:
            socket.send_fds(conn, [_ANSWER.pack(lay.HELLO_MAGIC, CUDA_SUCCESS, lay.TOTAL_BYTES)], [session.ring.fd])
        except OSError:
            self._end(conn)
        self.changed.set()

    def _heard(self, conn: socket.socket) -> None:
        """A shim says nothing after its hello: what is readable is its hang-up."""
        try:
            data = conn.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(conn)

    def _end(self, conn: socket.socket) -> None:
        """The process ended, or became another program."""
        entry = self._attached.pop(conn, None)
        if entry is None:
            return
        session, pidfd = entry
        loop = asyncio.get_running_loop()
        loop.remove_reader(conn)
        loop.remove_reader(pidfd)
        os.close(pidfd)
        conn.close()
        task = loop.create_task(asyncio.to_thread(session.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self.ended.append(session)
        self.changed.set()

    async def close(self) -> None:
        """End every session and remove the socket."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._listener.close()
        for conn in list(self._strangers):
            self._drop(conn)
        for conn, (session, _) in list(self._attached.items()):
            session.abandon()
            self._end(conn)
        while self._closing:
            await asyncio.gather(*self._closing)
        shutil.rmtree(self._folder, ignore_errors=True)
