"""The capture of what a driver prints in its worker; in a process of its own, whose descriptors it turns around."""

import subprocess
import sys

import pytest

from lanGPU.server import kernel_output

pytestmark = pytest.mark.skipif(not kernel_output.supported(), reason="no memory files on this system")


def run(code: str) -> subprocess.CompletedProcess[str]:
    prologue = """
import ctypes, logging, os, sys
from lanGPU.constants import MAX_KERNEL_OUTPUT_BYTES
from lanGPU.server.kernel_output import OutputCapture
logging.basicConfig()
capture = OutputCapture.start()
"""
    done = subprocess.run([sys.executable, "-c", prologue + code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_what_c_prints_is_taken_and_nothing_reaches_the_server_s_output() -> None:
    done = run("""
libc = ctypes.CDLL(None)
libc.printf(b"no end of a line")
assert capture.take() == [(1, b"no end of a line")]
libc.printf(b"out %d\\n", 1)
os.write(2, b"error\\n")
os.write(1, b"more\\n")
assert capture.take() == [(1, b"out 1\\nmore\\n"), (2, b"error\\n")]
assert capture.take() == []
""")
    assert (done.stdout, done.stderr) == ("", "")


def test_the_log_still_goes_to_the_server() -> None:
    done = run("""
logging.warning("a line")
print("another", file=sys.stderr)
assert capture.take() == []
""")
    assert done.stderr == "WARNING:root:a line\nanother\n"


def test_much_output_comes_in_pieces_and_its_memory_is_given_back() -> None:
    run("""
expected = b""
for n in range(40):
    data = bytes([n]) * 100_000
    os.write(1, data)
    pieces = capture.take()
    assert max(len(piece) for _, piece in pieces) <= MAX_KERNEL_OUTPUT_BYTES
    assert b"".join(piece for _, piece in pieces) == data
blocks = os.fstat(1).st_blocks * 512
assert blocks < 2_500_000, blocks
""")


def test_what_nobody_took_ends_in_the_server_s_log() -> None:
    done = run("""
libc = ctypes.CDLL(None)
libc.printf(b"late\\n")
capture.close()
os.write(2, b"last words\\n")
os.write(1, b"output\\n")
assert capture.take() == []
""")
    assert (done.stdout, done.stderr) == ("output\n", "late\nlast words\n")
