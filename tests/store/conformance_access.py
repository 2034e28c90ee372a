"""What every store has to do for the service: credentials, announcements, marks, counts."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.payloads import ActionView, EvidenceDetail
from surefoot.core.state import ActionKind, ActionStatus
from surefoot.core.throttle import AHEAD_SECONDS, Throttle
from surefoot.errors import Conflict, StoreUnavailable
from surefoot.store.access import Credential, Wish
from surefoot.store.port import Store
from tests.store.bench import Bench
from tests.store.build import TENANT, Story, names, new_run

HOOK = "hook"
ATTEMPTS_MAX = 3


def fault() -> None:
    raise OSError("the fault of this test")


def credential(name: str = "anna", **changes: object) -> Credential:
    made = Credential(TENANT, f"tok_{name}", "token", name, "ab" * 32, ("read", "approve:billing"), created_at=1.0)
    return replace(made, **changes)


async def ask(story: Story, action_id: str, expires_s: float | None = None) -> None:
    """A question about a step that is made here."""
    sequence = story.run.step_count + 1
    asked = ev.ActionRequested(action_id, story.step_id(sequence), ActionKind.approve, "h", expires_s=expires_s)
    await story.append(story.created(sequence), asked, payloads=[ActionView(action_id, b"{}", b"{}")])


async def take(store: Store, limit: int = 10) -> list[tuple[str, int]]:
    return await store.take_announcements(TENANT, HOOK, 60.0, limit, ATTEMPTS_MAX)


class Access:
    """Store.put_credential to Store.check_writable."""

    async def test_a_credential_comes_back_as_it_was_kept(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        await store.put_credential(credential())
        await store.put_credential(credential("bob", created_at=0.5, expires_at=7.0))
        assert await other.credential(TENANT, "tok_anna") == credential()
        assert [c.id for c in await other.credentials(TENANT, "token")] == ["tok_bob", "tok_anna"]
        assert await other.credentials(TENANT, "session") == []
        assert await other.credential(TENANT, "tok_nobody") is None
        with pytest.raises(Conflict):
            await store.put_credential(credential())

    async def test_a_credential_of_another_tenant_does_not_exist(self, bench: Bench) -> None:
        store = await bench.open()
        await store.put_credential(credential())
        assert await store.credential("another", "tok_anna") is None
        assert await store.credentials("another", "token") == []
        assert not await store.revoke_credential("another", "tok_anna")
        await store.put_credential(credential(tenant_id="another"))
        assert await store.token_tenants() == ["another", TENANT]
        kept = await store.credential(TENANT, "tok_anna")
        assert kept is not None and kept.revoked_at is None

    async def test_a_revoked_token_ends_its_sessions_once(self, bench: Bench) -> None:
        store = await bench.open()
        await store.put_credential(credential())
        await store.put_credential(credential(id="ses_1", kind="session", parent_id="tok_anna"))
        await store.put_credential(credential(id="ses_2", kind="session", parent_id="tok_bob"))
        assert await store.revoke_credential(TENANT, "tok_anna")
        first = [await store.credential(TENANT, name) for name in ("tok_anna", "ses_1", "ses_2")]
        assert [c is not None and c.revoked_at is not None for c in first] == [True, True, False]
        assert not await store.revoke_credential(TENANT, "tok_anna")
        assert [await store.credential(TENANT, name) for name in ("tok_anna", "ses_1", "ses_2")] == first
        assert await store.revoke_credential(TENANT, "ses_2")

    async def test_an_announcement_is_taken_by_one(self, bench: Bench) -> None:
        stores = [await bench.open() for _ in range(4)]
        story = await Story.begin(stores[0])
        for number in range(5):
            await ask(story, f"act_{number}")
        assert await stores[0].next_announcement(TENANT, HOOK, ATTEMPTS_MAX) == 0.0
        taken = await asyncio.gather(*[take(store) for store in stores])
        assert sorted(item for items in taken for item in items) == [(f"act_{n}", 1) for n in range(5)]
        assert await take(stores[0]) == []
        due = await stores[0].next_announcement(TENANT, HOOK, ATTEMPTS_MAX)
        assert due is not None and due > bench.clock.now().wall

    async def test_an_announcement_comes_again_until_it_was_taken(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await ask(story, "act_1")
        await ask(story, "act_2")
        assert await take(store) == [("act_1", 1), ("act_2", 1)]
        await store.announced(TENANT, "act_1", HOOK, "sent", None)
        await store.announced(TENANT, "act_2", HOOK, "http_500", 5.0)
        assert await take(store) == []
        bench.clock.advance(6.0)
        assert await take(store) == [("act_2", 2)]
        bench.clock.advance(61.0)  # nobody said how it went: the process that had it is gone
        assert await take(store) == [("act_2", 3)]
        bench.clock.advance(61.0)
        assert await take(store) == []
        assert await store.next_announcement(TENANT, HOOK, ATTEMPTS_MAX) is None
        assert await store.take_announcements(TENANT, "another hook", 60.0, 1, ATTEMPTS_MAX) == [("act_1", 1)]
        assert await store.take_announcements("another", HOOK, 60.0, 1, ATTEMPTS_MAX) == []

    async def test_what_is_decided_or_over_is_not_announced(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await ask(story, "act_1", expires_s=30.0)
        await ask(story, "act_2")
        await story.append(
            ev.ActionDecided("act_2", story.step_id(2), ActionStatus.rejected, "reject", "anna", source="a place")
        )
        bench.clock.advance(31.0)
        assert await take(store) == []
        assert await store.next_announcement(TENANT, HOOK, ATTEMPTS_MAX) is None

    async def test_from_where_a_decision_came_is_kept(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await ask(story, "act_1")
        await story.append(
            ev.ActionDecided("act_1", story.step_id(1), ActionStatus.rejected, "reject", "anna", source="a place")
        )
        row = await store.action(TENANT, "act_1")
        assert (row.action.decided_by, row.action.decided_from) == ("anna", "a place")
        assert row.decided_at is not None

    async def test_marks_are_kept_by_name(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        assert await store.marked(TENANT, "delivery", "a") is None
        assert await store.mark(TENANT, "delivery", "a", "1") is None
        assert await other.mark(TENANT, "delivery", "a", "2") == "1"
        assert await store.marked(TENANT, "delivery", "a") == "2"
        assert await store.marked(TENANT, "trace", "a") is None
        assert await store.marked("another", "delivery", "a") is None
        await store.mark(TENANT, "delivery", "0", "later")
        assert await other.marks(TENANT, "delivery", 10) == ["0", "a"]
        assert await other.marks(TENANT, "delivery", 1) == ["0"]
        assert await other.marks(TENANT, "delivery", 1, "0") == ["a"]
        await other.unmark(TENANT, "delivery", "a")
        await other.unmark("another", "delivery", "0")
        assert await store.marks(TENANT, "delivery", 10) == ["0"]

    async def test_counts_are_those_of_the_tenant(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, 1, owner="w")
        await ask(story, "act_1")
        await ask(story, "act_2")
        over = await Story.begin(store, 2)
        await over.complete()
        counts = await store.counts(TENANT)
        assert dict(counts.runs) == {story.run.status.value: 1, "completed": 1}
        assert (dict(counts.actions), dict(counts.blocked), counts.leased) == ({"approve": 2}, {}, 1)
        assert sum(counts.steps.values()) == 2
        assert counts.workers == 1
        await store.block(TENANT, story.run.id, None, "unreadable")
        assert (await store.counts(TENANT)).blocked == await store.blocked(TENANT) == {"unreadable": 1}
        assert await store.blocked("another") == {}
        assert counts.oldest_action_at == (await store.action(TENANT, "act_1")).created_at
        other = await store.counts("another")
        assert (dict(other.runs), dict(other.actions), other.leased) == ({}, {}, 0)

    async def test_unknown_outcomes_are_found_by_their_place(self, bench: Bench) -> None:
        store = await bench.open()
        story, other = await Story.begin(store, 1, owner="w"), await Story.begin(store, 2, owner="w")
        for one in (story, other):
            await one.begin_step()
            assert one.step_id(1) not in await store.unknown_at(TENANT, "acme/app#1", 10), "it is under way"
            await one.append(ev.StepOutcomeUnknown(one.step_id(1), 1, "timeout"))
        both = [story.step_id(1), other.step_id(1)]
        assert await store.unknown_at(TENANT, "acme/app#1", 10) == both
        assert await store.unknown_at(TENANT, "Acme/APP#1", 1) == both[:1]
        assert await store.unknown_at(TENANT, "acme/app#10", 10) == []
        assert await store.unknown_at("another", "acme/app#1", 10) == []
        await story.append(ev.StepSucceeded(story.step_id(1), None, "c1"))
        assert await store.unknown_at(TENANT, "acme/app#1", 10) == both[1:]

    async def test_calls_that_nobody_looks_up_are_found_by_their_tools(self, bench: Bench) -> None:
        store = await bench.open()
        story, other = await Story.begin(store, 1, owner="w"), await Story.begin(store, 2, owner="w")
        for one in (story, other):
            await one.begin_step()
            await one.append(ev.StepOutcomeUnknown(one.step_id(1), 1, "timeout"))
        tool = story.run.steps[story.step_id(1)].tool_name
        assert tool is not None
        assert await store.unlooked_calls(TENANT, ["another", tool], "", 10) == [], "a look at them is due"
        for one in (story, other):
            await one.append(ev.LookupAnswered(one.step_id(1), "undetermined", reason="no_lookup"))
        both = [story.step_id(1), other.step_id(1)]
        assert await store.unlooked_calls(TENANT, ["another", tool], "", 10) == both
        assert await store.unlooked_calls(TENANT, [tool], "", 1) == both[:1]
        assert await store.unlooked_calls(TENANT, [tool], both[0], 10) == both[1:]
        assert await store.unlooked_calls(TENANT, ["another"], "", 10) == []
        assert await store.unlooked_calls("another", [tool], "", 10) == []
        await story.append(ev.StepGivenUp(story.step_id(1)))
        await other.append(ev.LookupAnswered(other.step_id(1), "undetermined", next_look_s=5.0))
        assert await store.unlooked_calls(TENANT, [tool], "", 10) == []

    async def test_evidence_is_counted_from_a_place_on(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()

        async def look(verdict: str, source: str) -> None:
            detail = EvidenceDetail(story.step_id(1), 1, verdict, source, None, None, None, b"{}")
            await story.append(story.created(story.run.step_count + 1), payloads=[detail])

        await look("absent", "lookup")
        await look("absent", "lookup")
        place, first = await store.evidence_counts(TENANT, 0)
        assert first == {("absent", "lookup"): 2}
        await look("found", "webhook")
        newest, then = await store.evidence_counts(TENANT, place)
        assert then == {("found", "webhook"): 1}
        assert await store.evidence_counts(TENANT, newest) == (newest, {})
        assert await store.evidence_counts("another", 0) == (0, {})

    async def test_prune_takes_what_is_over_and_leaves_tokens(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await ask(story, "act_1")
        assert await take(store) == [("act_1", 1)]
        await store.mark(TENANT, "delivery", "old", "1")
        await store.put_credential(credential())
        await store.put_credential(credential(id="ses_1", kind="session", parent_id="tok_anna", expires_at=2.0))
        await store.put_credential(credential(id="ses_2", kind="session", parent_id="tok_anna", expires_at=1e12))
        await store.put_credential(credential(id="ses_1", kind="session", tenant_id="another", expires_at=2.0))
        bench.clock.advance(10.0)
        await store.mark(TENANT, "delivery", "new", "1")
        before = bench.clock.now().wall - 5.0
        counts = await store.prune(TENANT, before, blobs_before=before)
        assert (counts["marks"], counts["sessions"], counts["announcements"]) == (1, 1, 0)
        assert [await store.marked(TENANT, "delivery", name) for name in ("old", "new")] == [None, "1"]
        assert [await store.credential(TENANT, name) is None for name in ("tok_anna", "ses_1", "ses_2")] == [
            False, True, False,
        ]  # fmt: skip
        assert await store.credential("another", "ses_1") is not None
        assert await take(store) == [], "the question waits, and so does what is known of it"

    async def test_whether_it_can_be_written(self, bench: Bench) -> None:
        store = await bench.open()
        commits = bench.commits.count
        await store.check_writable()
        assert bench.commits.count == commits + 1
        bench.commits.before = fault
        with pytest.raises(StoreUnavailable):
            await store.check_writable()

    async def test_a_run_is_waited_for_with_a_commit_that_changes_nothing(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        commits = bench.commits.count
        await store.fence(TENANT, story.run.id)
        assert bench.commits.count == commits + 1
        assert await story.reloaded()
        bench.commits.before = fault
        with pytest.raises(StoreUnavailable):
            await store.fence(TENANT, story.run.id)

    async def test_a_run_is_waited_for_behind_all_that_is_on_its_way_to_it(self, bench: Bench) -> None:
        """Behind two of its appends, each with a commit of its own: the second was taken for one that had failed."""
        store = await bench.open()
        story = await Story.begin(store)
        writing: list[asyncio.Future[None]] = []
        for sequence in (1, 2, 3):
            append = story.next(story.created(sequence))
            writing.append(asyncio.ensure_future(store.append(append)))
            story.run = append.after
        await asyncio.ensure_future(store.fence(TENANT, story.run.id))
        shown = (await store.load(TENANT, story.run.id)).version
        await asyncio.gather(*writing)
        assert shown == story.run.version == 4

    async def test_what_was_read_is_made_sure_of_by_a_commit_or_needs_none(self, bench: Bench) -> None:
        store = await bench.open()
        commits = bench.commits.count
        sure = await store.confirm()
        assert bench.commits.count == commits + sure
        bench.commits.before = fault
        if sure:
            with pytest.raises(StoreUnavailable):
                await store.confirm()
        else:
            assert not await store.confirm()

    async def test_calls_at_once_are_shared_by_all_workers(self, bench: Bench) -> None:
        here, there = await bench.open(), await bench.open()
        four = Throttle(at_once=4)

        async def ask_for(store: Store, worker: str, slots: int, tenant: str = TENANT) -> int:
            return (await store.share(tenant, Wish(worker, "post", four, slots, 0, 10.0))).slots

        assert await ask_for(here, "w1", 3) == 3
        assert await ask_for(there, "w2", 3) == 1, "no two have the same"
        assert await ask_for(here, "w1", 4) == 3
        assert await ask_for(here, "w1", 0) == 0
        assert await ask_for(there, "w2", 4) == 4, "what was given back is free"
        assert await ask_for(here, "w1", 1) == 0
        assert await ask_for(here, "w1", 1, "another") == 1, "another tenant has its own"
        bench.clock.advance(10.5)
        assert await ask_for(here, "w1", 4) == 4, "what was not asked for again has ended by itself"

    async def test_tokens_are_places_in_time_and_nobody_gets_one_twice(self, bench: Bench) -> None:
        here, there = await bench.open(), await bench.open()
        ten = Throttle(rate=10.0, per=5.0, burst=2)
        began = here.now().mono

        async def take_from(store: Store, worker: str, tokens: int) -> list[float]:
            return (await store.share(TENANT, Wish(worker, "post", ten, 0, tokens, 10.0))).tokens.times()

        first = await take_from(here, "w1", 3)
        second = await take_from(there, "w2", 100)
        both = first + second
        assert len(first) == 3 and both == sorted(both)
        assert all(later - earlier == pytest.approx(0.5) for earlier, later in itertools.pairwise(both))
        assert both[-1] <= there.now().mono + AHEAD_SECONDS, "and none is taken far ahead of its time"
        assert await take_from(here, "w1", 1) == []
        bench.clock.advance(60.0)
        later = await take_from(here, "w1", 3)
        assert [round(at - here.now().mono, 1) for at in later] == [-0.5, 0.0, 0.5], "two at once after a quiet time"
        assert later[0] > began

    async def test_of_runs_that_wait_the_more_urgent_is_claimed_first(self, bench: Bench) -> None:
        store = await bench.open()
        for number, priority in ((1, 0), (2, 5), (3, -1), (4, 5)):
            await store.create(replace(new_run(store, number), priority=priority))
            bench.clock.advance(1.0)
        order = [(await store.claim(TENANT, "w", {"reviewer": "1"}, 30.0, 1))[0].run_id for _ in range(4)]
        assert order == [names(number)[0] for number in (2, 4, 1, 3)]
