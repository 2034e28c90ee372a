"""What holds for every test: no settings or keys of the person who runs them, and no deadlines for Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A shared machine is slow at times, which is no finding. A failing example is printed as a line to paste into the test.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

# At import, not in a fixture: also the processes that a test starts, and module-level code, must not see them.
_OWN = ("GITHUB_API_URL", "GITHUB_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
for _name in list(os.environ):
    if _name in _OWN or _name.startswith("SUREFOOT_") or _name.upper() in _PROXIES:
        del os.environ[_name]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured: `record_property("figure", text)`."""
    figures = [
        text for report in _reports(terminalreporter) for name, text in report.user_properties if name == "figure"
    ]
    if figures:
        terminalreporter.section("figures")
    for figure in figures:
        terminalreporter.write_line(str(figure))


def _reports(reporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in reporter.stats.values():
        yield from (r for r in reports if isinstance(r, pytest.TestReport) and r.when == "call")
