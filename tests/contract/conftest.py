"""The device contract on the emulated driver; tests/gpu runs the same tests on a real GPU."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.device import EMULATED, Cuda, open_cuda


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """The driver under test; LANGPU_TEST_DEVICE=given takes the one that the process finds (`tests/integration/client`)."""
    return open_cuda(os.environ.get("LANGPU_TEST_DEVICE", EMULATED))


@pytest.fixture
def context(cuda: Cuda) -> Iterator[Any]:
    """A context of the test's own, current; everything in it goes with it."""
    made = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
    yield made
    cuda.cuCtxDestroy(made)
