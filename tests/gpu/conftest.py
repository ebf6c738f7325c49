"""The device contract on a real GPU: run this folder by itself, `pytest tests/gpu`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.device import REAL, Cuda, open_cuda


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """The driver under test; skips where there is none."""
    return open_cuda(REAL)


@pytest.fixture
def context(cuda: Cuda) -> Iterator[Any]:
    """A context of the test's own, current; everything in it goes with it."""
    made = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
    yield made
    cuda.cuCtxDestroy(made)
