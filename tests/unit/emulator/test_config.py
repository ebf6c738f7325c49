"""The emulated machine, from the environment."""

import pytest

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.attributes import device_attributes
from lanGPU.emulator.config import EmulatorConfig, device_uuid
from lanGPU.errors import ConfigError


def test_the_default_is_one_device() -> None:
    config = EmulatorConfig.from_environment({})
    assert config.devices == 1
    assert config.memory_bytes >= 16 << 20
    assert config.multiprocessors >= 1


def test_the_environment_decides() -> None:
    config = EmulatorConfig.from_environment({"LANGPU_EMULATE_DEVICES": "3", "LANGPU_EMULATE_MEMORY": "100000000"})
    assert (config.devices, config.memory_bytes) == (3, 100_000_000)


@pytest.mark.parametrize(
    ("name", "value"), [("LANGPU_EMULATE_DEVICES", "0"), ("LANGPU_EMULATE_DEVICES", "many"), ("LANGPU_EMULATE_MEMORY", "1G")]
)
def test_nonsense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        EmulatorConfig.from_environment({name: value})


def test_every_attribute_is_answered() -> None:
    values = device_attributes(0, 4)
    assert set(values) >= {number for name, number in ENUMS["CUdevice_attribute"].items() if not name.endswith("_MAX")}
    assert values[ENUMS["CUdevice_attribute"]["CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"]] == 4


def test_devices_have_different_uuids() -> None:
    assert device_uuid(0) == device_uuid(0) != device_uuid(1)
