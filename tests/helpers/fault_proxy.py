"""A TCP proxy on loopback that hurts connections on cue: cuts, stalls, truncates, half-closes."""

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType


class Fault(Enum):
    """What happens when a direction has passed its bytes."""

    CUT = auto()
    """Both directions end with a reset."""
    HALF_CLOSE = auto()
    """This direction ends with a FIN, the other goes on."""
    STALL = auto()
    """This direction passes nothing more until `release`."""


@dataclass(frozen=True)
class Rule:
    """After `after` bytes of a direction: `fault`; the byte that follows is never passed on."""

    after: int
    fault: Fault


class FaultProxy:
    """Forwards every connection to (host, port); `to_server` and `to_client` rules hold for connections accepted afterwards."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, to_server: Rule | None = None, to_client: Rule | None = None) -> None:
        self._target = (host, port)
        self.to_server = to_server
        self.to_client = to_client
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._released = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="fault-proxy")

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop = True
        self._wake.send(b"x")
        self._thread.join(10)
        assert not self._thread.is_alive()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()

    def release(self) -> None:
        """Stalled directions go on."""
        self._released.set()
        self._wake.send(b"x")

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            pairs: list[_Pair] = []
            while not self._stop:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._woken.recv(64)
                        for pair in pairs:
                            pair.resume(self._released.is_set())
                    elif key.fileobj is self._listener:
                        client, _ = self._listener.accept()
                        pairs.append(_Pair(selector, client, self._target, self.to_server, self.to_client))
                    else:
                        key.data()
            for pair in pairs:
                pair.close()


class _Direction:
    def __init__(self, pair: "_Pair", source: socket.socket, sink: socket.socket, rule: Rule | None) -> None:
        self.pair, self.source, self.sink, self.rule = pair, source, sink, rule
        self.passed = 0
        pair.selector.register(source, selectors.EVENT_READ, self.forward)

    def pause(self) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.pair.selector.unregister(self.source)

    def forward(self) -> None:
        limit = 65536 if self.rule is None else min(65536, self.rule.after - self.passed)
        try:
            if limit:
                data = self.source.recv(limit)
                self.sink.sendall(data)
                self.passed += len(data)
                if not data:
                    self.pause()
                    self.sink.shutdown(socket.SHUT_WR)
                    return
        except OSError:
            self.pair.close()
            return
        if self.rule is not None and self.passed >= self.rule.after:
            if self.rule.fault is Fault.CUT:
                self.pair.close(reset=True)
            elif self.rule.fault is Fault.STALL:
                self.pause()
            else:
                self.pause()
                self.sink.shutdown(socket.SHUT_WR)


class _Pair:
    def __init__(
        self,
        selector: selectors.BaseSelector,
        client: socket.socket,
        target: tuple[str, int],
        to_server: Rule | None,
        to_client: Rule | None,
    ) -> None:
        self.selector = selector
        self.client = client
        self.server = socket.create_connection(target)
        self.directions = [_Direction(self, client, self.server, to_server), _Direction(self, self.server, client, to_client)]

    def resume(self, released: bool) -> None:
        for direction in self.directions:
            if released and direction.rule is not None and direction.rule.fault is Fault.STALL and direction.passed >= direction.rule.after:
                direction.rule = None
                self.selector.register(direction.source, selectors.EVENT_READ, direction.forward)

    def close(self, *, reset: bool = False) -> None:
        for direction in self.directions:
            direction.pause()
        for sock in (self.client, self.server):
            if reset:
                with contextlib.suppress(OSError):
                    # linger 0: close sends a reset
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
