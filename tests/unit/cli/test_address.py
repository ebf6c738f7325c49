"""Addresses as people write them."""

import pytest

from lanGPU.cli.address import Address, parse_address, resolve_address
from lanGPU.constants import DEFAULT_PORT
from lanGPU.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("desktop", "desktop", DEFAULT_PORT),
        ("desktop.local:5000", "desktop.local", 5000),
        ("192.168.1.20", "192.168.1.20", DEFAULT_PORT),
        ("192.168.1.20:1", "192.168.1.20", 1),
        ("192.168.1.20:65535", "192.168.1.20", 65535),
        ("::1", "::1", DEFAULT_PORT),
        ("[::1]", "::1", DEFAULT_PORT),
        ("[::1]:5000", "::1", 5000),
        ("fe80::1%eth0", "fe80::1%eth0", DEFAULT_PORT),
        (" desktop ", "desktop", DEFAULT_PORT),
    ],
)
def test_reads_every_form(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":5000",
        "desktop:",
        "desktop:http",
        "desktop:0",
        "desktop:65536",
        "desktop:-1",
        "desktop:+5",
        "desktop:1e3",
        "desktop:0000000080",
        "desktop:٣",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[::1]:x",
        "[desktop]:5000",
        "http://desktop",
        "user@desktop",
        "two words",
        "a" * 254,
    ],
)
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert caught.value.hint


@pytest.mark.parametrize("address", [Address("desktop", 80), Address("::1", 80), Address("10.0.0.1", 80)])
def test_text_form_reads_back(address: Address) -> None:
    assert parse_address(str(address)) == address


def test_option_goes_before_environment_before_loopback() -> None:
    assert resolve_address("a:1", {"LANGPU_HOST": "b:2"}) == Address("a", 1)
    assert resolve_address(None, {"LANGPU_HOST": "b:2"}) == Address("b", 2)
    assert resolve_address(None, {"LANGPU_HOST": ""}) == Address("127.0.0.1", DEFAULT_PORT)
    assert resolve_address(None, {}) == Address("127.0.0.1", DEFAULT_PORT)


def test_an_empty_option_does_not_fall_through() -> None:
    with pytest.raises(ConfigError):
        resolve_address("", {"LANGPU_HOST": "b:2"})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="LANGPU_HOST"):
        resolve_address(None, {"LANGPU_HOST": "b:x"})
