"""What a program gives as an id and no store can hold is refused by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from surefoot import Found, Receipt, Surefoot
from surefoot.errors import InvalidInput

NONE = "run_\ud800"


async def _first_event(sf: Surefoot) -> object:
    return await anext(sf.events(NONE))


CALLS: dict[str, Callable[[Surefoot], Awaitable[object]]] = {
    "snapshot": lambda sf: sf.snapshot(NONE),
    "wait": lambda sf: sf.wait(NONE, timeout=1.0),
    "events": _first_event,
    "messages": lambda sf: sf.messages(NONE),
    "message": lambda sf: sf.message(NONE, "Hello."),
    "signal": lambda sf: sf.signal(NONE, "paid"),
    "cancel": lambda sf: sf.cancel(NONE),
    "retry": lambda sf: sf.retry(NONE),
    "actions": lambda sf: sf.actions(run_id=NONE),
    "approve": lambda sf: sf.approve(NONE, by="ann"),
    "answer": lambda sf: sf.answer(NONE, 1, by="ann"),
    "resolve": lambda sf: sf.resolve(NONE, "give_up", by="ann"),
    "report": lambda sf: sf.report(NONE, Found(Receipt(resource_id="1"))),
}


@pytest.mark.parametrize("name", CALLS)
async def test_an_id_with_half_a_character_is_refused(store_url: str, name: str) -> None:
    async with Surefoot(store_url, log=lambda line: None) as sf:
        with pytest.raises(InvalidInput, match="is in no store"):
            await CALLS[name](sf)
        assert await sf.actions() == [], "the store goes on"
