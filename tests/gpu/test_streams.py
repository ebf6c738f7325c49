"""tests/contract/test_streams.py on a real GPU."""

import pytest

from tests.contract.test_streams import *  # noqa: F403

pytestmark = pytest.mark.gpu
