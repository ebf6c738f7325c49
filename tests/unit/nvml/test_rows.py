"""NVML's names and rows as data."""

from lanGPU.client.calls import HANDLERS
from lanGPU.driverapi.exports import export_names
from lanGPU.driverapi.table import BY_ID
from lanGPU.nvml import results
from lanGPU.nvml.names import NAMES
from lanGPU.nvml.rows import PARAMS, nvml_rows


def test_every_name_has_one_row_and_somebody_who_answers() -> None:
    assert list(NAMES) == sorted(set(NAMES))
    assert set(PARAMS) <= set(NAMES)
    assert all(name in HANDLERS for name in NAMES)


def test_ids_and_names_do_not_meet_the_drivers() -> None:
    rows = nvml_rows()
    assert not {row.api_id for row in rows.values()} & set(BY_ID)
    assert not set(rows) & set(export_names())
    assert max(row.api_id for row in rows.values()) < 0xFFFE


def test_texts() -> None:
    assert results.text(results.SUCCESS) == "Success"
    assert results.text(12345) == "Unknown Error"
