"""tests/contract/test_arrays.py on a real GPU."""

import pytest

from tests.contract.test_arrays import *  # noqa: F403

pytestmark = pytest.mark.gpu
