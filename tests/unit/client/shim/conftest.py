"""An agent of the test's own and a program that has loaded the shim."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fake_agent import FakeAgent
from tests.helpers.shim_program import Program


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path) as made:
        yield made


@pytest.fixture
def program(agent: FakeAgent) -> Iterator[Program]:
    with Program(agent.path) as made:
        yield made
