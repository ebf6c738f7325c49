"""tests/contract/test_modules.py on a real GPU."""

import pytest

from tests.contract.test_modules import *  # noqa: F403

pytestmark = pytest.mark.gpu
