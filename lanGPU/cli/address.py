"""Where a server is, as people write it: HOST, HOST:PORT, [IPv6], [IPv6]:PORT or a bare IPv6 address."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lanGPU.constants import DEFAULT_PORT
from lanGPU.errors import ConfigError

HOST_VARIABLE: Final = "LANGPU_HOST"
"""Environment variable that names the server where --host does not."""
_FORMS: Final = "write HOST, HOST:PORT, [IPv6] or [IPv6]:PORT"
_MAX_HOST_LENGTH: Final = 253
"""Longest name DNS can carry (RFC 1035, section 3.1: 255 octets with the length bytes)."""


@dataclass(frozen=True)
class Address:
    """A server's TCP address; `host` has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _parse_port(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise ConfigError(f"{text!r} in {whole!r} is not a port: a number from 1 to 65535 is needed", hint=_FORMS)
    return int(text)


def parse_address(text: str) -> Address:
    """Read one address; raises ConfigError that says which part is wrong."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            raise ConfigError(f"{text!r} is not an IPv6 address in brackets", hint=_FORMS)
        port_text = rest[1:] if rest else None
    elif text.count(":") > 1:
        host, port_text = text, None
    else:
        host, colon, after = text.partition(":")
        port_text = after if colon else None
    if not host or len(host) > _MAX_HOST_LENGTH or any(character.isspace() or character in "/@[]?#" for character in host):
        raise ConfigError(f"{text!r} does not name a host", hint=_FORMS)
    return Address(host, DEFAULT_PORT if port_text is None else _parse_port(port_text, text))


def resolve_address(option: str | None, environment: Mapping[str, str] = os.environ) -> Address:
    """The address from --host, else LANGPU_HOST, else this machine's own server."""
    if option is not None:
        return parse_address(option)
    variable = environment.get(HOST_VARIABLE, "")
    if not variable:
        return Address("127.0.0.1", DEFAULT_PORT)
    try:
        return parse_address(variable)
    except ConfigError as error:
        raise ConfigError(f"environment variable {HOST_VARIABLE}: {error}", hint=error.hint) from error
