"""What `langpu emulate` finds out about a program."""

import os
import stat
import sys
from pathlib import Path

import pytest

from lanGPU.emulator.launcher import find_program, python_of
from lanGPU.errors import ProgramError, ProgramPermissionError


def script(path: Path, text: str, executable: bool = True) -> str:
    path.write_text(text)
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_program_in_path_and_one_by_path(tmp_path: Path) -> None:
    program = script(tmp_path / "tool", "#!/bin/sh\n")
    assert find_program("tool", {"PATH": f"/nowhere{os.pathsep}{tmp_path}"}) == program
    assert find_program(program, {}) == program


def test_what_cannot_be_run(tmp_path: Path) -> None:
    program = script(tmp_path / "tool", "", executable=False)
    environment = {"PATH": str(tmp_path)}
    with pytest.raises(ProgramError) as missing:
        find_program("absent", environment)
    assert missing.value.exit_code == 127
    for name in ("tool", program, str(tmp_path)):
        with pytest.raises(ProgramPermissionError) as forbidden:
            find_program(name, environment)
        assert forbidden.value.exit_code == 126


@pytest.mark.parametrize("name", ["python", "python3", "python3.12", "python3.13t"])
def test_interpreters_by_name(name: str) -> None:
    assert python_of(f"/usr/bin/{name}", ("x.py", "-S"), {}) == f"/usr/bin/{name}"


@pytest.mark.parametrize("options", [("-I", "x.py"), ("-uES",), ("-S", "-c", "1")])
def test_an_interpreter_that_ignores_sitecustomize(options: tuple[str, ...]) -> None:
    assert python_of("/usr/bin/python", options, {}) is None


@pytest.mark.parametrize("options", [("-m", "Ising"), ("-c", "-I"), ("-W", "error", "x.py"), ("-u", "x.py", "-E"), ("-X", "dev")])
def test_options_of_the_program_do_not_count(options: tuple[str, ...]) -> None:
    assert python_of("/usr/bin/python", options, {}) == "/usr/bin/python"


def test_scripts_by_their_first_line(tmp_path: Path) -> None:
    direct = script(tmp_path / "a", f"#!{sys.executable} -u\nprint()\n")
    indirect = script(tmp_path / "b", "#!/usr/bin/env -S python3 -u\n")
    isolated = script(tmp_path / "c", f"#!{sys.executable} -I\n")
    shell = script(tmp_path / "d", "#!/bin/sh\n")
    binary = script(tmp_path / "e", "\x7fELF")
    python = script(tmp_path / "python3", "")
    environment = {"PATH": str(tmp_path)}
    assert python_of(direct, (), environment) == sys.executable
    assert python_of(indirect, (), environment) == python
    for other in (isolated, shell, binary):
        assert python_of(other, (), environment) is None
