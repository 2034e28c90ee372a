"""What the page's charts are made of: counts of one tenant, and the server's words."""

from __future__ import annotations

from surefoot import Absent, Agent, Found, Operation, Receipt, effects, tool
from surefoot.server import statistics
from surefoot.testing.model import FakeModel
from surefoot.vocabulary import EVENTS, NEXT, TEXTS
from tests.places import Place
from tests.server.house import Named, Outside, caller, code_of, house, surefoot_at


async def test_runs_approvals_and_lookups_are_counted(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        empty = (await at.client.get("/v1/statistics")).json()
        assert empty["approval_median_seconds"] is None and empty["lookups"] == {}
        assert [each["counts"] for each in empty["runs"]] == [{}] * statistics.BUCKETS
        for number in range(3):
            run_id, action_id = await at.asked(key=f"run {number}")
            if number < 2:
                assert (await at.decide(action_id, "approve")).status_code == 200
                await at.until(run_id, "completed")
        found = (await at.client.get("/v1/statistics", params={"hours": 1})).json()
    assert found["bucket_seconds"] == 150.0
    assert found["runs"][-1]["counts"] == {"completed": 2, "waiting_for_user": 1}
    assert [each["count"] for each in found["approvals"]] == [2, 0, 0, 0, 0]
    assert [each["up_to_seconds"] for each in found["approvals"]] == [60, 600, 3600, 86400, None]
    assert 0 <= found["approval_median_seconds"] < 60


async def test_answers_of_lookups_are_counted(place: Place) -> None:
    def find(op: Operation) -> Found | Absent:
        return Found(Receipt(resource_id="parcel-1"))

    @tool(effect=effects.lookup(find, settle=0.05))
    async def ship(op: Operation) -> Receipt:
        """Ship, and lose the reply."""
        raise effects.InDoubt("the line went dead")

    shipper = Agent(name="shipper", model=FakeModel([[("ship", {})], "Done."]), instructions="Do it.", tools=[ship])
    async with house(place, [shipper]) as at:
        await at.until(await at.started("shipper"), "completed")
        assert (await at.client.get("/v1/statistics")).json()["lookups"] == {"found": 1}


async def test_nothing_of_another_tenant_is_counted(place: Place, outside: Outside) -> None:
    agent = outside.writer()
    doorman = Named(ada=caller("ada", tenant="acme"), eve=caller("eve", tenant="evil"), bob=caller("bob", "start"))
    async with house(
        place, [agent], doorman=doorman, open_tenant=lambda name: surefoot_at(place, [agent], tenant=name)
    ) as at:
        at.client.headers["X-Caller"] = "ada"
        await at.started()
        mine = (await at.client.get("/v1/statistics")).json()
        at.client.headers["X-Caller"] = "eve"
        others = (await at.client.get("/v1/statistics")).json()
        at.client.headers["X-Caller"] = "bob"
        assert code_of(await at.client.get("/v1/statistics")) == (403, "not_permitted")
        assert code_of(await at.client.get("/v1/vocabulary")) == (403, "not_permitted")
    assert sum(sum(each["counts"].values()) for each in mine["runs"]) == 1
    assert sum(sum(each["counts"].values()) for each in others["runs"]) == 0


async def test_the_vocabulary_is_the_servers_own(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        for asked, language in ((None, "en"), ("zh-CN,zh;q=0.9", "zh-CN"), ("fr", "en")):
            headers = {} if asked is None else {"Accept-Language": asked}
            found = (await at.client.get("/v1/vocabulary", headers=headers)).json()
            assert found["language"] == language
            for name, table in (("texts", TEXTS), ("next", NEXT), ("events", EVENTS)):
                assert found[name] == {code: texts[language] for code, texts in table.items()}
            assert found["tools"]["ask_person"]["doing"] == {"en": "Asking a person", "zh-CN": "正在询问"}[language]
        assert (await at.client.get("/v1/statistics", params={"hours": 0})).status_code == 422
