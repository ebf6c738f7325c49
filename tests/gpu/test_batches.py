"""tests/contract/test_batches.py on a real GPU."""

import pytest

from tests.contract.test_batches import *  # noqa: F403

pytestmark = pytest.mark.gpu
