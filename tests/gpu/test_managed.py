"""tests/contract/test_managed.py on a real GPU."""

import pytest

from tests.contract.test_managed import *  # noqa: F403

pytestmark = pytest.mark.gpu
