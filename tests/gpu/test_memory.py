"""tests/contract/test_memory.py on a real GPU."""

import pytest

from tests.contract.test_memory import *  # noqa: F403

pytestmark = pytest.mark.gpu
