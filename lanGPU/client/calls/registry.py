"""Which generator carries out which row."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from lanGPU.client.calls.effects import Steps
from lanGPU.client.calls.state import Call

Handler: TypeAlias = Callable[..., Steps]
"""Called with the Call and the row's raw arguments (u64 each)."""
_H = TypeVar("_H", bound=Callable[..., Steps])

HANDLERS: dict[str, Handler] = {}
BEFORE_INIT: set[str] = set()
"""Rows that may be called before cuInit."""


def client_call(*names: str, before_init: bool = False) -> Callable[[_H], _H]:
    """Register a generator for rows of these names."""

    def register(function: _H) -> _H:
        for name in names:
            if name in HANDLERS:
                raise ValueError(f"{name} has two handlers")
            HANDLERS[name] = function
            if before_init:
                BEFORE_INIT.add(name)
        return function

    return register


def start(call: Call, handler: Handler) -> Steps:
    """The call's generator, not yet begun."""
    return handler(call, *call.args[: len(call.row.args)])
