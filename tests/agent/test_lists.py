"""A program lists its runs: newest first, page by page, none twice and none left out."""

from __future__ import annotations

import pytest

from surefoot import Agent, Surefoot
from surefoot.errors import InvalidInput
from surefoot.testing.model import FakeModel


async def test_pages_hold_every_run_once_newest_first(store_url: str) -> None:
    agents = [Agent(name, FakeModel(["Done."] * 4)) for name in ("reader", "writer")]
    async with Surefoot(store_url, agents, worker=True) as sf:
        made = [(await sf.start(agents[number % 2], "Go.")).id for number in range(7)]
        for run_id in made:
            assert (await sf.wait(run_id, timeout=30.0)).status == "completed"
        told: list[str] = []
        while page := await sf.runs(before=told[-1] if told else None, limit=3):
            told += [run.id for run in page]
        assert told == made[::-1]
        assert [run.id for run in await sf.runs(agent="writer", status="completed")] == made[1::2][::-1]
        assert await sf.runs(status="failed") == []


@pytest.mark.parametrize(
    "wrong",
    [{"status": "done"}, {"limit": 0}, {"limit": True}, {"limit": 2.5}, {"before": "81"}, {"before": 81}],
    ids=str,
)
async def test_a_wrong_word_is_no_empty_list(store_url: str, wrong: dict[str, str]) -> None:
    async with Surefoot(store_url) as sf:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await sf.runs(**wrong)  # type: ignore[arg-type]  # values of a wrong type are what this is about
