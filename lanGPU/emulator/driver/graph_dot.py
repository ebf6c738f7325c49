"""A graph as text for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lanGPU.emulator.driver.cabi import get_cstring
from lanGPU.emulator.driver.graphs import graph_of
from lanGPU.emulator.driver.nodes import TYPE, Graph, Node, SubGraph
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.results import INVALID_VALUE, CuError, result

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_KIND: Final = {value: name for name, value in TYPE.items()}
_FLAGS: Final = 0xFFFF
"""All of CUgraphDebugDot_flags (cuda.h)."""


def _label(node: Node) -> str:
    label = str(getattr(node.action, "label", ""))
    text = f"{node.local_id}\n{_KIND[node.type]}" + (f"\n{label}" if label else "")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _lines(graph: Graph) -> Iterator[str]:
    """The graph as a cluster; child graphs are clusters in it."""
    yield f"subgraph cluster_{graph.id} {{"
    yield f'label="graph_{graph.id}" graph[style="dashed"]'
    for node in graph.nodes:
        yield f'"graph_{graph.id}_node_{node.local_id}"[shape="rectangle" label="{_label(node)}"];'
        if isinstance(node.action, SubGraph):
            yield from _lines(node.action.graph)
    for before, after in graph.edges():
        yield f'"graph_{graph.id}_node_{before.local_id}" -> "graph_{graph.id}_node_{after.local_id}";'
    yield "}"


@initialized("cuGraphDebugDotPrint")
def graph_debug_dot_print(d: Driver, graph: int, path: int, flags: int) -> int | None:
    """Flags ask for details that a driver may show; this one shows each node's type and what it does."""
    if flags & ~_FLAGS:
        raise CuError(INVALID_VALUE)
    text = "\n".join(["digraph dot {", *_lines(graph_of(d, graph)), "}", ""])
    try:
        with open(get_cstring(path), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except OSError as exc:
        raise CuError(result("OPERATING_SYSTEM"), str(exc)) from exc
    return None
