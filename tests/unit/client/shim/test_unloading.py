"""A program may unload the library and load it again: its session stays."""

from tests.helpers.fake_agent import FakeAgent
from tests.helpers.shim_program import Program

RELOAD = """
import _ctypes
path, handle = cuda.path, cuda._cdll._handle
before = cuda.cuCtxSynchronize()
_ctypes.dlclose(handle)
result = (before, ctypes.CDLL(path).cuCtxSynchronize())
"""


def test_unloaded_and_loaded_again(agent: FakeAgent, program: Program) -> None:
    assert program.run(RELOAD) == (0, 0)
    assert len(agent.hellos) == 1
    assert [r.row.name for r in agent.session.records] == ["cuCtxSynchronize"] * 2
