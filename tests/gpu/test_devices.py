"""tests/contract/test_devices.py on a real GPU."""

import pytest

from tests.contract.test_devices import *  # noqa: F403

pytestmark = pytest.mark.gpu
