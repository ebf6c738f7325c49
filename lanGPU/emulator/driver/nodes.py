"""Graphs, their nodes, and executable graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.objects import Event, Recording
from lanGPU.emulator.driver.operations import HostFunction, Record
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.objects import Context
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.memory import Allocation
    from lanGPU.emulator.queue import Operation

TYPE: Final = {name.removeprefix("CU_GRAPH_NODE_TYPE_"): value for name, value in ENUMS["CUgraphNodeType"].items()}
_graph_ids = count(1)
_exec_ids = count(1)


@dataclass(slots=True)
class RecordEvent:
    """What an event record node does: each launch of its graph makes a new recording."""

    event: Event


@dataclass(slots=True)
class WaitEvent:
    """What an event wait node does: nothing, as the one queue keeps the order already."""

    event: Event


@dataclass(slots=True, eq=False)
class GraphMemory:
    """Memory of an allocation node. `live`: allocated by a launch and not freed since."""

    allocation: Allocation
    live: bool = False
    holders: int = 1
    """Graphs and executables that may allocate it."""


@dataclass(slots=True)
class AllocateMemory:
    """What an allocation node does: a launch of its graph begins with it."""

    memory: GraphMemory


@dataclass(slots=True)
class FreeMemory:
    """What a free node does, when its graph is launched."""

    address: int


@dataclass(slots=True)
class SubGraph:
    """What a child graph node does."""

    graph: Graph


@dataclass(slots=True, eq=False)
class UserObject:
    """A CUuserObject: something of the program's, and how often it is held."""

    pointer: int
    destructor: int
    references: int
    handle: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """A CUgraphNode. `action` is what it does, None for an empty node."""

    graph: Graph
    type: int
    action: object
    parameters: bytes = b""
    """The parameter struct it was made from, where cuda.h has a question for it."""
    handle: int = 0
    local_id: int = 0
    dependencies: dict[Node, None] = field(default_factory=dict)
    attributes: dict[int, bytes] = field(default_factory=dict)
    shown: object = None
    """Memory that a question about the node was answered with: the node's own until it ends or is changed (driver API)."""
    original: Node | None = None
    """For a node of a clone: what it was cloned from."""


@dataclass(slots=True, eq=False)
class Graph:
    """A CUgraph: nodes in the order in which they were added."""

    handle: int = 0
    nodes: dict[Node, None] = field(default_factory=dict)
    id: int = field(default_factory=lambda: next(_graph_ids))
    next_local_id: int = 0
    executables: int = 0
    """How many were made from it and live; with memory nodes there may be one."""
    user_objects: dict[UserObject, int] = field(default_factory=dict)

    def add(self, kind: int, action: object, dependencies: list[Node], parameters: bytes = b"") -> Node:
        """A new node behind `dependencies`, which must be this graph's."""
        if any(node.graph is not self for node in dependencies) or len(set(dependencies)) != len(dependencies):
            raise CuError(INVALID_VALUE)
        node = Node(self, kind, action, parameters, local_id=self.next_local_id, dependencies=dict.fromkeys(dependencies))
        self.next_local_id += 1
        self.nodes[node] = None
        return node

    def edges(self) -> list[tuple[Node, Node]]:
        """(from, to) of every edge."""
        return [(before, node) for node in self.nodes for before in node.dependencies]

    def remove(self, node: Node) -> None:
        """Takes a node and its edges out."""
        del self.nodes[node]
        for other in self.nodes:
            other.dependencies.pop(node, None)

    def reaches(self, start: Node, goal: Node) -> bool:
        """Whether `goal` must run before `start`, or is it."""
        todo, seen = [start], {start}
        while todo:
            node = todo.pop()
            if node is goal:
                return True
            new = [n for n in node.dependencies if n not in seen]
            seen.update(new)
            todo.extend(new)
        return False

    def sorted(self) -> list[Node]:
        """The nodes in an order that follows the edges; nodes without edges between them keep the order of their adding."""
        done: set[Node] = set()
        out: list[Node] = []
        for root in self.nodes:
            todo = [root]
            while todo:
                node = todo[-1]
                if node in done:
                    todo.pop()
                    continue
                waiting = [n for n in node.dependencies if n not in done]
                if waiting:
                    todo.extend(waiting)
                else:
                    done.add(node)
                    out.append(node)
                    todo.pop()
        return out

    def clone(self) -> tuple[Graph, dict[Node, Node]]:
        """A copy with the same nodes and edges, and original -> copy."""
        copy, pairs = Graph(), {}
        for node in self.nodes:
            action = SubGraph(node.action.graph.clone()[0]) if isinstance(node.action, SubGraph) else node.action
            twin = pairs[node] = copy.add(node.type, action, [], node.parameters)
            twin.attributes = dict(node.attributes)
            twin.original = node
            twin.local_id = node.local_id
        for node, twin in pairs.items():
            twin.dependencies = {pairs[n]: None for n in node.dependencies}
        copy.next_local_id = self.next_local_id
        for held in self.user_objects:  # a copy holds one reference of its own (driver API, cuGraphRetainUserObject)
            held.references += 1
            copy.user_objects[held] = 1
        return copy, pairs


