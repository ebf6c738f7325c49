"""Memory that nodes of graphs allocate and free: what it belongs to and when it is in use.

An allocation node has its address and its memory from the moment it is made until its graph and executable are gone and it is free; a
launch only says whose turn it is. Touching the memory between free and next launch is therefore not noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanGPU.emulator.driver.nodes import AllocateMemory, FreeMemory, Graph, GraphMemory, Node
from lanGPU.emulator.memory import Kind
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.objects import Context
    from lanGPU.emulator.driver.state import Driver


@dataclass(slots=True)
class Highs:
    """The most bytes of one device that were in use and held, since somebody last said so."""

    used: int = 0
    reserved: int = 0


def sums(d: Driver, device: int) -> Highs:
    """Bytes of graph memory of a device that are in use and held now."""
    mine = [memory for memory in d.graph_memory.values() if memory.allocation.device == device]
    return Highs(sum(m.allocation.size for m in mine if m.live), sum(m.allocation.size for m in mine))


def _note(d: Driver, device: int) -> None:
    """Keeps the highest sums."""
    now, high = sums(d, device), d.graph_memory_highs.setdefault(device, Highs())
    high.used, high.reserved = max(high.used, now.used), max(high.reserved, now.reserved)


def make_memory(d: Driver, device: int, size: int, context: Context) -> AllocateMemory:
    """Memory for an allocation node. Raises CuError."""
    if not size:
        raise CuError(INVALID_VALUE)
    try:
        allocation = d.memory.allocate(size, device, Kind.POOL, context=context)
    except CuError as exc:
        if exc.result != OUT_OF_MEMORY:
            raise
        d.queue.drain()  # frees may be queued
        allocation = d.memory.allocate(size, device, Kind.POOL, context=context)
    memory = d.graph_memory[allocation.address] = GraphMemory(allocation)
    _note(d, device)
    return AllocateMemory(memory)


def memory_nodes(graph: Graph) -> list[Node]:
    """The nodes that allocate or free."""
    return [node for node in graph.nodes if isinstance(node.action, AllocateMemory | FreeMemory)]


def refuse_memory(graph: Graph, what: str) -> None:
    """Such graphs cannot be copied (driver API, cuGraphAddMemAllocNode). Raises CuError."""
    if memory_nodes(graph):
        raise CuError(NOT_SUPPORTED, f"{what}: the graph has memory nodes")


def begin_launch(d: Driver, graph: Graph, *, auto_free: bool) -> list[GraphMemory]:
    """Takes the memory of a launch; returns what is free when it is done, for `reclaim` after it was queued.

    Raises:
        CuError: INVALID_VALUE, an allocation is not free yet, or what is freed is not allocated.
    """
    turns: dict[GraphMemory, bool] = {}
    for node in graph.sorted():
        if isinstance(node.action, AllocateMemory):
            memory = node.action.memory
            if turns.get(memory, memory.live and not auto_free):
                raise CuError(INVALID_VALUE, f"graph memory at {memory.allocation.address:#x} was not freed since the last launch")
            turns[memory] = True
        elif isinstance(node.action, FreeMemory):
            found = d.graph_memory.get(node.action.address)
            if found is None or not turns.get(found, found.live):
                raise CuError(INVALID_VALUE, f"{node.action.address:#x}, which a graph frees, is not allocated")
            turns[found] = False
    peak = [memory for memory in turns if not memory.live]
    for memory in peak:
        memory.live = True
    for memory in peak:
        _note(d, memory.allocation.device)
    for memory, live in turns.items():
        memory.live = live
    return [memory for memory, live in turns.items() if not live]


def free(d: Driver, address: int) -> bool:
    """cuMemFree or cuMemFreeAsync of graph memory; False: it is none. INVALID_VALUE where it is not allocated."""
    memory = d.graph_memory.get(address)
    if memory is None:
        return False
    if not memory.live:
        raise CuError(INVALID_VALUE)
    memory.live = False
    reclaim(d, memory)
    return True


def leave(d: Driver, graph: Graph) -> None:
    """The graph, or executable, is gone."""
    for node in graph.nodes:
        if isinstance(node.action, AllocateMemory):
            node.action.memory.holders -= 1
            reclaim(d, node.action.memory)


def reclaim(d: Driver, memory: GraphMemory) -> None:
    """Gives the memory back if nobody can allocate it again and it is free."""
    if memory.holders or memory.live:
        return
    d.queue.drain()
    d.graph_memory.pop(memory.allocation.address, None)
    if d.memory.allocations.get(memory.allocation.address) is memory.allocation:
        d.memory.forget(memory.allocation)
        d.memory.reclaim(memory.allocation)


def check_free(d: Driver, graph: Graph, address: int) -> FreeMemory:
    """A free node's action; INVALID_VALUE for what no allocation node returned, and for a second free in the same graph."""
    if address not in d.graph_memory or any(isinstance(n.action, FreeMemory) and n.action.address == address for n in graph.nodes):
        raise CuError(INVALID_VALUE)
    return FreeMemory(address)
