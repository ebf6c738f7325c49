#!/usr/bin/env python3
"""Measure what remoting costs: a server with a driver that does nothing, and a program that times driver calls through it, on loopback.

.venv/bin/python tools/bench_calls.py                       a table for people
.venv/bin/python tools/bench_calls.py --json                one JSON object
.venv/bin/python tools/bench_calls.py --quick               fewer repetitions, some seconds
.venv/bin/python tools/bench_calls.py --driver DIR --program PATH      another driver library, another (native) program

docs/performance.md defines every number.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import null_driver

from lanGPU.native import jit

READY = re.compile(r"^langpu serve: listening on (\S+):(\d+) ")
MESSAGE_BYTES = 64
UPLOAD_BYTES = 256 << 20
BURST = 20_000
"""Launches that fit the ring between a program and its agent: their cost is the program's own, without waiting for anybody."""
KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
ret;
}
\0"""

LOOPS = """
define i64 @repeat(ptr %f, i64 %n, ptr %args) {
e:
ARGS
  br label %loop
loop:
  %i = phi i64 [0, %e], [%i2, %loop]
  %bad = phi i32 [0, %e], [%bad2, %loop]
  %r = call i32 %f(VALUES)
  %bad2 = or i32 %bad, %r
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %loop, label %done
done:
  %z = zext i32 %bad2 to i64
  ret i64 %z
}
; %f(&x, size) and then %g(x)
define i64 @pairs(ptr %f, ptr %g, i64 %n, i64 %size) {
e:
  %slot = alloca i64
  br label %loop
loop:
  %i = phi i64 [0, %e], [%i2, %loop]
  %bad = phi i32 [0, %e], [%bad3, %loop]
  %r = call i32 %f(ptr %slot, i64 %size)
  %v = load i64, ptr %slot
  %r2 = call i32 %g(i64 %v)
  %bad2 = or i32 %bad, %r
  %bad3 = or i32 %bad2, %r2
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %loop, label %done
done:
  %z = zext i32 %bad3 to i64
  ret i64 %z
}
; receives %length bytes; 0 when the connection ended
define internal i64 @receive(ptr %recv, i32 %fd, ptr %buffer, i64 %length) {
e:
  br label %loop
loop:
  %got = phi i64 [0, %e], [%got2, %some]
  %to = getelementptr i8, ptr %buffer, i64 %got
  %want = sub i64 %length, %got
  %r = call i64 %recv(i32 %fd, ptr %to, i64 %want, i32 0)
  %end = icmp sle i64 %r, 0
  br i1 %end, label %gone, label %some
some:
  %got2 = add i64 %got, %r
  %all = icmp eq i64 %got2, %length
  br i1 %all, label %done, label %loop
gone:
  ret i64 0
done:
  ret i64 1
}
define i64 @ping(ptr %send, ptr %recv, i32 %fd, i64 %n, ptr %buffer, i64 %length) {
e:
  br label %loop
loop:
  %i = phi i64 [0, %e], [%i2, %got]
  %s = call i64 %send(i32 %fd, ptr %buffer, i64 %length, i32 0)
  %r = call i64 @receive(ptr %recv, i32 %fd, ptr %buffer, i64 %length)
  %ok = icmp ne i64 %r, 0
  br i1 %ok, label %got, label %gone
got:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %loop, label %done
gone:
  ret i64 0
done:
  ret i64 1
}
define void @echo(ptr %send, ptr %recv, i32 %fd, ptr %buffer, i64 %length) {
e:
  br label %loop
loop:
  %r = call i64 @receive(ptr %recv, i32 %fd, ptr %buffer, i64 %length)
  %ok = icmp ne i64 %r, 0
  br i1 %ok, label %back, label %gone
back:
  %s = call i64 %send(i32 %fd, ptr %buffer, i64 %length, i32 0)
  br label %loop
gone:
  ret void
}
"""
_U64 = ctypes.c_uint64
_P = ctypes.c_void_p


class Loops:
    """The timed loops as machine code, so that no Python runs inside them."""

    def __init__(self) -> None:
        loads = [f"  %p{i} = getelementptr i64, ptr %args, i64 {i}\n  %a{i} = load i64, ptr %p{i}" for i in range(11)]
        text = LOOPS.replace("ARGS", "\n".join(loads)).replace("VALUES", ", ".join(f"i64 %a{i}" for i in range(11)))
        self._code = jit.load(text, ["repeat", "pairs", "ping", "echo"])
        libc = ctypes.CDLL(None)
        self.send, self.recv = (ctypes.cast(getattr(libc, name), _P).value for name in ("send", "recv"))
        self._repeat = ctypes.CFUNCTYPE(_U64, _P, _U64, _P)(self._code["repeat"])
        self._pairs = ctypes.CFUNCTYPE(_U64, _P, _P, _U64, _U64)(self._code["pairs"])
        self._ping = ctypes.CFUNCTYPE(_U64, _P, _P, ctypes.c_int, _U64, _P, _U64)(self._code["ping"])
        self._echo = ctypes.CFUNCTYPE(None, _P, _P, ctypes.c_int, _P, _U64)(self._code["echo"])

    def repeat(self, function: int, count: int, *args: int) -> None:
        """`count` calls; every one must return CUDA_SUCCESS."""
        values = (_U64 * 11)(*(a & 0xFFFF_FFFF_FFFF_FFFF for a in args))
        check("a repeated call", self._repeat(function, count, ctypes.addressof(values)))

    def pairs(self, function: int, then: int, count: int, size: int) -> None:
        """`count` times a creation and the end of what it created."""
        check("a repeated pair", self._pairs(function, then, count, size))

    def ping(self, fd: int, count: int, length: int) -> None:
        """`count` messages there and back."""
        if not self._ping(self.send, self.recv, fd, count, ctypes.addressof(ctypes.create_string_buffer(length)), length):
            raise SystemExit("the echoing process went away")

    def echo(self, fd: int, length: int) -> None:
        """Sends back what comes until the connection ends."""
        self._echo(self.send, self.recv, fd, ctypes.addressof(ctypes.create_string_buffer(length)), length)


def check(what: str, result: int) -> None:
    """Ends the program with words if a driver call failed: a number measured on errors would be a lie."""
    if result:
        raise SystemExit(f"{what} returned {result}")


def timed(function: Callable[[], None]) -> float:
    """Seconds."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def medians(rounds: int, measures: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each; taken by turns, so that whatever else the machine does falls on all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