@dataclass(slots=True, eq=False)
class GraphExec:
    """A CUgraphExec: the actions of a graph's nodes, in order, as they were at instantiation or set since."""

    context: Context
    graph: Graph
    """A private clone; later changes of the original do not reach it."""
    by_original: dict[Node, Node]
    flags: int
    handle: int = 0
    id: int = field(default_factory=lambda: next(_exec_ids))
    source: Graph | None = None
    """What it was made from."""
    disabled: set[Node] = field(default_factory=set)
    _steps: list[object] | None = None

    def node(self, original: Node) -> Node:
        """The executable's own node for one of the graph it was made from; INVALID_VALUE for others."""
        found = self.by_original.get(original)
        if found is None:
            raise CuError(INVALID_VALUE)
        return found

    def changed(self) -> None:
        """An action was replaced."""
        self._steps = None

    def steps(self) -> list[object]:
        """Everything to do for one launch, in order."""
        if self._steps is None:
            self._steps = list(_flatten(self.graph, self.disabled))
        return self._steps


def _flatten(graph: Graph, disabled: set[Node]) -> Iterator[object]:
    for node in graph.sorted():
        if node in disabled:
            continue
        if isinstance(node.action, SubGraph):
            yield from _flatten(node.action.graph, set())
        elif node.action is not None and not isinstance(node.action, WaitEvent | AllocateMemory | FreeMemory):
            yield node.action


@dataclass(slots=True)
class GraphRun:
    """One launch of an executable graph: a single operation of the queue."""

    steps: list[Operation]
    running: str = ""

    @property
    def label(self) -> str:
        return f"graph with {len(self.steps)} nodes"

    def run(self) -> None:
        """Carries the steps out; the first that fails ends it, named."""
        for step in self.steps:
            try:
                step.run()
            except CuError as exc:
                raise CuError(exc.result, f"{step.label}: {exc}") from exc


def start(graph_exec: GraphExec) -> tuple[GraphRun, list[tuple[Event, Recording]]]:
    """A launch, and the recordings that become their events' when it is queued."""
    steps: list[Operation] = []
    recordings: list[tuple[Event, Recording]] = []
    for step in graph_exec.steps():
        if isinstance(step, RecordEvent):
            recording = Recording()
            recordings.append((step.event, recording))
            steps.append(Record(recording))
        else:
            steps.append(cast("Operation", step))
    return GraphRun(steps), recordings


@dataclass(slots=True)
class _NoContext:
    """Destructors run whatever became of a context."""

    error: int = 0

    def fail(self, result: int, detail: str) -> None:
        """A destructor has nobody to report to."""


def release(d: Driver, found: UserObject, count: int) -> None:
    """`count` references less; at none the destructor runs behind what is queued, as a launched graph may still use the object."""
    with d.lock:
        if count > found.references:
            raise CuError(INVALID_VALUE)
        found.references -= count
        if found.references:
            return
        d.handles.remove(found.handle)
    if not d.queue.hung:
        d.queue.submit(_NoContext(), HostFunction(found.destructor, found.pointer))
