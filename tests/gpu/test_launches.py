"""tests/contract/test_launches.py on a real GPU."""

import pytest

from tests.contract.test_launches import *  # noqa: F403

pytestmark = pytest.mark.gpu
