"""Host functions on the wire: what a client is asked, that the device waits for it and for nobody else, and clients that do not answer."""

import struct
import time

import pytest

from lanGPU.wire import events as ev
from lanGPU.wire.handshake import CAP_HOST_CALLS
from tests.helpers.server import RawClient, ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

NOT_SUPPORTED, NOT_READY = 801, 600


def start(client: RawClient, *caps: str) -> int:
    """Opens a session with a context that is current for threads 1 and 2; returns the address of 64 bytes."""
    client.open(caps=caps)
    context = client.name()
    assert client.ask("cuDevicePrimaryCtxRetain", context, 0, thread=1)[0] == 0
    for thread in (1, 2):
        client.post("cuCtxSetCurrent", context, thread=thread)
    result, outputs = client.ask("cuMemAlloc_v2", 8, 64, thread=1)
    assert result == 0
    return int.from_bytes(outputs[:8], "little")


def done(client: RawClient, call: int) -> None:
    client.connection.send_host_done(call)
    client.flush()


def next_call(client: RawClient) -> ev.HostCallReceived:
    event = client.event()
    assert isinstance(event, ev.HostCallReceived), event
    return event


def test_the_device_waits_until_the_client_says_done() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        address = start(client, CAP_HOST_CALLS)
        client.post("cuLaunchHostFunc", 0, 0, 7, thread=1)
        client.post("cuMemFree_v2", address, thread=1)  # the driver waits in this call, and the issuing thread with it
        asked = next_call(client)
        assert (asked.callback, asked.status) == (7, 0)
        assert asked.call
        done(client, asked.call + 1)  # nobody's
        token = client.send("cuStreamQuery", 0, thread=2)
        time.sleep(0.05)
        done(client, asked.call)
        assert client.reply(token)[0] == 0
        client.post("cuStreamAddCallback", 0, 0, 8, 0, thread=1)
        token = client.send("cuCtxSynchronize", thread=2)
        again = next_call(client)
        assert (again.callback, again.status) == (8, 0)
        done(client, again.call)
        assert client.reply(token)[0] == 0
        done(client, again.call)  # once more
        client.goodbye()


def test_records_of_one_frame_and_of_many_keep_their_order_behind_a_host_function() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        address = start(client, CAP_HOST_CALLS)
        client.post("cuLaunchHostFunc", 0, 0, 1, thread=1)
        for value in range(200):
            client.post("cuMemsetD32_v2", address, value, 16, thread=1)
        asked = next_call(client)
        for value in range(200, 300):
            client.post("cuMemsetD32_v2", address, value, 16, thread=1)
        token = client.send("cuMemcpyDtoH_v2", 64, address, 64, thread=1)
        done(client, asked.call)
        result, outputs = client.reply(token)
        assert (result, struct.unpack("<16I", outputs[:64])) == (0, (299,) * 16)
        client.goodbye()


def test_a_client_without_the_capability_is_not_called() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        start(client)
        assert client.ask("cuLaunchHostFunc", 0, 0, 7, thread=1)[0] == NOT_SUPPORTED
        assert client.ask("cuUserObjectCreate", client.name(), 7, 0, 1, 1, thread=1)[0] == NOT_SUPPORTED
        assert client.ask("cuCtxSynchronize", thread=1)[0] == 0


def test_a_destructor_is_told_and_not_waited_for() -> None:
    with ServerProcess() as server, RawClient(server.port) as client:
        start(client, CAP_HOST_CALLS)
        handle = client.name()
        assert client.ask("cuUserObjectCreate", handle, 9, 0, 1, 1, thread=1)[0] == 0
        client.post("cuUserObjectRelease", handle, 1, thread=1)
        told = next_call(client)
        assert (told.call, told.callback) == (0, 9)
        assert client.ask("cuCtxSynchronize", thread=1)[0] == 0


@pytest.mark.parametrize("blocked", [False, True], ids=["idle", "in the driver"])
def test_a_client_that_leaves_in_a_host_function(blocked: bool) -> None:
    with ServerProcess() as server:
        with RawClient(server.port) as client:
            address = start(client, CAP_HOST_CALLS)
            client.post("cuLaunchHostFunc", 0, 0, 7, thread=1)
            if blocked:
                client.post("cuMemFree_v2", address, thread=1)
            next_call(client)
        assert wait_until(lambda: not ask_status(server.port)["sessions"])
        with RawClient(server.port) as another:
            start(another, CAP_HOST_CALLS)
            assert another.ask("cuCtxSynchronize", thread=1)[0] == 0
            another.goodbye()
