"""`langpu serve` as a process: ready line, status, sessions, refusals, its ends."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from lanGPU.constants import PROTOCOL_VERSION
from lanGPU.driverapi import table
from lanGPU.wire import events as ev
from tests.helpers.server import RawClient, ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def can_load_a_driver() -> bool:
    """Whether the machine has a CUDA driver: asked in a process of its own, since this one may have loaded the emulated one."""
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_session_from_hello_to_goodbye() -> None:
    with ServerProcess() as server:
        assert server.host == "127.0.0.1"
        with RawClient(server.port) as client:
            welcome = client.open()
            assert welcome.devices[0].name in server.devices
            assert welcome.devices[0].attributes[75] >= 1
            assert welcome.driver_version >= 12000
            context = client.name()
            assert client.ask("cuDevicePrimaryCtxRetain", context, 0)[0] == 0
            assert client.ask("cuCtxSetCurrent", context)[0] == 0
            result, outputs = client.ask("cuMemGetInfo_v2", 8, 8)
            assert (result, len(outputs)) == (0, 16)
            status = ask_status(server.port)
            (session,) = status["sessions"]
            assert (session["program"], session["pid"], session["host"]) == ("test", os.getpid(), "here")
            assert session["bytes_in"] > 0
            assert status["devices"][0]["name"] == welcome.devices[0].name
            client.goodbye()
        assert wait_until(lambda: ask_status(server.port)["sessions"] == [])
        server.signal()
        assert server.wait() == 0
        assert server.process is not None
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


def test_memory_of_a_session_is_its_own_and_gone_with_it() -> None:
    with ServerProcess() as server, RawClient(server.port) as one, RawClient(server.port) as two:
        for client in (one, two):
            client.open()
            context = client.name()
            client.ask("cuDevicePrimaryCtxRetain", context, 0)
            client.post("cuCtxSetCurrent", context)
        result, outputs = one.ask("cuMemAlloc_v2", 8, 4096)
        assert result == 0
        address = int.from_bytes(outputs, "little")
        one.post("cuMemcpyHtoD_v2", address, b"secret!!" * 512, 4096)
        assert one.ask("cuMemcpyDtoH_v2", 4096, address, 4096) == (0, b"secret!!" * 512)
        assert len({worker.pid for worker in server.workers()}) >= 2


def test_version_mismatch_is_refused_with_both_ranges() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        event = client.greet(min=PROTOCOL_VERSION + 1, max=PROTOCOL_VERSION + 2)
        assert isinstance(event, ev.RefuseReceived)
        assert event.refusal.reason == "version"
        assert event.refusal.max == PROTOCOL_VERSION
        assert f"{PROTOCOL_VERSION + 1} to {PROTOCOL_VERSION + 2}" in event.refusal.message
        assert client.event() == ev.ConnectionClosed(orderly=True)


def test_unknown_purposes_and_too_many_sessions_are_refused() -> None:
    with ServerProcess(max_sessions=1) as server, RawClient(server.port) as first, RawClient(server.port) as second:
        first.open()
        event = second.greet()
        assert isinstance(event, ev.RefuseReceived)
        assert event.refusal.reason == "busy"
        with RawClient(server.port) as third:
            event = third.greet(purpose="mine")
            assert isinstance(event, ev.RefuseReceived)
            assert event.refusal.reason == "purpose"
        first.goodbye()
        assert wait_until(lambda: ask_status(server.port)["sessions"] == [])
        with RawClient(server.port) as fourth:
            fourth.open()


def test_two_servers_on_one_port() -> None:
    with ServerProcess() as server:
        code, out, words = ServerProcess(port=server.port).run_to_end()
        assert (code, out) == (64, "")
        assert f"port {server.port}" in words
        assert "in use" in words
        assert ask_status(server.port)["sessions"] == []


def test_without_a_driver_it_says_what_to_do() -> None:
    if can_load_a_driver():
        pytest.skip("this machine has a CUDA driver")
    code, out, words = ServerProcess(emulate=False).run_to_end()
    assert (code, out) == (85, "")
    assert "--emulate" in words
    assert "no NVIDIA driver" in words


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_open_address_needs_a_word(address: str) -> None:
    code, _, words = ServerProcess("--bind", address).run_to_end()
    assert code == 64
    assert "--insecure" in words
    assert "other machines" in words
    if address == "0.0.0.0":
        with ServerProcess("--bind", address, "--insecure") as server:
            assert "INSECURE" in server.stderr()
            ask_status(server.port)


@pytest.mark.parametrize("bind", ["nonsense.invalid", "192.0.2.1"])
def test_an_address_of_nobody(bind: str) -> None:
    code, _, words = ServerProcess("--bind", bind, "--insecure").run_to_end()
    assert code == 64
    assert bind in words


def test_sigterm_lets_a_running_session_finish() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        client.open()
        server.signal(signal.SIGTERM)
        assert wait_until(lambda: ask_status(server.port)["draining"])
        with RawClient(server.port) as late:
            event = late.greet()
            assert isinstance(event, ev.RefuseReceived)
            assert event.refusal.reason == "stopping"
        assert client.ask("cuCtxSetCurrent", 0)[0] == 0
        client.goodbye()
        assert server.wait() == 0


@pytest.mark.parametrize("second", [True, False], ids=["second signal", "drain timeout"])
def test_a_session_that_does_not_finish_is_ended(second: bool) -> None:
    with ServerProcess(drain_timeout_s=60.0 if second else 0.3) as server, RawClient(server.port) as client:
        client.open()
        server.signal(signal.SIGINT)
        if second:
            assert wait_until(lambda: ask_status(server.port)["draining"])
            server.signal(signal.SIGINT)
        events = [client.event()]
        while not isinstance(events[-1], ev.ConnectionClosed):
            events.append(client.event())
        assert isinstance(events[0], ev.GoodbyeReceived)
        assert server.wait() == 0


def test_signal_while_starting_ends_cleanly() -> None:
    server = ServerProcess()
    server.launch()
    assert wait_until(lambda: server.workers() != [])
    server.signal()
    assert server.collect()[:2] == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_daemon_killed_leaves_no_worker() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        client.open()
        assert wait_until(lambda: len(server.workers()) == 2)
        workers = server.workers()
        server.signal(signal.SIGKILL)
        server.wait()
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert alive == []
        assert isinstance(client.event(), ev.ConnectionClosed)


def test_worker_killed_closes_its_session_and_no_other() -> None:
    with ServerProcess() as server, RawClient(server.port) as client, RawClient(server.port) as other:
        client.open()
        (worker,) = {w.pid for w in server.workers()} - waiting_workers(server)
        other.open()
        os.kill(worker, signal.SIGKILL)
        assert client.event() == ev.ConnectionClosed(orderly=False)
        assert other.ask("cuCtxSetCurrent", 0)[0] == 0
        assert wait_until(lambda: len(ask_status(server.port)["sessions"]) == 1)
        assert str(worker) in server.stderr()


def waiting_workers(server: ServerProcess) -> set[int]:
    """Pids of workers without a session: those that hold no TCP connection."""
    return {worker.pid for worker in server.workers() if not worker.net_connections("tcp")}


def test_a_waiting_worker_that_died_is_replaced() -> None:
    with ServerProcess() as server:
        assert wait_until(lambda: len(waiting_workers(server)) == 1)
        (worker,) = waiting_workers(server)
        os.kill(worker, signal.SIGKILL)
        with RawClient(server.port) as client:
            client.open()
            assert client.ask("cuCtxSetCurrent", 0)[0] == 0


def test_a_client_that_vanishes_takes_its_worker_along() -> None:
    with ServerProcess() as server:
        client = RawClient(server.port)
        client.open()
        client.close()
        assert wait_until(lambda: ask_status(server.port)["sessions"] == [], 5)


def test_garbage_in_a_session_ends_that_session_with_a_reason() -> None:
    with ServerProcess() as server, RawClient(server.port) as client, RawClient(server.port) as other:
        client.open()
        other.open()
        client.sock.sendall(b"\0" * 64)
        event = client.event()
        assert isinstance(event, ev.GoodbyeReceived)
        assert "protocol" in event.reason
        assert isinstance(client.event(), ev.ConnectionClosed)
        assert other.ask("cuCtxSetCurrent", 0)[0] == 0


def test_rows_a_worker_refuses_do_not_end_it() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        client.open()
        context = client.name()
        assert client.ask("cuDevicePrimaryCtxRetain", context, 0)[0] == 0
        client.post("cuCtxSetCurrent", context)
        assert client.ask("cuModuleLoad", client.name(), b"/etc/passwd\0")[0] == 801
        assert client.ask("cuStreamSynchronize", client.name())[0] == 400
        client.post("cuStreamWaitEvent", 0, client.name(), 0)
        token = client.send("cuCtxSynchronize")
        event = client.event()
        while isinstance(event, ev.LogReceived):
            event = client.event()
        assert isinstance(event, ev.ReplyReceived)
        assert (event.token, event.result, event.failed_api) == (token, 400, table.BY_NAME["cuStreamWaitEvent"].api_id)


def test_ipv6_loopback() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with ServerProcess("--bind", "::1") as server:
        assert server.host == "[::1]"
        with RawClient(server.port, "::1") as client:
            client.open()
