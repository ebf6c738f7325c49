"""The private function tables that NVIDIA's runtime libraries ask of cuGetExportTable, as data, and the driver check's answer.

No header describes them; identifiers, slots and the check are public knowledge from open drivers for other hardware and were confirmed
by running libcudart 12 and 13. A table is an array of u64: slot 0 holds its size in bytes where `sized`, every other slot the address of
a function; slots that are not named here answer CUDA_ERROR_NOT_SUPPORTED.
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, Replay

TOOLS_BUFFER_BYTES: Final = {2: 1024, 6: 14}
"""Slots of the tools' hooks that hand out a zeroed buffer, and its size."""
PRIVATE_PREFIX: Final = "langpu_"
"""Private functions have no names of NVIDIA's: ours begin with this, which no driver function does."""
FIRST_API_ID: Final = 0x0F00
"""Private functions have api_ids of their own, which never cross the wire."""


@dataclass(frozen=True, slots=True)
class PrivateFunction:
    """One named slot. `params` names its arguments, each a register wide; the row is LOCAL: never sent."""

    symbol: str
    params: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExportTable:
    """One table: `slots` words long, size word included."""

    name: str
    id: bytes
    slots: int
    sized: bool
    functions: dict[int, PrivateFunction]

    @property
    def bytes(self) -> int:
        """Length in bytes."""
        return 8 * self.slots


def _table(name: str, identifier: str, slots: int, functions: dict[int, tuple[str, ...]], *, sized: bool = True) -> ExportTable:
    found = {slot: PrivateFunction(f"{PRIVATE_PREFIX}{name}_{words[0]}", words[1:]) for slot, words in functions.items()}
    return ExportTable(name, uuid.UUID(identifier).bytes, slots, sized, found)


TABLES: Final = (
    _table(
        "cudart",
        "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9",
        13,
        {
            1: ("load_module", "module", "wrapper"),
            2: ("primary_context", "context", "device"),
            6: ("load_module_from_wrapper", "module", "wrapper", "unused1", "unused2", "flags"),
            7: ("notice", "size"),
            8: ("load_module_from_fatbin", "fatbin", "module", "unused1", "unused2", "flags"),
            12: ("load_compilers",),
        },
    ),
    _table(
        "tools_hooks",
        "a094798c-2e74-2e74-93f2-0800200c0a66",
        7,
        {2: ("buffer", "buffer", "size"), 6: ("small_buffer", "buffer", "size")},
    ),
    _table("tools_tls", "42d85a81-23f6-cb47-8298-f6e78a3aecdc", 4, {}),
    _table(
        "storage",
        "c693336e-1121-df11-a8c3-68f355d89593",
        4,
        {
            0: ("put", "context", "key", "value", "destructor"),
            1: ("delete", "context", "key"),
            2: ("get", "value", "context", "key"),
        },
        sized=False,
    ),
    _table("context_checks", "263e8860-7cd2-6143-92f6-bbd5006dfa7e", 4, {2: ("check", "context", "result", "pointer"), 3: ("fine",)}),
    _table("driver_check", "d4082055-bde6-704b-8d34-ba123c66e1f2", 3, {1: ("answer", "version", "seconds", "result")}),
    _table(
        "contexts",
        "21318c60-9714-3248-8ca6-41ff7324c8f2",
        64,
        {4: ("key", "context", "result"), 39: ("stream_id", "context", "stream", "result"), 51: ("stream", "context", "stream", "result")},
    ),
    _table("modules", "6e163fbe-b958-444d-835c-e182aff1991e", 64, {7: ("functions", "context", "module", "callback", "user")}),
    _table("context_create", "0ca50b8c-1004-929a-89a7-d0df10e77286", 2, {1: ("create", "context", "flags", "device")}),
    _table("heap", "195bcbf4-d67d-024a-acc5-1d29cea631ae", 3, {}),
    _table("device_attributes", "b10541e1-f7c7-c74a-9f64-f223be99f1e2", 26, {}),
)
"""Every table that is offered. An unknown identifier is CUDA_ERROR_NOT_FOUND, which libcudart takes for an older driver."""

ITERATED: Final = 1
"""What the functions of `modules` that call back for everything answer where they did: no CUresult. cuFFT finds its kernels so."""
BY_ID: Final = {table.id: table for table in TABLES}
UNNAMED: Final = f"{PRIVATE_PREFIX}unnamed_slot"
"""What slots without a name point to."""

_CONSTANTS: Final = {0: (0x3341181C03CB675C, 0x8ED383AA1F4CD1E8), 1: (0x1841181C03CB675C, 0x8ED383AA1F4CD1E8)}
_KEY: Final = bytes.fromhex("146ADDAE53A9A752AA0841360BF55A9F")
_HEAD: Final = struct.Struct("<IIIIQQQQ")
_DEVICE: Final = struct.Struct("<16siii")
_RESULT: Final = struct.Struct("<QQ")


class CheckedDevice(NamedTuple):
    """What the check says of a device."""

    uuid: bytes
    pci_domain: int
    pci_bus: int
    pci_device: int


class CheckAddresses(NamedTuple):
    """Addresses in the asking process that the check is made over."""

    cudart_table: int
    check_table: int
    check_function: int


def private_functions() -> tuple[PrivateFunction, ...]:
    """Every named slot, and the one for those without a name, in the order of their api_ids."""
    named = tuple(function for table in TABLES for _, function in sorted(table.functions.items()))
    return (*named, PrivateFunction(UNNAMED, ()))


@cache
def private_rows() -> dict[str, ApiFunction]:
    """Rows of the private functions by symbol. Not part of the API table: nothing asks for them by name, and they are never sent."""
    rows = {}
    for number, function in enumerate(private_functions()):
        args = tuple(Arg(name, ArgKind.HOST_PTR) for name in function.params)
        rows[function.symbol] = ApiFunction(
            function.symbol, FIRST_API_ID + number, CallClass.LOCAL, Replay.PURE, args, since=0, client="a private table's function"
        )
    return rows


def driver_check(
    version: int, seconds: int, driver_version: int, process: int, thread: int, where: CheckAddresses, devices: Sequence[CheckedDevice]
) -> bytes:
    """The 16 bytes that a runtime library wants to hear from a genuine driver interface.

    `thread` is pthread_self() of the caller. HMAC (RFC 2104) with MD2 (RFC 1319) over what both sides know; two kinds of `version`
    have constant answers.
    """
    constant = _CONSTANTS.get(version % 10)
    if constant is not None:
        return _RESULT.pack(*constant)
    from Crypto.Hash import HMAC, MD2

    text = _HEAD.pack(driver_version, version & 0xFFFFFFFF, process, thread & 0xFFFFFFFF, *where, seconds)
    for device in devices:
        text += _DEVICE.pack(*device)
    return HMAC.new(_KEY, text, digestmod=MD2).digest()
