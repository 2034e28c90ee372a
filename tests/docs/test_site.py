"""The site's navigation holds every page, and what judges the built site finds what is wrong with one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_examples import ROOT

NOT_IN_THE_NAVIGATION: set[str] = set()


def _judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "docs" / "check_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site as it should be, of empty pages."""
    for name in _judge().pages():
        (tmp_path / name).with_suffix(".html").write_text('<a href="https://example.org">a link is no load</a>')
    return tmp_path


def test_the_navigation_names_every_page_once() -> None:
    named = _judge().pages()
    assert len(named) == len(set(named))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - NOT_IN_THE_NAVIGATION == set(named)


def test_a_site_that_loads_nothing_from_elsewhere_is_taken(site: Path) -> None:
    (site / "a.css").touch()
    (site / "tools.html").write_text('<link rel="stylesheet" href="a.css"><img src="data:image/png;base64,aa">')
    assert _judge().faults_of(site) == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="http://example.org/badge.svg">',
        '<script src="assets/missing.js"></script>',
        '<pre class="mermaid"><code>a --> b</code></pre>',
    ],
)
def test_what_a_page_would_load_is_a_fault(site: Path, html: str) -> None:
    (site / "tools.html").write_text(html)
    assert len(_judge().faults_of(site)) == 1


def test_a_page_that_was_not_built_is_a_fault(site: Path) -> None:
    (site / "agents.html").unlink()
    assert _judge().faults_of(site) == ["agents.md was not built"]
