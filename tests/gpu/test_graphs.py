"""tests/contract/test_graphs.py on a real GPU."""

import pytest

from tests.contract.test_graphs import *  # noqa: F403

pytestmark = pytest.mark.gpu
