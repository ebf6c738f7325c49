"""tests/contract/test_contexts.py on a real GPU."""

import pytest

from tests.contract.test_contexts import *  # noqa: F403

pytestmark = pytest.mark.gpu
