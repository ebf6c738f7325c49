"""One server and one folder of built programs for all tests here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.nvcc import find_nvcc
from tests.helpers.server import ServerProcess


@pytest.fixture(scope="session")
def nvcc() -> Path:
    """The compiler; tests without it skip."""
    found = find_nvcc()
    if found is None:
        pytest.skip("no nvcc in PATH, CUDA_HOME or the usual folders")
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where built programs lie for the session."""
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A server with one emulated device."""
    with ServerProcess() as process:
        yield process


@pytest.fixture(scope="session")
def server_of_two() -> Iterator[ServerProcess]:
    """A server with two emulated devices."""
    with ServerProcess(env={"LANGPU_EMULATE_DEVICES": "2"}) as process:
        yield process
