"""The program's memory, seen from the agent."""

import errno

from lanGPU.client.syscalls import process_read, process_write
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE
from lanGPU.errors import LanGPUError

_REFUSED = frozenset({errno.EPERM, errno.ENOSYS, errno.EACCES})


class ProgramFaultError(LanGPUError):
    """An address that the program gave does not lie in its memory."""

    cu_result = CUDA_ERROR_INVALID_VALUE
    exit_code = 98


class MemoryRefusedError(LanGPUError):
    """The system does not let us touch the program's memory (containers, Yama): go through the caller's slot instead."""

    exit_code = 99


class ProgramMemory:
    """Reads and writes the memory of process `pid`; `direct` turns False for good at the first refusal."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.direct = True

    def _raise(self, exc: OSError, address: int, length: int) -> None:
        if exc.errno in _REFUSED:
            self.direct = False
            raise MemoryRefusedError(f"process {self.pid}: {exc.strerror}") from exc
        raise ProgramFaultError(f"{length} bytes at {address:#x} of process {self.pid}: {exc.strerror}") from exc

    def read_into(self, address: int, into: bytearray | memoryview) -> None:
        """Raises ProgramFaultError, MemoryRefusedError."""
        try:
            process_read(self.pid, address, into)
        except OSError as exc:
            self._raise(exc, address, len(into))

    def read(self, address: int, length: int) -> bytearray:
        """Raises ProgramFaultError, MemoryRefusedError."""
        out = bytearray(length)
        self.read_into(address, out)
        return out

    def read_string(self, address: int, maximum: int) -> bytes:
        """The bytes up to (without) the NUL, found within `maximum` bytes. Reads page by page, never past the NUL's page.

        Raises ProgramFaultError (also where there is no NUL), MemoryRefusedError.
        """
        out = bytearray()
        while len(out) < maximum:
            here = address + len(out)
            piece = self.read(here, min(4096 - here % 4096, maximum - len(out)))
            end = piece.find(0)
            if end >= 0:
                return bytes(out + piece[:end])
            out += piece
        raise ProgramFaultError(f"no NUL within {maximum} bytes at {address:#x}")

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Raises ProgramFaultError, MemoryRefusedError."""
        try:
            process_write(self.pid, address, data)
        except OSError as exc:
            self._raise(exc, address, len(data))
