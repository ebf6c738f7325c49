"""An Issuer over a FakeDriver: records in, replies out, nothing in between."""

import struct
import threading
from dataclasses import dataclass

from lanGPU.driverapi import table
from lanGPU.server import calls  # noqa: F401 (registers the hand-written server sides)
from lanGPU.server.executor import MachineExecutor
from lanGPU.server.issuer import Issuer
from lanGPU.server.reference import Executor, ReferenceExecutor
from lanGPU.wire.connection import Buffer
from lanGPU.wire.records import Value, encode, make_handle
from tests.helpers.fake_driver import FakeDriver


@dataclass
class Reply:
    thread: int
    token: int
    result: int
    failed_api: int
    outputs: bytes


class Bench:
    """One session's server side. `ask` sends one record and returns its reply, waiting for waiter threads."""

    def __init__(self, *, machine_code: bool = False) -> None:
        self.driver = FakeDriver()
        self.driver.succeeds("cuStreamQuery")
        self.executor: Executor
        if machine_code:
            self.executor = MachineExecutor(self.driver.entry_point, table.ROWS)
        else:
            self.executor = ReferenceExecutor(self.driver, table.BY_ID)  # type: ignore[arg-type]
        self.logged: list[tuple[str, str]] = []
        self.replies: list[Reply] = []
        self._arrived = threading.Condition()
        self.issuer = Issuer(
            self.driver,  # type: ignore[arg-type]
            self.executor,
            table.BY_ID,
            send=self._send,
            log=lambda level, text: self.logged.append((level, text)),
        )
        self._token = 0
        self._handles = 0

    def _send(self, buffers: list[Buffer]) -> None:
        data = b"".join(bytes(b) for b in buffers)
        with self._arrived:
            while data:
                _, kind, _, _, body, bulk = struct.unpack_from("<HBBIII", data)
                assert (kind, body) == (5, 0)
                reply, data = data[16 : 16 + bulk], data[16 + bulk :]
                thread, token, result, failed, zero = struct.unpack_from("<IIiHH", reply)
                assert zero == 0
                self.replies.append(Reply(thread, token, result, failed, reply[16:]))
            self._arrived.notify_all()

    def name(self) -> int:
        """A fresh name for a handle."""
        self._handles += 1
        return make_handle(self._handles, 0)

    def record(self, row: str, *values: Value, thread: int = 0, token: int = 0, flags: int = 0) -> bytes:
        return encode(table.BY_NAME[row], values, thread=thread, token=token, flags=flags)

    def feed(self, data: bytes) -> None:
        with self.issuer.lock:
            self.issuer.feed(memoryview(bytearray(data)))

    def post(self, row: str, *values: Value, thread: int = 0, flags: int = 0) -> None:
        self.feed(self.record(row, *values, thread=thread, flags=flags))

    def ask(self, row: str, *values: Value, thread: int = 0, flags: int = 0) -> Reply:
        self._token += 1
        token = self._token
        self.feed(self.record(row, *values, thread=thread, token=token, flags=flags))
        return self.wait(token)

    def wait(self, token: int) -> Reply:
        with self._arrived:
            assert self._arrived.wait_for(lambda: any(r.token == token for r in self.replies), 10)
            return next(r for r in self.replies if r.token == token)

    def close(self) -> None:
        self.issuer.close()
