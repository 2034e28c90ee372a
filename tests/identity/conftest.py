"""A store on a RAM disk with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from surefoot.doors import SystemEntropy
from surefoot.http import system_doors
from surefoot.server.tokens import Tokens
from surefoot.store.open import open_store
from surefoot.store.port import Store
from tests.store.bench import ShiftedClock


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def store(store_url: str, clock: ShiftedClock) -> AsyncIterator[Store]:
    made = await open_store(store_url, msgspec.structs.replace(system_doors(), clock=clock))
    yield made
    await made.close()


@pytest.fixture
def tokens(store: Store, clock: ShiftedClock) -> Tokens:
    return Tokens(store, clock, SystemEntropy())
