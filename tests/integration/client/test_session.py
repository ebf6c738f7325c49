"""A session between a shim in Python and a server in Python, over real shared memory and a real socket, in one process."""

import os
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from lanGPU.client import layout as lay
from lanGPU.client import pump
from lanGPU.client.link import Link, open_session
from lanGPU.client.session import Session
from lanGPU.client.symbols import ShimSymbols
from lanGPU.constants import COPY_CHUNK_BYTES
from lanGPU.errors import ConnectError
from tests.helpers.fake_server import DEVICE_BASE, FakeServer
from tests.helpers.fake_shim import FakeShim

NOT_INITIALIZED, INVALID_VALUE, NO_DEVICE, DESTROYED, NOT_READY = 3, 1, 100, 709, 802


class Bench:
    """Server, session and shim together."""

    def __init__(self, *, blocking: bool = False) -> None:
        self.server = FakeServer()
        self.reports: list[str] = []
        self.session = Session(
            os.getpid(),
            self._open,
            ShimSymbols(0, {}),
            program="test",
            blocking=blocking,
            report=lambda text, hint: self.reports.append(text),
        )
        self.shim = FakeShim(self.session.ring.fd)
        self.session.start()

    def _open(self, pid: int, program: str) -> Link:
        return open_session("127.0.0.1", self.server.port, program=program, pid=pid)

    def context(self) -> int:
        out = self.shim.buffer(8)
        assert self.shim.agent("cuInit", 0) == 0
        assert self.shim.agent("cuCtxCreate_v2", out.address, 0, 0) == 0
        return out.word

    def close(self) -> None:
        self.session.close()
        self.server.close()


