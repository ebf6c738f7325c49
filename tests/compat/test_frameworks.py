"""CuPy, numba-cuda, cuda.core and tinygrad compute what NumPy computes, on the emulated device in their process and through a server.

`make compat` makes an environment that has them all; where one is not installed its scripts are skipped.
"""

from collections.abc import Iterator

import pytest

from tests.helpers.frameworks import LOCAL, REMOTE, Script, missing, run_script, scripts
from tests.helpers.server import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
every_script = pytest.mark.parametrize("script", scripts(), ids=lambda script: script.name)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server with one emulated device."""
    with ServerProcess() as process:
        yield process


def skip_without_packages(script: Script) -> None:
    absent = missing(script.framework)
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")


@every_script
def test_in_its_own_process(script: Script) -> None:
    skip_without_packages(script)
    assert run_script(script, LOCAL) == ""


@every_script
def test_through_a_server(script: Script, server: ServerProcess) -> None:
    skip_without_packages(script)
    assert run_script(script, REMOTE, f"{server.host}:{server.port}") == ""
