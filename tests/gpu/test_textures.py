"""tests/contract/test_textures.py on a real GPU."""

import pytest

from tests.contract.test_textures import *  # noqa: F403

pytestmark = pytest.mark.gpu