@pytest.fixture(params=["native loops", "python loops", "through the slot"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if request.param == "python loops":
        monkeypatch.setattr(pump, "ready", lambda: None)
    else:
        assert pump.load() is not None
    made = Bench()
    made.session.memory.direct = request.param != "through the slot"
    yield made
    made.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("langpu-") for name in names)


def wait_until(condition: object, limit_s: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_nothing_works_before_init(bench: Bench) -> None:
    assert bench.shim.agent("cuDeviceGetCount", bench.shim.buffer(4).address) == NOT_INITIALIZED
    assert bench.shim.sync("cuCtxSynchronize") == (NOT_INITIALIZED, b"")
    assert bench.server.calls == []


def test_posted_and_synchronous_calls_keep_their_order(bench: Bench) -> None:
    bench.context()
    for i in range(100):
        bench.shim.post("cuMemcpyHtoD_v2", DEVICE_BASE + i, bytes([i]), 1)
    assert bench.shim.sync("cuMemcpyDtoH_v2", 100, DEVICE_BASE, 100) == (0, bytes(range(100)).ljust(104, b"\0"))
    assert [name for name, _, _ in bench.server.calls] == ["cuCtxCreate_v2", *["cuMemcpyHtoD_v2"] * 100, "cuMemcpyDtoH_v2"]
    assert bench.shim.thread_attach() == 0


def test_requests_have_their_place_in_the_order(bench: Bench) -> None:
    context = bench.context()
    bench.shim.post("cuMemsetD8_v2", DEVICE_BASE, 1, 4)
    assert bench.shim.agent("cuCtxSetCurrent", 0) == 0
    bench.shim.post("cuMemsetD8_v2", DEVICE_BASE, 2, 4)
    assert bench.shim.agent("cuCtxSetCurrent", context) == 0
    assert bench.shim.sync("cuCtxSynchronize")[0] == 0
    names = [name for name, _, _ in bench.server.calls[1:]]
    assert names == ["cuMemsetD8_v2", "cuCtxSetCurrent", "cuMemsetD8_v2", "cuCtxSetCurrent", "cuCtxSynchronize"]


def test_large_copies(bench: Bench) -> None:
    bench.context()
    data = os.urandom(3 * COPY_CHUNK_BYTES + 4321)
    source, target = bench.shim.buffer(data), bench.shim.buffer(len(data))
    assert bench.shim.agent("cuMemcpyHtoD_v2", DEVICE_BASE, source.address, len(data)) == 0
    source.set(bytes(len(data)))  # the copy was taken
    assert bench.shim.agent("cuMemcpyDtoH_v2", target.address, DEVICE_BASE, len(data)) == 0
    assert target.bytes == data


def test_strings_structs_and_functions(bench: Bench) -> None:
    bench.context()
    out = bench.shim.buffer(8)
    image = bench.shim.buffer(b".version 7.0\n\0" + bytes(4096))
    assert bench.shim.agent("cuModuleLoadData", out.address, image.address) == 0
    module = out.word
    name = bench.shim.buffer(b"kernel\0")
    assert bench.shim.agent("cuModuleGetFunction", out.address, module, name.address) == 0
    index = out.word & 0xFFFFFF
    entry = struct.unpack_from("<4I", bench.shim.view, lay.FUNCTIONS + lay.FUNCTION_BYTES * index)
    assert entry[:2] == (2, 8)
    assert struct.unpack_from("<2I", bench.shim.view, lay.PARAMS + 8 * entry[2]) == (0, 8)
    text = bench.shim.buffer(32)
    assert bench.shim.agent("cuDeviceGetName", text.address, 32, 0) == 0
    assert text.bytes.startswith(b"Fake GPU\0")
    assert bench.shim.agent("cuGetErrorName", 2, out.address) == 0


def test_pinned_memory_is_the_programs(bench: Bench) -> None:
    bench.context()
    out = bench.shim.buffer(8)
    assert bench.shim.agent("cuMemHostAlloc", out.address, 100_000, 0) == 0
    assert bench.shim.agent("cuMemcpyDtoH_v2", out.word, DEVICE_BASE, 100_000) == 0
    assert bench.shim.agent("cuMemFreeHost", out.word) == 0


def test_bad_addresses_are_invalid_value() -> None:
    bench = Bench()
    try:
        bench.context()
        assert bench.shim.agent("cuMemcpyHtoD_v2", DEVICE_BASE, 0x1000, 1 << 20) == INVALID_VALUE
        assert bench.shim.agent("cuMemcpyDtoH_v2", 0x1000, DEVICE_BASE, 1 << 20) == INVALID_VALUE
        assert bench.shim.agent("cuModuleLoadData", 0x1000, 0x1000) == INVALID_VALUE
        assert bench.shim.sync("cuCtxSynchronize")[0] == 0
    finally:
        bench.close()


def test_ring_wraps_and_blocks_when_the_server_does_not_read(bench: Bench) -> None:
    bench.context()
    total = 3 * lay.RING_BYTES
    bench.server.gate.clear()
    piece = bytes(65536)
    threading.Timer(0.05, bench.server.gate.set).start()
    for _ in range(total // len(piece)):
        bench.shim.post("cuMemcpyHtoD_v2", DEVICE_BASE, piece, len(piece))
    assert bench.shim.sync("cuCtxSynchronize")[0] == 0
    assert sum(name == "cuMemcpyHtoD_v2" for name, _, _ in bench.server.calls) == total // len(piece)


def test_blocking_mode_reports_at_the_call_itself() -> None:
    bench = Bench(blocking=True)
    try:
        assert bench.shim.u32[lay.FLAGS // 4] & lay.FLAG_BLOCKING
        bench.context()
        bench.server.handlers["cuMemcpyHtoD_v2"] = lambda thread, values: (700, b"")
        source = bench.shim.buffer(1 << 20)
        assert bench.shim.agent("cuMemcpyHtoD_v2", DEVICE_BASE, source.address, 1 << 20) == 700
    finally:
        bench.close()


def test_lost_server_fails_waiting_and_later_calls(bench: Bench) -> None:
    bench.context()

    def die(thread: int, values: list[object]) -> tuple[int, bytes]:
        bench.server.drop()
        return 0, b""

    bench.server.handlers["cuCtxSynchronize"] = die
    assert bench.shim.sync("cuCtxSynchronize")[0] == DESTROYED
    wait_until(lambda: bench.shim.u32[lay.FLAGS // 4] & lay.FLAG_CLOSED)
    assert bench.shim.sync("cuCtxSynchronize")[0] == DESTROYED
    assert bench.shim.agent("cuCtxGetCurrent", bench.shim.buffer(8).address) == DESTROYED
    assert len(bench.reports) == 1
    assert "lost" in bench.reports[0]


def test_lost_server_in_mid_download(bench: Bench) -> None:
    bench.context()

    def die(thread: int, values: list[object]) -> tuple[int, bytes]:
        bench.server.drop()
        return 0, bytes(COPY_CHUNK_BYTES)

    bench.server.handlers["cuMemcpyDtoH_v2"] = die
    target = bench.shim.buffer(4 * COPY_CHUNK_BYTES)
    assert bench.shim.agent("cuMemcpyDtoH_v2", target.address, DEVICE_BASE, 4 * COPY_CHUNK_BYTES) == DESTROYED


def test_records_after_the_loss_do_not_block(bench: Bench) -> None:
    assert bench.shim.agent("cuInit", 0) == 0
    bench.server.drop()
    wait_until(lambda: bench.shim.u32[lay.FLAGS // 4] & lay.FLAG_CLOSED)
    assert bench.shim.u32[lay.CLOSED_RESULT // 4] == NOT_READY
    for _ in range(2 * lay.RING_BYTES // 65536):
        bench.shim.post("cuMemcpyHtoD_v2", DEVICE_BASE, bytes(65536), 65536)


def test_no_server_is_said_once() -> None:
    reports = []

    def refuse(pid: int, program: str) -> Link:
        raise ConnectError("nobody there")

    session = Session(os.getpid(), refuse, ShimSymbols(0, {}), program="test", report=lambda text, hint: reports.append(text))
    shim = FakeShim(session.ring.fd)
    session.start()
    try:
        assert shim.agent("cuInit", 0) == NO_DEVICE
        assert shim.agent("cuInit", 0) == NO_DEVICE
        assert shim.agent("cuDriverGetVersion", shim.buffer(4).address) == 0
        assert reports == ["nobody there"]
    finally:
        session.close()


def test_garbage_in_shared_memory_ends_the_session_only(bench: Bench) -> None:
    bench.context()
    bench.shim.u64[lay.HEAD // 8] += 1 << 40
    bench.shim._ring_doorbell()
    wait_until(lambda: bench.shim.u32[lay.FLAGS // 4] & lay.FLAG_CLOSED)
    assert "damaged" in bench.reports[0]


def test_goodbye_and_statistics() -> None:
    bench = Bench()
    try:
        bench.context()
        bench.shim.post("cuMemsetD8_v2", DEVICE_BASE, 1, 4)
        assert bench.shim.sync("cuCtxSynchronize")[0] == 0
        assert bench.shim.agent("cuMemcpyHtoD_v2", DEVICE_BASE, bench.shim.buffer(1 << 20).address, 1 << 20) == 0
        assert bench.shim.agent("cuMemcpyDtoH_v2", bench.shim.buffer(1 << 20).address, DEVICE_BASE, 1 << 20) == 0
    finally:
        bench.close()
    stats = bench.session.stats
    assert bench.server.goodbyes == ["process ended"]
    assert (stats.posted, stats.synchronous, stats.agent) == (1, 1, 4)
    assert stats.agent_round_trips == 2  # the context and the download
    assert stats.round_trips == 3
    assert stats.bulk_up_bytes >= 1 << 20
    assert stats.bytes_received > 1 << 20
    assert stats.wait_ns > 0
    assert bench.session.ring.fd == -1
