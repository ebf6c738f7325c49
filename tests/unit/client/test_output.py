"""Kernel output goes where the program's own output goes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lanGPU.client.output import borrow, write_for


def never() -> bool:
    return False


def test_a_program_that_turned_its_output_to_a_file_keeps_its_place_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    code = (
        "import os, sys\n"
        f"os.dup2(os.open({str(path)!r}, os.O_WRONLY | os.O_CREAT), 1)\n"
        "os.write(1, b'first ')\nsys.stderr.write('ready\\n'); sys.stderr.flush()\nsys.stdin.readline()\nos.write(1, b' third')\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdin
    assert program.stderr
    with program:
        program.stderr.readline()
        write_for(program.pid, 1, b"second", never)
        program.stdin.write(b"\n")
        program.stdin.flush()
        program.wait(30)
    assert path.read_bytes() == b"first second third"


def test_a_slow_reader_gets_everything() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writing) as program:
        os.close(writing)
        data = bytes(range(256)) * 4096
        writer = threading.Thread(target=write_for, args=(program.pid, 1, data, never))
        writer.start()
        got = b""
        while len(got) < len(data):
            got += os.read(reading, 65536)
        writer.join()
        assert got == data
        assert program.stdin
        program.stdin.close()
    os.close(reading)


def test_waiting_for_a_reader_can_be_given_up() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writing) as program:
        os.close(writing)
        answers = iter([False] * 17)  # a pipe takes 16 pieces, then there is one wait
        write_for(program.pid, 1, b"x" * (1 << 20), lambda: next(answers, True))
        assert program.stdin
        program.stdin.close()
    os.close(reading)


def test_a_pipe_without_a_reader_loses_the_output() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writing) as program:
        os.close(writing)
        os.close(reading)
        write_for(program.pid, 1, b"nobody reads this", never)
        assert program.stdin
        program.stdin.close()


def test_a_process_that_is_gone_leaves_the_agent_s_own_output() -> None:
    program = subprocess.Popen([sys.executable, "-c", ""])
    program.wait()
    found = borrow(program.pid, 1)
    assert os.fstat(found).st_ino == os.fstat(1).st_ino
    os.close(found)


def test_what_the_program_closed_is_not_written_elsewhere() -> None:
    code = "import os, sys\nos.close(1)\nsys.stderr.write('ready\\n'); sys.stderr.flush()\nsys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stderr
        assert program.stdin
        program.stderr.readline()
        with pytest.raises(OSError, match="closed"):
            borrow(program.pid, 1)
        write_for(program.pid, 1, b"nowhere", never)
        program.stdin.close()
