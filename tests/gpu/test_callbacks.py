"""tests/contract/test_callbacks.py on a real GPU."""

import pytest

from tests.contract.test_callbacks import *  # noqa: F403

pytestmark = pytest.mark.gpu
