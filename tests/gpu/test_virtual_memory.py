"""tests/contract/test_virtual_memory.py on a real GPU."""

import pytest

from tests.contract.test_virtual_memory import *  # noqa: F403

pytestmark = pytest.mark.gpu
