"""R20: a hundred claimers on one run, a thousand times: one owner each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from surefoot.http import system_doors
from surefoot.store.open import open_store
from tests.places import Place
from tests.store.build import TENANT, new_run

pytestmark = pytest.mark.prove

ROUNDS = 1_000
CLAIMERS = 100
STORES = 4


async def test_r20_a_hundred_claimers_a_thousand_times(
    place: Place, record_property: Callable[[str, object], None]
) -> None:
    stores = [await open_store(place.url, system_doors()) for _ in range(STORES)]
    owners: list[int] = []
    try:
        for number in range(1, ROUNDS + 1):
            run = await stores[0].create(new_run(stores[0], number))
            claims = [stores[n % STORES].claim_one(TENANT, run.id, f"worker-{n}", 30.0) for n in range(CLAIMERS)]
            won = [claimed for claimed in await asyncio.gather(*claims) if claimed is not None]
            owners.append(len(won))
            assert won[0].token == 1
    finally:
        for store in stores:
            await store.close()
    record_property(
        "figure", f"{CLAIMERS} claimers, {len(owners)} times on {place.kind}: {owners.count(1)} with one owner"
    )
    assert owners == [1] * ROUNDS
