"""NVML questions, answered by this machine's NVML library on a thread that may wait: it takes milliseconds, starting it even more."""

from typing import Final

from lanGPU.errors import LocalProtocolError
from lanGPU.nvml.question import RESULT_BYTES, decode_question
from lanGPU.server.call import Call
from lanGPU.server.devices import device_uuids
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.server.nvml import Nvml
from lanGPU.wire.records import pad8

_STATE: Final = "nvml"


@server_call("langpuNvml")
def ask(issuer: Issuer, call: Call) -> Answer | None:
    """Formats: `lanGPU.nvml.question`.

    Raises:
        LocalProtocolError: the question is corrupt.
    """
    data = bytes(call.blob("question"))
    if len(data) != call.word("questionBytes"):
        raise LocalProtocolError(f"an NVML question of {len(data)} bytes")
    question = decode_question(data)
    room = call.word("answerBytes")
    if RESULT_BYTES + sum(question.sizes) != room or call.word("answer") != room:
        raise LocalProtocolError(f"an NVML answer of {room} bytes to {question.name}")
    nvml = issuer.state.get(_STATE)
    if not isinstance(nvml, Nvml):
        nvml = issuer.state[_STATE] = Nvml(lambda: device_uuids(issuer.driver))
    issuer.aside(call, lambda: nvml.ask(question).ljust(pad8(room), b"\0"))
    return None
