"""The docs name what is there: files, functions, tests, reason codes and settings."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from deltaic.algebra.reasons import Code
from deltaic.app.values.settings import PREFIX, Settings, _camel

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
TEST = re.compile(r"`(?:(?:tests/)?(?:\w+/)*(test_\w+\.py))?(?:::)?(test_\w+)?(?:\[[^`]*\])?`")


def text_of(page: Path) -> str:
    """Without blocks of code, in which brackets are no links."""
    return re.sub(r"^```.*?^```|^    .*?$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for _, target, anchor in LINK.findall(text_of(page)):
        if re.match(r"\w+:", target):
            continue
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            assert anchor[1:] in set(anchors(there)), f"{page.name} links to {target}{anchor}, which is not there"


def anchors(page: Path) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_are_where_links_say(page: Path) -> None:
    for label, target, _ in LINK.findall(text_of(page)):
        named = re.fullmatch(r"`(?:\w+\.)*(\w+)`", label)
        if target.endswith(".py") and named and not label.endswith(".py`"):
            code = (page.parent / target).read_text("utf-8")
            there = re.search(rf"^\s*(?:(?:def|class) {named[1]}\b|{named[1]}\b.* = )", code, flags=re.MULTILINE)
            assert there, f"{page.name}: {target} defines no {named[1]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    code = {path.name: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for file, test in TEST.findall(text_of(page)):
        assert not file or file in code, f"{page.name} names {file}, which is not there"
        where = [code[file]] if file else list(code.values())
        assert not test or any(f"def {test}(" in text for text in where), f"{page.name}: there is no {file} {test}"


def test_every_reason_is_told() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text("utf-8")
    assert [code.name for code in Code if f"`{code.name}`" not in page] == []


def test_every_setting_is_told() -> None:
    page = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    names = [PREFIX + _camel(setting.name) for setting in fields(Settings)]
    assert [name for name in names if f"`{name}`" not in page] == []
