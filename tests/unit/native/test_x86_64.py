"""Instructions and relocations of x86-64."""

import platform
import struct

import pytest

from lanGPU.errors import ConfigError
from lanGPU.native import x86_64


def test_relocations() -> None:
    code = bytearray(12)
    x86_64.relocate(2, code, 4, 0x1004, 0x5000, -4)
    assert code == bytes(4) + struct.pack("<i", 0x5000 - 4 - 0x1004) + bytes(4)
    x86_64.relocate(4, code, 0, 0x9000, 0x10, 0)
    assert struct.unpack_from("<i", code) == (0x10 - 0x9000,)


@pytest.mark.parametrize("kind", [1, 3, 9, 10, 11, 41, 42])
def test_other_relocations_are_refused_by_number(kind: int) -> None:
    with pytest.raises(ConfigError, match=f"type {kind}\\b"):
        x86_64.relocate(kind, bytearray(8), 0, 0, 0, 0)


@pytest.mark.parametrize("target", [1 << 31, -(1 << 31) - 1])
def test_a_distance_that_does_not_fit(target: int) -> None:
    with pytest.raises(ConfigError, match="far"):
        x86_64.relocate(2, bytearray(4), 0, 0, target, 0)


def test_trampolines_have_one_size() -> None:
    code = x86_64.trampolines(0x1000, 10, 0x8000)
    assert len(code) == 10 * x86_64.TRAMPOLINE_BYTES + x86_64.shared_code_bytes()
    for i in range(10):
        entry = code[i * x86_64.TRAMPOLINE_BYTES :]
        assert entry[:5] == b"\xb8" + struct.pack("<I", i)
        target = i * x86_64.TRAMPOLINE_BYTES + 10 + struct.unpack_from("<i", entry, 6)[0]
        assert target == 10 * x86_64.TRAMPOLINE_BYTES


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="aarch64"):
        x86_64.require()
