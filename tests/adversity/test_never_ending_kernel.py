"""A kernel that never ends: its client may leave at any time, others are served, the server can be stopped."""

import signal

import psutil
import pytest

from lanGPU.wire import events as ev
from lanGPU.wire.records import FLAG_PER_THREAD
from tests.helpers.server import RawClient, ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

ENDLESS = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry endless(.param .u64 flag)
{
.reg .pred %p<2>;
.reg .b32 %r<2>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [flag];
AGAIN:
ld.volatile.global.u32 %r1, [%rd1];
setp.eq.u32 %p1, %r1, 0;
@%p1 bra AGAIN;
ret;
}
\0"""


def start_endless(client: RawClient, thread: int = 1) -> None:
    """Launches a kernel that waits for memory which nobody will change."""
    client.open()
    context, module, function = (client.name() for _ in range(3))
    assert client.ask("cuDevicePrimaryCtxRetain", context, 0, thread=thread)[0] == 0
    client.post("cuCtxSetCurrent", context, thread=thread)
    client.post("cuCtxSetCurrent", context, thread=2)
    result, outputs = client.ask("cuMemAlloc_v2", 8, 4096, thread=thread)
    assert result == 0
    address = int.from_bytes(outputs, "little")
    client.post("cuMemsetD8_v2", address, 0, 4096, thread=thread)
    assert client.ask("cuModuleLoadData", module, ENDLESS, thread=thread)[0] == 0
    assert client.ask("cuModuleGetFunction", function, module, b"endless\0", thread=thread)[0] == 0
    client.post("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, address.to_bytes(8, "little"), None, thread=thread)


@pytest.mark.parametrize("flags", [0, FLAG_PER_THREAD], ids=["on a waiter", "on the issuing thread"])
def test_the_client_vanishes(flags: int) -> None:
    with ServerProcess() as server:
        client = RawClient(server.port)
        start_endless(client)
        client.send("cuStreamSynchronize", 2 if flags else 0, thread=1, flags=flags)
        if not flags:
            # Calls of another thread are answered meanwhile; so the first one is in the driver.
            assert client.ask("cuCtxSetCurrent", 0, thread=2)[0] == 0
        (session,) = ask_status(server.port)["sessions"]
        assert session["program"] == "test"
        workers = [w for w in server.workers() if w.net_connections("tcp")]
        assert len(workers) == 1
        client.close()
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert alive == []
        assert wait_until(lambda: ask_status(server.port)["sessions"] == [], 5)
        with RawClient(server.port) as other:
            other.open()
            assert other.ask("cuCtxSetCurrent", 0)[0] == 0


def test_the_server_is_stopped() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        start_endless(client)
        client.send("cuCtxSynchronize", thread=1)
        server.signal(signal.SIGTERM)
        assert wait_until(lambda: ask_status(server.port)["draining"])
        server.signal(signal.SIGTERM)
        while not isinstance(client.event(), ev.ConnectionClosed):
            pass
        assert server.wait() == 0


def test_another_session_computes_meanwhile() -> None:
    with ServerProcess() as server, RawClient(server.port) as stuck, RawClient(server.port) as other:
        start_endless(stuck)
        stuck.send("cuCtxSynchronize", thread=1)
        other.open()
        context = other.name()
        assert other.ask("cuDevicePrimaryCtxRetain", context, 0)[0] == 0
        other.post("cuCtxSetCurrent", context)
        result, outputs = other.ask("cuMemAlloc_v2", 8, 64)
        assert result == 0
        address = int.from_bytes(outputs, "little")
        other.post("cuMemsetD8_v2", address, 5, 64)
        assert other.ask("cuMemcpyDtoH_v2", 64, address, 64) == (0, bytes([5]) * 64)
