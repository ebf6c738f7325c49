"""tests/contract/test_errors.py on a real GPU."""

import pytest

from tests.contract.test_errors import *  # noqa: F403

pytestmark = pytest.mark.gpu
