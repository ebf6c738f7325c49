"""A worker process: waits warm for a session, serves it, and ends. Started by the daemon only: ``python -m lanGPU.server.worker``."""

import argparse
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from lanGPU.driverapi import table
from lanGPU.errors import LanGPUError
from lanGPU.server import calls  # noqa: F401 (registers the hand-written server sides)
from lanGPU.server.control import WorkerControl
from lanGPU.server.devices import describe_devices
from lanGPU.server.driver import Driver
from lanGPU.server.reference import Executor, ReferenceExecutor
from lanGPU.server.session import Session
from lanGPU.wire.handshake import CAP_HOST_CALLS, Hello, Welcome

_log = logging.getLogger("lanGPU.worker")
_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Linux: the kernel ends this process when the daemon dies, even if no thread here ever runs again."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def make_executor(driver: Driver) -> Executor:
    """The executor of this process: machine code, or Python where LANGPU_EXECUTOR=python asks for it (debugging)."""
    if os.environ.get("LANGPU_EXECUTOR") != "python":
        try:
            from lanGPU.server.executor import make_executor as machine_code
        except ImportError as exc:
            _log.debug("no machine-code executor: %s", exc)
        else:
            return machine_code(driver)
    return ReferenceExecutor(driver, table.BY_ID)


def probe(driver: Driver) -> dict[str, Any]:
    """What the daemon must know of the devices; it never loads a driver itself."""
    driver.initialize()
    devices = describe_devices(driver)
    return {
        "type": "probe",
        "driver_version": driver.version(),
        "emulated": driver.emulated,
        "devices": [{"name": d.name, "uuid": d.uuid, "total_bytes": d.total_bytes, "pci_bus_id": d.pci_bus_id} for d in devices],
    }


def serve_session(control: WorkerControl, message: dict[str, Any], driver: Driver, executor: Executor) -> int:
    """One session on the socket that came with `message`."""
    sock = control.take_socket(message)
    sock.setblocking(True)
    hello = Hello(**{**message["hello"], "caps": tuple(message["hello"]["caps"])})
    session = Session(sock, hello, control, driver, executor)
    try:
        driver.initialize()
        welcome = Welcome(
            session=message["session"],
            server=message["server"],
            driver_version=driver.version(),
            devices=describe_devices(driver),
            emulated=driver.emulated,
            version=message["version"],
            caps=(CAP_HOST_CALLS,),
        )
    except LanGPUError as exc:
        session.refuse("driver", str(exc), exc.hint)
        _log.error("the driver failed at the start of a session: %s", exc)
        return exc.exit_code
    session.welcome(welcome)
    reason = session.run()
    _log.info("session %s ended: %s", message["session"], reason)
    control.send({"type": "ended", "reason": reason})
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The process; the exit code is for the daemon's log."""
    parser = argparse.ArgumentParser(prog="lanGPU.server.worker")
    parser.add_argument("--control", type=int, default=None)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--log-level", default="WARNING")
    options = parser.parse_args(argv)
    # The daemon alone decides when sessions end: a Ctrl-C in its terminal reaches us too.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    die_with_parent()
    logging.basicConfig(level=options.log_level, format=f"%(levelname)s worker {os.getpid()}: %(message)s")
    control = WorkerControl(options.control)
    try:
        driver = Driver(emulate=options.emulate)
        if options.probe:
            control.send(probe(driver))
            return 0
        executor = make_executor(driver)
    except LanGPUError as exc:
        control.send({"type": "failed", "error": type(exc).__name__, "message": str(exc), "hint": exc.hint})
        return exc.exit_code
    gc.collect()
    gc.freeze()  # what is imported lives for ever: no collection in a session needs to walk it
    control.send({"type": "ready"})
    message = control.receive()
    if message is None or message["type"] != "session":
        return 0
    return serve_session(control, message, driver, executor)


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        logging.getLogger("lanGPU.worker").exception("the worker failed")
        code = 70
    logging.shutdown()
    sys.stderr.flush()
    # Not sys.exit: waiter threads may be in the driver for ever, and its own exit handlers may wait for the device.
    os._exit(code)
