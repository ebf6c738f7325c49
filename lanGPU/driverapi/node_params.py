"""struct CUgraphNodeParams, which describes a graph node of any kind. Used by the client and by the emulated driver. Source: cuda.h."""

from typing import Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import GRAPH_NODE_PARAMS, MEMCPY_NODE_PARAMS, Buffer

UNION: Final = GRAPH_NODE_PARAMS.fields["reserved1[0]"].offset
"""Bytes before the parameters of the node's kind."""
COPY_PARAMS: Final = MEMCPY_NODE_PARAMS.fields["copyParams[0]"].offset
"""Bytes before `copyParams` in CUDA_MEMCPY_NODE_PARAMS."""
_KIND: Final = {value: name.removeprefix("CU_GRAPH_NODE_TYPE_") for name, value in ENUMS["CUgraphNodeType"].items()}
_RESERVED: Final = ("reserved0[0]", "reserved0[1]", "reserved0[2]", "reserved2")


def node_kind(data: Buffer) -> str | None:
    """The kind of node that a CUgraphNodeParams describes, as ``KERNEL``; None: it describes none, or reserved bytes are set."""
    if any(GRAPH_NODE_PARAMS.get(data, name) for name in _RESERVED):
        return None
    return _KIND.get(GRAPH_NODE_PARAMS.get(data, "type"))
