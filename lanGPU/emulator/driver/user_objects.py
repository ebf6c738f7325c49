"""User objects: things of the program's that graphs keep alive, with a destructor that is called when nobody does any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.emulator.driver.cabi import need, put_u64
from lanGPU.emulator.driver.graphs import graph_of
from lanGPU.emulator.driver.nodes import UserObject, release
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_NO_DESTRUCTOR_SYNC: Final = 1
_MOVE: Final = 1
_MAX_REFERENCES: Final = 2**31 - 1


def _object(d: Driver, handle: int, count: int) -> UserObject:
    if not 0 < count <= _MAX_REFERENCES:
        raise CuError(INVALID_VALUE)
    return d.handles.get(handle, UserObject, INVALID_VALUE)


@initialized("cuUserObjectCreate")
def user_object_create(d: Driver, out: int, pointer: int, destructor: int, references: int, flags: int) -> None:
    need(out)
    if flags != _NO_DESTRUCTOR_SYNC or not 0 < references <= _MAX_REFERENCES:
        raise CuError(INVALID_VALUE)
    created = UserObject(pointer, need(destructor), references)
    created.handle = d.handles.add(created)
    put_u64(out, created.handle)


@initialized("cuUserObjectRetain")
def user_object_retain(d: Driver, handle: int, count: int) -> None:
    _object(d, handle, count).references += count


@initialized("cuUserObjectRelease")
def user_object_release(d: Driver, handle: int, count: int) -> None:
    release(d, _object(d, handle, count), count)


@initialized("cuGraphRetainUserObject")
def graph_retain_user_object(d: Driver, graph: int, handle: int, count: int, flags: int) -> None:
    """The graph takes references of its own, or with the flag those of the caller."""
    found, holder = _object(d, handle, count), graph_of(d, graph)
    if flags & ~_MOVE:
        raise CuError(INVALID_VALUE)
    if not flags & _MOVE:
        found.references += count
    holder.user_objects[found] = holder.user_objects.get(found, 0) + count


@initialized("cuGraphReleaseUserObject")
def graph_release_user_object(d: Driver, graph: int, handle: int, count: int) -> None:
    found, holder = _object(d, handle, count), graph_of(d, graph)
    held = holder.user_objects.get(found, 0)
    if held < count:
        raise CuError(INVALID_VALUE)
    if held == count:
        del holder.user_objects[found]
    else:
        holder.user_objects[found] = held - count
    release(d, found, count)
