"""What people read: tables of at most 80 columns. Scripts use --json instead; this output may change at any time."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from lanGPU.cli.address import Address

WIDTH: Final = 80


def format_bytes(count: float) -> str:
    """A size for people: three significant digits and a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """A duration for people, of one or two units."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest_s:02} s"


def _table(rows: list[tuple[str, str, str, str]], titles: tuple[str, str, str, str], narrow: int) -> Table:
    """A table of four columns; the last two have `narrow` columns of text at most, the second gets what the first leaves."""
    first = min(28, max(len(titles[0]), *(len(row[0]) for row in rows)))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for title, width in zip(titles, (first, WIDTH - first - 2 * narrow - 6, narrow, narrow), strict=True):
        table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _dicts(value: object) -> list[dict[str, Any]]:
    """The maps in a list that another machine sent; anything else counts as none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _server_rows(entry: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    address = str(Address(entry["host"], entry["port"]))
    status = entry["status"]
    if not isinstance(status, dict):
        yield address, "not reachable", "", ""
        return
    sessions = str(len(_dicts(status.get("sessions"))))
    devices = _dicts(status.get("devices"))
    if not devices:
        yield address, "no device", "", sessions
    for index, device in enumerate(devices):
        name = f"{index}: {device.get('name', '?')}"
        memory = format_bytes(_number(device.get("total_bytes")))
        yield (address, name, memory, sessions) if index == 0 else ("", name, memory, "")


def _session_rows(entry: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    status = entry["status"]
    for session in _dicts(status.get("sessions")) if isinstance(status, dict) else []:
        program = f"{session.get('program') or '?'} ({session.get('pid', '?')})"
        since = format_seconds(_number(session.get("age_s")))
        yield str(Address(entry["host"], entry["port"])), program, str(session.get("host") or session.get("peer") or "?"), since


def print_status(entries: Iterable[Mapping[str, Any]]) -> None:
    """Print what `langpu status` found to stdout; what went wrong, with its hint, to stderr."""
    entries = list(entries)
    console = Console(width=WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=False)
    sessions = [row for entry in entries for row in _session_rows(entry)]
    console.print(_table([row for entry in entries for row in _server_rows(entry)], ("SERVER", "GPU", "MEMORY", "SESSIONS"), 9))
    if sessions:
        console.print()
        console.print(_table(sessions, ("SERVER", "PROGRAM", "FROM", "SINCE"), 15))
    sys.stdout.flush()
    _print_errors(entries)


def _print_errors(entries: Iterable[Mapping[str, Any]]) -> None:
    for entry in entries:
        if entry["error"]:
            print(f"langpu: {entry['error']['message']}", file=sys.stderr)
            if entry["error"]["hint"]:
                print(f"hint: {entry['error']['hint']}", file=sys.stderr)


# --- langpu smi ------------------------------------------------------------------------------------------------------------
_NONE: Final = "N/A"
_LAST_STATE: Final = 15
"""nvmlPstates_t: 0 to 15; 32 is "unknown"."""


def _map(value: object) -> Mapping[str, Any]:
    """A map that another machine sent; anything else counts as an empty one."""
    return value if isinstance(value, dict) else {}


def _with_unit(value: object, unit: str) -> str:
    """A rounded number and its unit, or that there is none."""
    return f"{value:.0f}{unit}" if isinstance(value, int | float) and not isinstance(value, bool) else _NONE


def _of(value: str, most: str) -> str:
    return value if most == _NONE else f"{value} / {most}"


def _power(draw: object, limit: object) -> str:
    most = _with_unit(limit, " W")
    return _with_unit(draw, " W") if most == _NONE else f"{_with_unit(draw, '')} / {most}"


def _smi_row(device: Mapping[str, Any]) -> tuple[str, ...]:
    memory, load = _map(device.get("memory")), _map(device.get("utilization"))
    power, clocks = _map(device.get("power")), _map(_map(device.get("clocks_mhz")).get("sm"))
    used = memory.get("used_bytes")
    state = device.get("performance_state")
    return (
        f"{device.get('index', '?')}: {device.get('name', '?')}",
        _of(_with_unit(device.get("temperature_c"), " C"), f"P{state}" if isinstance(state, int) and state <= _LAST_STATE else _NONE),
        _power(power.get("draw_w"), power.get("limit_w")),
        _of(format_bytes(used) if isinstance(used, int) else _NONE, format_bytes(_number(memory.get("total_bytes")))),
        _with_unit(load.get("gpu_percent"), " %"),
        _with_unit(clocks.get("now"), " MHz"),
    )


def _smi_heading(entry: Mapping[str, Any]) -> str:
    server = _map(entry["server"])
    cuda = int(_number(server.get("cuda_version")))
    driver = server.get("driver_version") or "without NVML"
    return f"{Address(entry['host'], entry['port'])}  driver {driver}  CUDA {cuda // 1000}.{cuda % 1000 // 10}"


def print_smi(entries: Iterable[Mapping[str, Any]]) -> None:
    """Print what `langpu smi` found to stdout; what went wrong, with its hint, to stderr."""
    entries = list(entries)
    console = Console(width=WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=False)
    for entry in entries:
        if not entry["reachable"]:
            continue
        console.print(_smi_heading(entry))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        titles = ("GPU", "TEMP", "POWER", "MEMORY", "LOAD", "CLOCK")
        rows = [_smi_row(device) for device in _dicts(_map(entry["server"]).get("devices"))]
        # The name alone gives way: a number that is cut off is another number.
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 2 * len(widths[1:]))
        for title, width in zip(titles, widths, strict=True):
            table.add_column(title, no_wrap=True, overflow="ellipsis", width=width)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()
    sessions = [row for entry in entries for row in _session_rows({**entry, "status": {"sessions": entry["sessions"]}})]
    if sessions:
        console.print(_table(sessions, ("SERVER", "PROGRAM", "FROM", "SINCE"), 15))
    sys.stdout.flush()
    _print_errors(entries)
