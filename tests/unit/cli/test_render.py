"""The tables that people read."""

from typing import Any

import pytest

from lanGPU.cli.render import format_bytes, format_seconds, print_smi, print_status


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (99 * 1024, "99.0 KiB"),
        (100 * 1024, "100 KiB"),
        (24 << 30, "24.0 GiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (3661, "1 h 01 min"), (90000, "1 d 1 h")])
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def entry(host: str = "127.0.0.1", status: Any = None, error: Any = None) -> dict[str, Any]:
    return {"host": host, "port": 47627, "reachable": status is not None, "status": status, "error": error}


DEVICE = {"name": "NVIDIA GeForce RTX 4090", "total_bytes": 24 << 30}


def test_a_server_with_two_devices_and_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    session = {"program": "python", "pid": 33, "host": "laptop", "age_s": 77}
    print_status([entry(status={"devices": [DEVICE, DEVICE], "sessions": [session]})])
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == ["SERVER", "GPU", "MEMORY", "SESSIONS"]
    assert lines[1].split() == ["127.0.0.1:47627", "0:", "NVIDIA", "GeForce", "RTX", "4090", "24.0", "GiB", "1"]
    assert lines[2].split()[0] == "1:"
    assert lines[1].index("0: ") == lines[2].index("1: ") == lines[0].index("GPU")
    assert lines[5].split() == ["127.0.0.1:47627", "python", "(33)", "laptop", "1", "min", "17", "s"]


def test_an_unreachable_server_is_a_row_and_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_status([entry(error={"code": 81, "message": "nobody [bold]listens[/bold]", "hint": "start it"})])
    out, err = capsys.readouterr()
    assert "not reachable" in out
    assert err == "langpu: nobody [bold]listens[/bold]\nhint: start it\n"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"devices": None, "sessions": 7},
        {"devices": [3, {"name": 5, "total_bytes": "x"}], "sessions": [None, {"pid": [], "age_s": "old"}]},
        {"devices": [{"name": "[red]" + "G" * 300, "total_bytes": 1 << 60}] * 3, "sessions": [{"program": "p" * 300, "host": "h" * 300}]},
    ],
)
def test_whatever_a_server_says_fits_80_columns(status: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    print_status([entry(status=status), entry(host="h" * 253, status=status)])
    out = capsys.readouterr().out
    assert out
    assert all(len(line) <= 80 for line in out.splitlines())


def smi_entry(device: Any, **server: Any) -> dict[str, Any]:
    said = {"driver_version": "580.65.06", "cuda_version": 13000, "devices": [device], **server}
    return {"host": "desktop", "port": 47627, "reachable": True, "error": None, "server": said, "sessions": []}


BUSY = {
    "index": 0,
    "name": "NVIDIA RTX 6000 Ada Generation",
    "temperature_c": 61,
    "performance_state": 2,
    "power": {"draw_w": 283.4, "limit_w": 300.0},
    "memory": {"total_bytes": 48 << 30, "used_bytes": 31 << 30},
    "utilization": {"gpu_percent": 97},
    "clocks_mhz": {"sm": {"now": 2505}},
}


def test_smi_of_a_device_that_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_smi([smi_entry(BUSY)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "desktop:47627  driver 580.65.06  CUDA 13.0"
    for text in ("0: NVIDIA", "61 C / P2", "283 / 300 W", "31.0 GiB / 48.0 GiB", "97 %", "2505 MHz"):
        assert text in lines[2]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("device", [{}, {"memory": 7, "power": [], "utilization": None, "index": "x", "temperature_c": True}])
def test_smi_of_a_device_that_tells_nothing(device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    print_smi([smi_entry(device, driver_version=None)])
    lines = capsys.readouterr().out.splitlines()
    assert "driver without NVML" in lines[0]
    assert lines[2].count("N/A") >= 4


def test_smi_power_without_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    print_smi([smi_entry({**BUSY, "power": {"draw_w": 75.2, "limit_w": None}, "performance_state": 32})])
    out = capsys.readouterr().out
    assert "75 W " in out
    assert "P32" not in out
