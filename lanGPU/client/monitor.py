"""What a server's NVML says of its devices now, asked without a program: for `langpu smi`."""

import os
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, TypeAlias

from lanGPU.client.link import Link, address_text, open_session, send_buffers
from lanGPU.constants import CONNECT_TIMEOUT_S
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.table import BY_NAME
from lanGPU.errors import ConnectionLostError, RemoteProtocolError, TransportTimeoutError
from lanGPU.nvml import results
from lanGPU.nvml.functions import FUNCTIONS, Value, output_sizes
from lanGPU.nvml.question import RESULT_BYTES, decode_answer, encode_question
from lanGPU.wire import events as ev
from lanGPU.wire.handshake import DeviceInfo
from lanGPU.wire.records import encode

Numbers: TypeAlias = tuple[int, ...]
_GRAPHICS, _SM, _MEMORY = 0, 1, 2
"""nvmlClockType_t."""
_TEMPERATURE_GPU: Final = 0
_ATTRIBUTE: Final = ENUMS["CUdevice_attribute"]


class Monitor:
    """One session with a server that asks NVML questions only; used with `with`."""

    def __init__(self, host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connects. Raises as `lanGPU.client.link.open_session`: a server that has its limit of sessions refuses this one, too."""
        self._where = address_text(host, port)
        self._timeout_s = timeout_s
        self._link: Link = open_session(
            host, port, program="langpu smi", pid=os.getpid(), connect_timeout_s=timeout_s, handshake_timeout_s=timeout_s
        )
        self._link.sock.settimeout(timeout_s)
        self._token = 0
        self.devices: tuple[DeviceInfo, ...] = self._link.welcome.devices

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._link.close()

    def ask(self, name: str, *values: Value) -> tuple[int, list[bytes]]:
        """nvmlReturn_t and what each parameter brings back.

        Raises:
            ConnectionLostError, TransportTimeoutError, RemoteProtocolError: no answer, or none that makes sense.
        """
        sizes = output_sizes(FUNCTIONS[name], values)
        question, room = encode_question(name, values), RESULT_BYTES + sum(sizes)
        self._token += 1
        record = encode(BY_NAME["langpuNvml"], (question, len(question), room, room), thread=0, token=self._token)
        connection, sock = self._link.connection, self._link.sock
        try:
            connection.send_records(record)
            send_buffers(sock, connection.data_to_send())
            while not isinstance(event := self._event(), ev.ReplyReceived):
                if isinstance(event, ev.GoodbyeReceived | ev.ConnectionClosed):
                    raise ConnectionLostError(f"the server at {self._where} ended the connection")
        except TimeoutError as exc:
            raise TransportTimeoutError(f"{self._where} did not answer {name} within {self._timeout_s:g} s") from exc
        except OSError as exc:
            raise ConnectionLostError(f"the connection to {self._where} broke: {exc.strerror or exc}") from exc
        if event.token != self._token or event.result or len(event.outputs) < room:
            raise RemoteProtocolError(f"{self._where} answered {name} with what is no answer")
        return decode_answer(bytes(event.outputs), sizes)

    def _event(self) -> ev.Event:
        if self._link.preread:
            return self._link.preread.pop(0)
        connection = self._link.connection
        while (event := connection.next_event()) is None:
            connection.buffer_received(self._link.sock.recv_into(connection.get_buffer()))
        return event

    # --- answers as numbers and texts; None: this device or server has none ------------------------------------------------
    def numbers(self, layout: str, name: str, *values: Value) -> Numbers | None:
        """All that is brought back, as little-endian `layout` (struct)."""
        result, outputs = self.ask(name, *values)
        return struct.unpack("<" + layout, b"".join(outputs)) if result == results.SUCCESS else None

    def number(self, name: str, *values: Value, layout: str = "I") -> int | None:
        """The first of them."""
        found = self.numbers(layout, name, *values)
        return found[0] if found else None

    def text(self, name: str, *values: Value) -> str | None:
        """The text that is brought back."""
        result, outputs = self.ask(name, *values)
        return b"".join(outputs).split(b"\0")[0].decode(errors="replace") if result == results.SUCCESS else None

    def server(self) -> dict[str, Any]:
        """driver_version and nvml_version (texts), cuda_version (as cuDriverGetVersion), emulated, name."""
        welcome = self._link.welcome
        return {
            "name": welcome.server,
            "emulated": welcome.emulated,
            "driver_version": self.text("nvmlSystemGetDriverVersion", None, 80),
            "nvml_version": self.text("nvmlSystemGetNVMLVersion", None, 80),
            "cuda_version": welcome.driver_version,
        }

    def device(self, index: int) -> dict[str, Any]:
        """What docs/cli.md lists under `devices[]` of `langpu smi --json`; units in the names."""
        memory = self.numbers("3Q", "nvmlDeviceGetMemoryInfo", index, None) or (self.devices[index].total_bytes, None, None)
        rates = self.numbers("2I", "nvmlDeviceGetUtilizationRates", index, None) or (None, None)
        ecc = self.numbers("2I", "nvmlDeviceGetEccMode", index, None, None) or (None, None)
        clocks = {
            key: {
                "now": self.number("nvmlDeviceGetClockInfo", index, kind, None),
                "max": self.number("nvmlDeviceGetMaxClockInfo", index, kind, None),
            }
            for key, kind in (("graphics", _GRAPHICS), ("sm", _SM), ("memory", _MEMORY))
        }
        return {
            "index": index,
            **_identity(self.devices[index]),
            "memory": {"total_bytes": memory[0], "free_bytes": memory[1], "used_bytes": memory[2]},
            "utilization": {"gpu_percent": rates[0], "memory_percent": rates[1]},
            "temperature_c": self.number("nvmlDeviceGetTemperature", index, _TEMPERATURE_GPU, None),
            "fan_percent": self.number("nvmlDeviceGetFanSpeed", index, None),
            "power": {
                "draw_w": _watts(self.number("nvmlDeviceGetPowerUsage", index, None)),
                "limit_w": _watts(self.number("nvmlDeviceGetEnforcedPowerLimit", index, None)),
            },
            "clocks_mhz": clocks,
            "performance_state": self.number("nvmlDeviceGetPerformanceState", index, None),
            "persistence_mode": _flag(self.number("nvmlDeviceGetPersistenceMode", index, None)),
            "ecc_mode": _flag(ecc[0]),
            "display_active": _flag(self.number("nvmlDeviceGetDisplayActive", index, None)),
            "serial": self.text("nvmlDeviceGetSerial", index, None, 30),
        }


def _identity(device: DeviceInfo) -> dict[str, Any]:
    major, minor = (device.attributes.get(_ATTRIBUTE[f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"]) for part in ("MAJOR", "MINOR"))
    return {
        "name": device.name,
        "uuid": device.uuid.hex(),
        "pci_bus_id": device.pci_bus_id,
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "compute_mode": device.attributes.get(_ATTRIBUTE["CU_DEVICE_ATTRIBUTE_COMPUTE_MODE"]),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _flag(value: int | None) -> bool | None:
    return None if value is None else value != 0


def observe(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S, indexes: Sequence[int] | None = None) -> dict[str, Any]:
    """`Monitor.server`, and under `devices` those of `indexes` (all by default; unknown ones are left out). Raises as `Monitor`."""
    with Monitor(host, port, timeout_s) as monitor:
        chosen = [index for index in range(len(monitor.devices)) if indexes is None or index in indexes]
        return {**monitor.server(), "devices": [monitor.device(index) for index in chosen]}
