"""The errors lanGPU raises. Each class carries what a program, a shell and a person need.

``cu_result`` is what the application sees when the error ends a driver call, ``exit_code`` what the command exits with
(one per class), ``hint`` what to do next. Leaf module: imports constants only.
"""

from typing import ClassVar

from lanGPU import constants as c


class LanGPUError(Exception):
    """Base of everything lanGPU raises on purpose."""

    cu_result: ClassVar[int] = c.CUDA_ERROR_UNKNOWN
    exit_code: ClassVar[int] = 70
    hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint


class ConfigError(LanGPUError):
    """A flag, an environment variable or a file of the user's cannot be used as it is."""

    exit_code = 64


class ProgramError(LanGPUError):
    """The program to run cannot be started; exits as a shell does (127 not found, 126 not executable)."""

    exit_code = 127


class ProgramPermissionError(ProgramError):
    """The program exists and may not be executed."""

    exit_code = 126


class ProtocolError(LanGPUError):
    """Abstract: a peer or we broke the wire protocol."""

    exit_code = 76


class LocalProtocolError(ProtocolError):
    """We broke the rules: a bug of ours, or a value that does not fit the format."""

    exit_code = 78


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are not our protocol."""

    exit_code = 79
    hint = "check that the port belongs to `langpu serve` and that both sides run current versions"


class VersionMismatchError(ProtocolError):
    """No protocol version is spoken by both sides."""

    cu_result = c.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    exit_code = 80
    hint = "install the same lanGPU release on both machines"


class TransportError(LanGPUError):
    """The network failed us."""

    cu_result = c.CUDA_ERROR_SYSTEM_NOT_READY
    exit_code = 69


class ConnectError(TransportError):
    """No connection could be made."""

    cu_result = c.CUDA_ERROR_NO_DEVICE
    exit_code = 81
    hint = "start `langpu serve` on the machine with the GPU, or name it with --host HOST[:PORT]"


class ConnectionLostError(TransportError):
    """The connection ended in mid-session."""

    cu_result = c.CUDA_ERROR_CONTEXT_IS_DESTROYED
    exit_code = 82


class TransportTimeoutError(TransportError):
    """The peer did not answer in time."""

    exit_code = 83


class RefusedError(LanGPUError):
    """The server answered the handshake with a refusal; its words are the message."""

    cu_result = c.CUDA_ERROR_NO_DEVICE
    exit_code = 84


class NoDeviceError(LanGPUError):
    """There is no CUDA device to serve or to use."""

    cu_result = c.CUDA_ERROR_NO_DEVICE
    exit_code = 85


class DriverError(LanGPUError):
    """A driver call returned a non-zero CUresult."""

    exit_code = 86

    def __init__(self, function: str, result: int, *, detail: str = "", hint: str = "") -> None:
        super().__init__(f"{function} returned {result}{': ' + detail if detail else ''}", hint=hint)
        self.function = function
        self.result = result


class EmulatorUnsupportedError(LanGPUError):
    """The emulator has no body for an instruction or function; the message names it."""

    cu_result = c.CUDA_ERROR_NOT_SUPPORTED
    exit_code = 87


class ConsistencyError(LanGPUError):
    """The session's state cannot be trusted any more."""

    cu_result = c.CUDA_ERROR_CONTEXT_IS_DESTROYED
    exit_code = 88


class SessionLostError(ConsistencyError):
    """The server side of the session is gone."""

    exit_code = 89


class ImageError(LanGPUError):
    """A module image (PTX, cubin, fat binary) is corrupt or of an unknown kind."""

    cu_result = c.CUDA_ERROR_INVALID_IMAGE
    exit_code = 90
