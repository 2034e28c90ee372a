"""docs/embedding.md: its web application and its job do what the page says, with a script in the model's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.testing import FakeModel
from tests.docs.test_examples import ROOT, blocks_of
from tests.support import in_a_forked_child

PAGE = ROOT / "docs" / "embedding.md"


def _names_of(holds: str, replaced: dict[str, str], **given: object) -> dict[str, Any]:
    """What the block that holds a text defines, with some of its texts replaced."""
    code = next(block.code for block in blocks_of(PAGE) if holds in block.code)
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {"__name__": "embedded", **given}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)  # the example, as it stands
    return names


async def test_the_web_application_starts_shows_and_approves(store_url: str) -> None:
    posted: list[str] = []

    @tool(effect=effects.idempotent(key_lifetime=None), approval="always")
    async def post(op: Operation, text: str) -> Receipt:
        """Post a text."""
        posted.append(text)
        return Receipt(resource_id="1")

    model = FakeModel([[("post", {"text": "Hello."})], "Posted."])
    names = _names_of(
        "FastAPI",
        {'"sqlite:///app.db"': repr(store_url), '"openai:gpt-5", "Answer the customers."': 'model, "", [post]'},
        model=model,
        post=post,
    )
    app, sf = names["app"], names["sf"]
    assert isinstance(sf, Surefoot) and isinstance(names["clerk"], Agent)
    transport = httpx.ASGITransport(app=app)
    async with names["lifespan"](app), httpx.AsyncClient(transport=transport, base_url="http://app") as web:
        first = (await web.post("/tickets/81", params={"text": "Say hello."})).json()
        again = (await web.post("/tickets/81", params={"text": "Say hello."})).json()
        assert first["run"] == again["run"]
        await sf.wait(first["run"], timeout=30.0)
        (asked,) = (await web.get("/inbox")).json()
        assert asked["run"] == first["run"] and posted == []
        path = f"/inbox/{asked['action']}/approve"
        other = await web.post(path, params={"shown": "0" * 64, "user": "ann"})
        assert (other.status_code, other.json()["detail"]["code"]) == (409, "input_changed")
        answers = [await web.post(path, params={"shown": asked["hash"], "user": "ann"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200], "a lost reply is asked for again"
        assert (await sf.wait(first["run"], timeout=30.0)).status == "completed" and posted == ["Hello."]


def test_the_job_that_is_delivered_twice_charges_once(store_url: str) -> None:
    names = _names_of("charge_job", {'"postgresql://app@db.example/app"': repr(store_url)})
    job: Callable[[str, int], str | None] = names["charge_job"]
    assert job("81", 900) == job("81", 900) == "81: 900"
    assert in_a_forked_child(lambda: f"{job('81', 900)}, {job('82', 1)}") == "81: 900, 82: 1", "as Celery does it"
