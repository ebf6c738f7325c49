"""What HELLO, WELCOME and REFUSE say, checked: types, limits, ranges. Unknown keys are ignored, optional ones have defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lanGPU import __version__
from lanGPU.constants import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from lanGPU.errors import LocalProtocolError, VersionMismatchError

PURPOSE_SESSION: Final = "session"
PURPOSE_STATUS: Final = "status"
CAP_HOST_CALLS: Final = "host-calls"
"""The side knows HOST_CALL and HOST_DONE: functions of the program that the device's work calls."""

MAX_TEXT_CHARS: Final = 255
"""Names of programs, hosts and devices (cuDeviceGetName's usual buffer is 256 bytes)."""
MAX_MESSAGE_CHARS: Final = 4000
MAX_CAPS: Final = 64
MAX_CAP_CHARS: Final = 32
MAX_DEVICES: Final = 64
MAX_ATTRIBUTES: Final = 1024
"""CUdevice_attribute has some 150 values in CUDA 13."""

_INT32: Final = range(-(1 << 31), 1 << 31)
_UINT64: Final = range(1 << 64)
_T = TypeVar("_T")


def printable(text: str) -> str:
    """`text` fit for a terminal or a log: a peer's control characters become ``?``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _get(body: Mapping[str, object], key: str, kind: type[_T], default: _T | None) -> _T:
    value = body.get(key, default)
    # bool is an int to Python, not to the protocol
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LocalProtocolError(f"handshake field {key!r} is {'missing' if value is None else 'of a wrong type'}")
    return value


def get_text(body: Mapping[str, object], key: str, default: str | None = "", limit: int = MAX_TEXT_CHARS) -> str:
    """The text at `key`, made printable, at most `limit` characters; LocalProtocolError otherwise."""
    value = _get(body, key, str, default)
    if len(value) > limit:
        raise LocalProtocolError(f"handshake field {key!r} is longer than {limit} characters")
    return printable(value)


def get_int(body: Mapping[str, object], key: str, allowed: range, default: int | None = None) -> int:
    """The integer at `key`, if `allowed`; LocalProtocolError otherwise."""
    value = _get(body, key, int, default)
    if value not in allowed:
        raise LocalProtocolError(f"handshake field {key!r} is out of range")
    return value


CAP_KERNEL_OUTPUT: Final = "kernel-output"
"""HELLO: the client takes KERNEL_OUTPUT frames; without it the server sends none. WELCOME: it sends what kernels print."""


def _bytes(body: Mapping[str, object], key: str, lengths: tuple[int, ...], default: bytes | None = None) -> bytes:
    value = _get(body, key, bytes, default)
    if len(value) not in lengths:
        raise LocalProtocolError(f"handshake field {key!r} has {len(value)} bytes")
    return value


def _caps(body: Mapping[str, object]) -> tuple[str, ...]:
    value = _get(body, "caps", list, [])
    if len(value) > MAX_CAPS:
        raise LocalProtocolError(f"more than {MAX_CAPS} capabilities")
    for cap in value:
        if not isinstance(cap, str) or len(cap) > MAX_CAP_CHARS:
            raise LocalProtocolError("a capability is not a short text")
    return tuple(printable(cap) for cap in value)


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's first words. `min` and `max`: the protocol versions it speaks; `purpose`: PURPOSE_*; `pid` on its machine."""

    min: int = PROTOCOL_VERSION_MIN
    max: int = PROTOCOL_VERSION
    purpose: str = PURPOSE_SESSION
    caps: tuple[str, ...] = ()
    package: str = __version__
    program: str = ""
    pid: int = 0
    host: str = ""

    def to_body(self) -> dict[str, object]:
        """The map that goes on the wire."""
        return {
            "min": self.min,
            "max": self.max,
            "purpose": self.purpose,
            "caps": list(self.caps),
            "package": self.package,
            "program": self.program[:MAX_TEXT_CHARS],
            "pid": self.pid,
            "host": self.host[:MAX_TEXT_CHARS],
        }

    @classmethod
    def from_body(cls, body: Mapping[str, object]) -> "Hello":
        """Checks what a client sent; LocalProtocolError where a field breaks the rules."""
        lowest = get_int(body, "min", range(1, 1 << 31))
        return cls(
            min=lowest,
            max=get_int(body, "max", range(lowest, 1 << 31)),
            purpose=get_text(body, "purpose", None, 32),
            caps=_caps(body),
            package=get_text(body, "package"),
            program=get_text(body, "program"),
            pid=get_int(body, "pid", range(1 << 32), 0),
            host=get_text(body, "host"),
        )


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What never changes about a device. `uuid` 16 bytes, `luid` 8 bytes or empty, `attributes`: CUdevice_attribute -> value."""

    name: str
    uuid: bytes
    total_bytes: int
    pci_bus_id: str = ""
    attributes: Mapping[int, int] = field(default_factory=dict)
    luid: bytes = b""

    def to_body(self) -> dict[str, object]:
        """The map that goes on the wire."""
        return {
            "name": self.name[:MAX_TEXT_CHARS],
            "uuid": self.uuid,
            "total_bytes": self.total_bytes,
            "pci_bus_id": self.pci_bus_id,
            "attributes": dict(self.attributes),
            "luid": self.luid,
        }

    @classmethod
    def from_body(cls, body: object) -> "DeviceInfo":
        """Checks what a server sent; LocalProtocolError where a field breaks the rules."""
        if not isinstance(body, dict):
            raise LocalProtocolError("a device is not a map")
        attributes = _get(body, "attributes", dict, {})
        if len(attributes) > MAX_ATTRIBUTES:
            raise LocalProtocolError(f"more than {MAX_ATTRIBUTES} device attributes")
        for key, value in attributes.items():
            if type(key) is not int or type(value) is not int or key not in _INT32 or value not in _INT32:
                raise LocalProtocolError("a device attribute is not a 32-bit integer")
        return cls(
            name=get_text(body, "name", None),
            uuid=_bytes(body, "uuid", (16,)),
            total_bytes=get_int(body, "total_bytes", _UINT64),
            pci_bus_id=get_text(body, "pci_bus_id", "", 64),
            attributes=attributes,
            luid=_bytes(body, "luid", (0, 8), b""),
        )


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's yes. `session` hex id, `server` its host name, `driver_version` as cuDriverGetVersion reports it (13000 = 13.0)."""

    session: str
    server: str
    driver_version: int
    devices: tuple[DeviceInfo, ...]
    emulated: bool = False
    version: int = PROTOCOL_VERSION
    caps: tuple[str, ...] = ()
    package: str = __version__

    def to_body(self) -> dict[str, object]:
        """The map that goes on the wire."""
        return {
            "version": self.version,
            "caps": list(self.caps),
            "package": self.package,
            "session": self.session,
            "server": self.server[:MAX_TEXT_CHARS],
            "driver_version": self.driver_version,
            "emulated": self.emulated,
            "devices": [device.to_body() for device in self.devices],
        }

    @classmethod
    def from_body(cls, body: Mapping[str, object]) -> "Welcome":
        """Checks what a server sent; LocalProtocolError where a field breaks the rules."""
        devices = _get(body, "devices", list, None)
        if len(devices) > MAX_DEVICES:
            raise LocalProtocolError(f"more than {MAX_DEVICES} devices")
        return cls(
            session=get_text(body, "session", None, 64),
            server=get_text(body, "server"),
            driver_version=get_int(body, "driver_version", range(1 << 31)),
            devices=tuple(DeviceInfo.from_body(device) for device in devices),
            emulated=_get(body, "emulated", bool, False),
            version=get_int(body, "version", range(1, 1 << 31)),
            caps=_caps(body),
            package=get_text(body, "package"),
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's no: `reason` a short word for programs, `message` a sentence, `hint` what to do; `min`/`max` its protocol versions."""

    reason: str
    message: str
    hint: str = ""
    min: int = PROTOCOL_VERSION_MIN
    max: int = PROTOCOL_VERSION

    def to_body(self) -> dict[str, object]:
        """The map that goes on the wire."""
        return {
            "reason": self.reason,
            "message": self.message[:MAX_MESSAGE_CHARS],
            "hint": self.hint[:MAX_MESSAGE_CHARS],
            "min": self.min,
            "max": self.max,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, object]) -> "Refusal":
        """Checks what a server sent; LocalProtocolError where a field breaks the rules."""
        return cls(
            reason=get_text(body, "reason", None, 32),
            message=get_text(body, "message", "", MAX_MESSAGE_CHARS),
            hint=get_text(body, "hint", "", MAX_MESSAGE_CHARS),
            min=get_int(body, "min", range(1 << 31), 0),
            max=get_int(body, "max", range(1 << 31), 0),
        )


def choose_version(lowest: int, highest: int) -> int:
    """The highest protocol version of [`lowest`, `highest`] that we speak too.

    Raises:
        VersionMismatchError: the ranges do not meet; the message names both.
    """
    version = min(highest, PROTOCOL_VERSION)
    if version < max(lowest, PROTOCOL_VERSION_MIN):
        raise VersionMismatchError(
            f"the client speaks protocol versions {lowest} to {highest}, this server {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
        )
    return version


def check_plain(value: object, depth: int = 0) -> object:
    """`value` if it is JSON-like (text made printable, keys texts), as STATUS frames carry; LocalProtocolError otherwise."""
    if depth > 16:
        raise LocalProtocolError("a status is nested too deep")
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [check_plain(item, depth + 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {printable(key): check_plain(item, depth + 1) for key, item in value.items()}
    raise LocalProtocolError("a status holds something that JSON has no form for")
