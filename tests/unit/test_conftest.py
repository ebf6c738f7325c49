"""The check for leftovers finds what it should, and lets clean tests pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

CASES = """
import socket, subprocess, sys, threading

KEPT = []

def test_clean():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        pass
    subprocess.run([sys.executable, "-c", ""], check=True)
    thread = threading.Thread(target=int)
    thread.start()

def test_leaves_a_thread():
    event = threading.Event()
    KEPT.append(event)
    threading.Thread(target=event.wait, daemon=True, name="forgotten").start()

def test_leaves_a_listener():
    KEPT.append(socket.create_server(("127.0.0.1", 0)))

def test_leaves_a_child():
    KEPT.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))

def test_is_not_blamed_for_the_others():
    pass
"""


@pytest.mark.slow
def test_leftovers_fail_the_test_that_left_them(tmp_path: Path) -> None:
    text = CONFTEST.read_text().replace("GRACE_S: Final = 2.0", "GRACE_S: Final = 0.2")
    (tmp_path / "conftest.py").write_text(text)
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"COLUMNS": "300"}  # or the summary cuts its lines
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    errors = {line for line in done.stdout.splitlines() if line.startswith("ERROR ")}
    assert len(errors) == 3, done.stdout
    for name, thing in (("thread", "thread forgotten"), ("listener", "listening socket ('127.0.0.1'"), ("child", "child process")):
        assert any(f"test_leaves_a_{name}" in line and thing in line for line in errors), done.stdout
    assert "5 passed" in done.stdout.splitlines()[-1]
