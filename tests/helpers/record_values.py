"""Hypothesis strategies for the arguments of table rows, as `lanGPU.wire.records.encode` takes them."""

from hypothesis import strategies as st

from lanGPU.constants import MAX_HANDLES
from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind
from lanGPU.wire.records import Value, make_handle

WORDS = st.one_of(st.integers(0, 64), st.integers(0, (1 << 64) - 1), st.sampled_from([1 << 31, (1 << 32) - 1, (1 << 64) - 1]))
HANDLES = st.builds(make_handle, st.integers(1, MAX_HANDLES - 1), st.integers(0, 0xFFFF))


def _value(arg: Arg, words: st.SearchStrategy[int]) -> st.SearchStrategy[Value]:
    match arg.kind:
        case ArgKind.HANDLE | ArgKind.HANDLE_DESTROY:
            return st.one_of(st.integers(0, 2), HANDLES, WORDS)
        case ArgKind.HANDLE_OUT:
            return st.one_of(st.just(0), HANDLES)
        case ArgKind.HANDLE_QUERY:
            return st.integers(0, 1)
        case ArgKind.CSTRING:
            return st.one_of(st.none(), st.binary(max_size=40).map(lambda b: b + b"\0"))
        case ArgKind.BYTES_IN | ArgKind.BYTES_INOUT | ArgKind.KERNEL_PARAMS:
            return st.one_of(st.none(), st.binary(max_size=80))
        case ArgKind.BYTES_OUT:
            return st.one_of(st.none(), st.integers(0, 200))
        case ArgKind.KERNEL_EXTRA | ArgKind.NULL_ONLY:
            return st.just(0)
    return words


def values_of(row: ApiFunction, words: st.SearchStrategy[int] = WORDS) -> st.SearchStrategy[tuple[Value, ...]]:
    """One value per argument; what the format allows, not what the driver would like."""
    return st.tuples(*(_value(arg, words) for arg in row.args))


def sized_values_of(row: ApiFunction) -> st.SearchStrategy[tuple[Value, ...]]:
    """As `values_of`, but byte counts are small and blobs and capacities as long as the row's size rules ask."""

    def fit(values: tuple[Value, ...]) -> tuple[Value, ...]:
        out = list(values)
        for i, arg in enumerate(row.args):
            value = out[i]
            if arg.kind not in (ArgKind.BYTES_IN, ArgKind.BYTES_INOUT, ArgKind.BYTES_OUT) or value is None:
                continue
            need = arg.size_const
            if arg.size_from:
                count = values[row.arg_index[arg.size_from]]
                assert isinstance(count, int)
                need *= count
            if not arg.size_from and not arg.size_const:
                need = min(value if isinstance(value, int) else len(value), 8)  # an attribute's value
                out[i] = need if isinstance(value, int) else value[:need]
            elif isinstance(value, int):
                out[i] = value + need
            else:
                out[i] = bytes(value) + b"\x5a" * max(0, need - len(value))
        return tuple(out)

    return values_of(row, st.integers(0, 24)).map(fit)
