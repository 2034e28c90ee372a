"""One browser and one stage for all of these tests; every page is watched for what a page of ours never does."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.page.browsing import Visitors, token_of
from tests.page.stage import ROOT, Stage, staged
from tests.places import NewPlace, Place

TOKENS = f"ada admin {token_of('ada')}; eve read {token_of('eve')}"


def chromium() -> str:
    """The path of a Chromium, which is installed where that is possible; the script says what to do where it is not."""
    found = subprocess.run(["bash", "requirements/browser.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.fail(found.stderr, pytrace=False)
    return found.stdout.strip()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest.fixture(scope="session")
def stage(new_place: NewPlace) -> Iterator[Stage]:
    """A server without tokens, for tests that do not stop it."""
    with staged(new_place()) as made:
        yield made


@pytest.fixture
def own_stage(place: Place) -> Iterator[Stage]:
    """A server of one test's own."""
    with staged(place) as made:
        yield made


@pytest.fixture(scope="session")
def guarded(new_place: NewPlace) -> Iterator[Stage]:
    """A server with tokens."""
    with staged(new_place(), TOKENS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def visitors(browser: Browser) -> AsyncIterator[Visitors]:
    """Makes pages; at the end each of them has asked nobody else and broken no rule."""
    async with AsyncExitStack() as stack:
        made = Visitors(browser, stack)
        yield made
        await made.check()
