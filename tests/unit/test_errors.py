"""Every error class has its own exit code, wherever it lives."""

import importlib
import pkgutil
from collections.abc import Iterator

import lanGPU
from lanGPU.errors import LanGPUError


def subclasses(base: type[LanGPUError]) -> Iterator[type[LanGPUError]]:
    yield base
    for child in base.__subclasses__():
        yield from subclasses(child)


def test_exit_codes_are_unique_and_leave_the_shell_its_own() -> None:
    for module in pkgutil.walk_packages(lanGPU.__path__, "lanGPU."):
        if ".inject." not in module.name and not module.name.endswith(("__main__", ".inject")):
            importlib.import_module(module.name)
    codes: dict[int, str] = {}
    for error in set(subclasses(LanGPUError)):
        if "exit_code" in vars(error):
            assert error.exit_code not in codes, f"{error.__name__} and {codes[error.exit_code]} both exit with {error.exit_code}"
            codes[error.exit_code] = error.__name__
            assert 64 <= error.exit_code <= 127
    assert len(codes) > 20
