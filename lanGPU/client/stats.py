"""What a run did, counted; `docs/stats.md` documents the JSON."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lanGPU.errors import ConfigError

SCHEMA_VERSION: Final = 1

clock_ns = time.monotonic_ns


@dataclass
class SessionStats:
    """One process's numbers. Bytes are those of the connection, frame headers included, unless said otherwise."""

    pid: int
    program: str
    connect_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    record_bytes: int = 0
    """Bytes of call records (host data included) among those sent."""
    bulk_up_bytes: int = 0
    """Host data of large copies and module images among the record bytes."""
    replies: int = 0
    posted: int = 0
    synchronous: int = 0
    agent: int = 0
    agent_round_trips: int = 0
    """Waits of calls that the agent carried out."""
    wait_ns: int = 0
    """Time in which at least one thread of the process waited for the server."""

    @property
    def round_trips(self) -> int:
        """Times that a call waited for the server."""
        return self.synchronous + self.agent_round_trips


def summary(sessions: Sequence[SessionStats], *, server: str, device: str, wall_s: float, exit_code: int) -> dict[str, object]:
    """The JSON object of `--stats-json`."""

    def total(name: str) -> int:
        return sum(getattr(s, name) for s in sessions)

    return {
        "schema": SCHEMA_VERSION,
        "server": server,
        "device": device,
        "exit_code": exit_code,
        "wall_s": round(wall_s, 6),
        "connect_s": round(sum(s.connect_s for s in sessions), 6),
        "wait_s": round(sum(s.wait_ns for s in sessions) / 1e9, 6),
        "round_trips": total("round_trips"),
        "calls": {"posted": total("posted"), "synchronous": total("synchronous"), "agent": total("agent")},
        "agent_round_trips": total("agent_round_trips"),
        "bytes_sent": total("bytes_sent"),
        "bytes_received": total("bytes_received"),
        "record_bytes": total("record_bytes"),
        "bulk_up_bytes": total("bulk_up_bytes"),
        "replies": total("replies"),
        "processes": [{**asdict(s), "round_trips": s.round_trips} for s in sessions],
    }


def size_text(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def render(numbers: dict[str, object]) -> str:
    """The block that `--stats` prints, for people."""
    calls = numbers["calls"]
    assert isinstance(calls, dict)
    lines = [
        f"langpu: {numbers['device'] or 'no device'} at {numbers['server']}, {numbers['wall_s']:.2f} s",
        f"  round trips     {numbers['round_trips']:>12,}   waited {numbers['wait_s']:.3f} s, connecting {numbers['connect_s']:.3f} s",
        f"  calls           {calls['posted']:>12,} posted, {calls['synchronous']:,} synchronous, {calls['agent']:,} answered by the agent",
        f"  sent            {_size(numbers, 'bytes_sent'):>12}   of which large copies and images {_size(numbers, 'bulk_up_bytes')}",
        f"  received        {_size(numbers, 'bytes_received'):>12}   in {numbers['replies']:,} replies",
    ]
    processes = numbers["processes"]
    assert isinstance(processes, list)
    if len(processes) > 1:
        lines.append(f"  processes       {len(processes):>12,}")
    return "\n".join(lines)


def _size(numbers: dict[str, object], name: str) -> str:
    value = numbers[name]
    assert isinstance(value, int)
    return size_text(value)


def write_json(path: Path, numbers: dict[str, object]) -> None:
    """Raises ConfigError: the file cannot be written."""
    try:
        path.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"statistics cannot be written to {path}: {exc.strerror}") from exc
