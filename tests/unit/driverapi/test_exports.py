"""Exported symbols, and cuGetProcAddress's choice between ABI variants."""

import pytest

from lanGPU.driverapi.exports import export_names, proc_address, resolve_symbol
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.driverapi.table import BY_NAME, ROWS


def test_exports_are_sorted_and_unique() -> None:
    names = export_names()
    assert list(names) == sorted(set(names))
    assert len(names) > 600


def test_every_row_alias_and_variant_is_exported() -> None:
    names = set(export_names())
    for row in ROWS:
        for name in (row.name, *row.aliases):
            assert name in names
            assert not row.per_thread or name + row.per_thread in names


def test_old_abis_are_exported_without_a_row() -> None:
    # 32-bit device addresses: nothing that can be carried.
    assert "cuMemAlloc" in export_names()
    assert resolve_symbol("cuMemAlloc") == (None, False)


@pytest.mark.parametrize(
    ("symbol", "row", "per_thread"),
    [
        ("cuMemAlloc_v2", "cuMemAlloc_v2", False),
        ("cuStreamDestroy", "cuStreamDestroy_v2", False),
        ("cuCtxCreate", "cuCtxCreate_v2", False),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel", True),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD_v2", True),
        ("cuGraphInstantiate", "cuGraphInstantiate_v2", False),
    ],
)
def test_symbols_resolve(symbol: str, row: str, per_thread: bool) -> None:
    assert resolve_symbol(symbol) == (BY_NAME[row], per_thread)


def test_unknown_symbols_resolve_to_nothing() -> None:
    assert resolve_symbol("cuNoSuchThing") == (None, False)
    assert resolve_symbol("cuNoSuchThing_ptsz") == (None, True)
    assert resolve_symbol("") == (None, False)


@pytest.mark.parametrize(
    ("name", "version", "symbol"),
    [
        ("cuMemAlloc", 3019, "cuMemAlloc"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13050, "cuMemAlloc_v2"),
        ("cuCtxCreate", 11030, "cuCtxCreate_v2"),
        ("cuCtxCreate", 12040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
        ("cuEventElapsedTime", 12070, "cuEventElapsedTime"),
        ("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
        ("cuStreamGetCaptureInfo", 12000, "cuStreamGetCaptureInfo_v2"),
        ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
        ("cuGraphAddKernelNode", 11080, "cuGraphAddKernelNode"),
        ("cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"),
        ("cuGetProcAddress", 11030, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ("cuCtxGetDevice", 12090, "cuCtxGetDevice"),
        ("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"),
        ("cuProfilerStart", 12000, "cuProfilerStart"),
        ("cuLibraryLoadData", 11080, None),
        ("cuLaunchKernelEx", 11050, None),
        ("cuMemAlloc_v2", 12000, None),
        ("", 12000, None),
        ("cuNoSuchThing", 12000, None),
    ],
)
def test_proc_address_answers_with_the_newest_abi_not_newer_than_asked(name: str, version: int, symbol: str | None) -> None:
    assert proc_address(name, version) == symbol


@pytest.mark.parametrize(
    ("name", "version", "symbol"),
    [
        ("cuLaunchKernel", 12000, "cuLaunchKernel_ptsz"),
        ("cuMemcpyHtoD", 12000, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemcpyHtoD", 6050, "cuMemcpyHtoD_v2"),
        ("cuMemAlloc", 12000, "cuMemAlloc_v2"),
        ("cuStreamGetCaptureInfo", 12020, "cuStreamGetCaptureInfo_v2_ptsz"),
    ],
)
def test_proc_address_prefers_per_thread_variants_when_asked(name: str, version: int, symbol: str) -> None:
    assert proc_address(name, version, per_thread=True) == symbol


@pytest.mark.parametrize("per_thread", [False, True])
def test_proc_address_answers_are_exported_and_never_go_back(per_thread: bool) -> None:
    names = set(export_names())
    for base in {s.base for s in SIGNATURES.values()}:
        last = 0
        for version in range(2000, 14000, 10):
            symbol = proc_address(base, version, per_thread)
            if symbol is None:
                assert not last, base
                continue
            assert symbol in names
            row = SIGNATURES[symbol.removesuffix("_ptsz").removesuffix("_ptds")]
            assert last <= row.since <= version
            last = row.since
