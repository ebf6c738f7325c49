"""What the documents name exists: files, folders, links, exit codes."""

import re
from pathlib import Path
from typing import Final

import pytest

from lanGPU import errors

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PATH: Final = re.compile(r"`((?:lanGPU|tests|tools|examples|docs)/[\w./*-]*|[\w-]+\.(?:md|toml))`")
LINK: Final = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    named = {match[1] for match in PATH.finditer(text)}
    missing = {name for name in named if not (list(ROOT.glob(name)) if "*" in name else (ROOT / name).exists())}
    missing |= {link for link in LINK.findall(text) if not (page.parent / link).exists()}
    assert not missing


def test_every_exit_code_is_documented_once() -> None:
    codes = [cls.exit_code for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.LanGPUError)]
    assert len(codes) == len(set(codes)), "one exit code a class"
    table = (ROOT / "docs" / "cli.md").read_text().partition("## Exit codes")[2]
    documented = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")]
    assert set(codes) <= set(documented)
    assert len(documented) == len(set(documented))
