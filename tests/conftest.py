"""What holds for every test: nothing of the person who runs them, no deadlines for Hypothesis, one choice of store."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.places import KINDS, Databases, NewPlace, Place, chosen, kinds_of, runs_here
from tests.postgres import Session

# A shared machine is slow at times, which is no finding. A failing example is printed as a line to paste into the test.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

# At import, not in a fixture: also the processes that a test starts, and module-level code, must not see them.
_OWN = ("GITHUB_API_URL", "GITHUB_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
for _name in list(os.environ):
    if _name in _OWN or _name.startswith("SUREFOOT_") or _name.upper() in _PROXIES:
        del os.environ[_name]


STORE = os.environ.get("TESTS_STORE", "sqlite")
_SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--store`: one parameter chooses the store of every test that touches one."""
    text = "the store that tests run on (default: $TESTS_STORE, else sqlite)"
    parser.addoption("--store", choices=[*KINDS, "both"], default=STORE, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """This process takes part in the session's PostgreSQL, which is started when a test asks for it."""
    config.stash[_SESSION] = Session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """This process needs it no longer."""
    config.stash[_SESSION].end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that touches a store is two tests where both are chosen."""
    if "store_kind" in metafunc.fixturenames and len(chosen(metafunc.config)) > 1:
        metafunc.parametrize(
            "store_kind", kinds_of(metafunc.definition, metafunc.config), scope="session", indirect=True
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What only the other store has is not a test of this session."""
    left_out = [item for item in items if not runs_here(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def store_kind(request: pytest.FixtureRequest) -> str:
    """sqlite or postgres."""
    return str(getattr(request, "param", chosen(request.config)[0]))


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases on the session's PostgreSQL."""
    made = Databases(request.config.stash[_SESSION])
    yield made
    made.close()


@pytest.fixture
def place(store_kind: str, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Stores of this test alone."""
    made = Place(store_kind, databases)
    for name, value in made.secret.items():
        monkeypatch.setenv(name, value)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def new_place(store_kind: str, databases: Databases) -> Iterator[NewPlace]:
    """Makes places for fixtures that several tests share; what a process needs of one is in its `environ`."""
    made: list[Place] = []

    def new() -> Place:
        made.append(Place(store_kind, databases))
        return made[-1]

    yield new
    for place in made:
        place.remove()


@pytest.fixture
def store_url(place: Place) -> str:
    """The URL of this test's store."""
    return place.url


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