# --- the program that runs under `langpu run` ------------------------------------------------------------------------
class Driver:
    """libcuda.so.1 as the program finds it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self._library, name), _P).value or 0

    def call(self, name: str, *args: Any) -> None:
        check(name, getattr(self._library, name)(*args))

    def out(self, name: str, *args: Any, kind: Any = _U64) -> int:
        """The value that the call stores through its first argument."""
        value = kind()
        self.call(name, ctypes.byref(value), *args)
        return int(value.value)


def inside(quick: bool) -> dict[str, float]:
    """The timings, of the process's own driver."""
    import numpy as np

    loops, cuda = Loops(), Driver()
    count, rounds = (500, 3) if quick else (2000, 7)
    upload = UPLOAD_BYTES // 4 if quick else UPLOAD_BYTES
    cuda.call("cuInit", 0)
    device = cuda.out("cuDeviceGet", 0, kind=ctypes.c_int)
    cuda.call("cuCtxSetCurrent", _U64(cuda.out("cuDevicePrimaryCtxRetain", device)))
    module = cuda.out("cuModuleLoadData", KERNEL)
    kernel = cuda.out("cuModuleGetFunction", _U64(module), b"k")
    memory = cuda.out("cuMemAlloc_v2", ctypes.c_size_t(upload))
    pointer, number = _U64(memory), ctypes.c_uint32(5)
    params = (_P * 4)(*[ctypes.addressof(pointer)] * 3, ctypes.addressof(number))
    launch = cuda.address("cuLaunchKernel")
    stream_sync, context_sync = cuda.address("cuStreamSynchronize"), cuda.address("cuCtxSynchronize")

    def launches(n: int) -> float:
        return timed(lambda: loops.repeat(launch, n, kernel, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(params), 0))

    def settled(measure: Callable[[], float]) -> float:
        loops.repeat(context_sync, 1)
        return measure()

    def rate(n: int) -> float:
        return n / (launches(n) + timed(lambda: loops.repeat(context_sync, 1)))

    many = 5 * BURST
    launches(BURST)  # what happens once (the ring's pages, the agent's machine code) is not measured

    def each_us(function: int, *args: int) -> Callable[[], float]:
        def measure() -> float:
            loops.repeat(function, 20, *args)
            return timed(lambda: loops.repeat(function, count, *args)) / count * 1e6

        return measure

    alloc, free = cuda.address("cuMemAlloc_v2"), cuda.address("cuMemFree_v2")
    slot, word = _U64(), ctypes.c_uint32()
    many = 5 * BURST
    out = medians(
        rounds,
        {
            "post_ns": lambda: settled(lambda: launches(BURST) / BURST * 1e9),
            "post_sustained_ns": lambda: settled(lambda: launches(many) / many * 1e9),
            "posted_per_s": lambda: settled(lambda: rate(2 * many)),
        },
    )
    with peer("echo") as sock:
        out |= medians(
            rounds,
            {
                "raw_pingpong_us": lambda: timed(lambda: loops.ping(sock.fileno(), count, MESSAGE_BYTES)) / count * 1e6,
                "sync_us": each_us(stream_sync, 0),
                "context_sync_us": each_us(context_sync),
                "read4_us": each_us(cuda.address("cuMemcpyDtoH_v2"), ctypes.addressof(word), memory, 4),
                "alloc_free_us": lambda: settled(lambda: timed(lambda: loops.pairs(alloc, free, count, 4096)) / count * 1e6),
                "event_create_us": each_us(cuda.address("cuEventCreate"), ctypes.addressof(slot), 0),
            },
        )
    data = np.random.default_rng(1).integers(0, 1 << 63, upload // 8, dtype=np.uint64)
    target = np.full_like(data, 1)  # touched before: the first touch of a page is not what is measured
    host, sizes = data.ctypes.data, ctypes.c_size_t(upload)

    def up() -> None:
        cuda.call("cuMemcpyHtoD_v2", _U64(memory), _P(host), sizes)
        cuda.call("cuCtxSynchronize")

    def down() -> None:
        cuda.call("cuMemcpyDtoH_v2", _P(target.ctypes.data), _U64(memory), sizes)

    up()
    out |= medians(
        3,
        {
            "raw_stream_gb_s": lambda: raw_stream_gb_s(data),
            "upload_gb_s": lambda: upload / timed(up) / 1e9,
            "download_gb_s": lambda: upload / timed(down) / 1e9,
        },
    )
    if not np.array_equal(data, target):
        raise SystemExit("what came back is not what was sent")
    return out


# --- the raw socket, for comparison ----------------------------------------------------------------------------------
@contextmanager
def peer(mode: str) -> Iterator[socket.socket]:
    """A connection to another process of ours: it echoes messages, or swallows a stream and then says how long it was."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = subprocess.Popen([sys.executable, __file__, "--peer", mode, str(listener.getsockname()[1])])
        try:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield connection
        finally:
            child.wait(10)


def serve_peer(mode: str, port: int) -> None:
    """The other process."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if mode == "echo":
            Loops().echo(sock.fileno(), MESSAGE_BYTES)
            return
        buffer, total = bytearray(1 << 20), 0
        while n := sock.recv_into(buffer):
            total += n
        sock.sendall(total.to_bytes(8, "little"))


def raw_stream_gb_s(data: Any) -> float:
    """A buffer through one TCP connection, received into one small buffer."""
    view = memoryview(data).cast("B")
    with peer("swallow") as sock:

        def send() -> None:
            sock.sendall(view)
            sock.shutdown(socket.SHUT_WR)
            if int.from_bytes(sock.recv(8), "little") != len(view):
                raise SystemExit("the stream was cut")

        return len(view) / timed(send) / 1e9


def raw_numbers(quick: bool) -> dict[str, float]:
    """The raw socket by itself, for runs of other programs."""
    loops, count, data = Loops(), 1000 if quick else 5000, os.urandom(64 << 20)
    with peer("echo") as sock:
        loops.ping(sock.fileno(), 200, MESSAGE_BYTES)
        return medians(
            3,
            {
                "raw_pingpong_us": lambda: timed(lambda: loops.ping(sock.fileno(), count, MESSAGE_BYTES)) / count * 1e6,
                "raw_stream_gb_s": lambda: raw_stream_gb_s(data),
            },
        )


# --- server and program ----------------------------------------------------------------------------------------------
@contextmanager
def server(driver: Path) -> Iterator[str]:
    """`langpu serve` with the driver in a folder; its HOST:PORT."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "lanGPU.cli.main", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = READY.match(process.stdout.readline())
        if match is None:
            raise SystemExit("langpu serve did not start")
        yield f"{match[1]}:{match[2]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_program(address: str, program: list[str]) -> str:
    """What the program prints under `langpu run`."""
    command = [sys.executable, "-m", "lanGPU.cli.main", "run", "--host", address, "--", *program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"the program ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


EXTERNAL = {
    "post_sustained_ns": r"^launch .* app ([\d.]+) ns/call",
    "posted_per_s": r"^launch .* end-to-end ([\d.]+) calls/s",
    "sync_us": r"^sync ([\d.]+) us",
    "alloc_free_us": r"^alloc\+free ([\d.]+) us",
    "event_create_us": r"^eventcreate ([\d.]+) us",
    "read4_us": r"^DtoH 4B ([\d.]+) us",
    "upload_gb_s": r"^HtoD .* ([\d.]+) GB/s",
    "download_gb_s": r"^DtoH rc .* ([\d.]+) GB/s",
}
"""What a native program of --program prints, a line a measurement; several lines: the median is taken."""


def parse_external(text: str) -> dict[str, float]:
    """The numbers in an external program's output."""
    found = {name: [float(value) for value in re.findall(pattern, text, re.MULTILINE)] for name, pattern in EXTERNAL.items()}
    out = {name: statistics.median(values) for name, values in found.items() if values}
    if "post_sustained_ns" in out:
        out["post_ns"] = out["post_sustained_ns"]  # such a program does not time bursts that fit the ring
    return out


UNITS = {"_ns": "ns", "_us": "µs", "_gb_s": "GB/s", "_per_s": "calls/s"}


def show(numbers: dict[str, Any]) -> None:
    """A table."""
    for name, value in numbers.items():
        unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
        text = f"{value:,.0f}" if unit == "calls/s" else f"{value:.2f}" if isinstance(value, float) else str(value)
        print(f"{name:20} {text:>12} {unit}")


def main() -> None:
    """Runs everything and prints the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--driver", type=Path, help="folder with the libcuda.so.1 to serve; default: one made here that does nothing")
    parser.add_argument("--program", help="native program to run instead of the timing loops made here")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs=2, metavar=("MODE", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve_peer(options.peer[0], int(options.peer[1]))
        return
    if options.inside:
        print(json.dumps(inside(options.quick)))
        return
    numbers: dict[str, Any] = {"schema": 1, "cores": os.cpu_count(), "machine": platform.machine(), "quick": options.quick}
    with tempfile.TemporaryDirectory(prefix="langpu-bench-") as folder:
        driver = options.driver or null_driver.write(Path(folder)).parent
        with server(driver.resolve()) as address:
            if options.program:
                numbers |= raw_numbers(options.quick) | parse_external(run_program(address, [options.program]))
            else:
                program = [sys.executable, __file__, "--inside", *(["--quick"] if options.quick else [])]
                numbers |= json.loads(run_program(address, program).splitlines()[-1])
    if options.json:
        print(json.dumps(numbers))
    else:
        show(numbers)


if __name__ == "__main__":
    main()
