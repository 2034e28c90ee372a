"""What every store has to do: the port's docstrings as tests. A store runs them by giving a `bench` fixture."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.evolve import forget_closed, replay
from surefoot.core.payloads import (
    AS_TOLD,
    ActionAnswer,
    ActionView,
    BlobPut,
    ClaimKey,
    EvidenceDetail,
    MessageBody,
    RunResult,
    StepView,
    result_body,
)
from surefoot.core.state import ActionStatus, AttemptEnd, Instant, RunStatus, StepStatus
from surefoot.errors import (
    CommitUnknown,
    Conflict,
    InvalidInput,
    KeyHeld,
    KeyReused,
    LeaseLost,
    NotAllowed,
    NotFound,
    RunEnded,
    StoreUnavailable,
    Unreadable,
)
from surefoot.store.access import Takes
from surefoot.store.packing import LARGE_BYTES_MIN, PACKED_BYTES_MIN
from surefoot.store.port import Claimed, Create, Store
from tests.store.bench import Bench
from tests.store.build import TENANT, Story, names, new_run, noise
from tests.store.conformance_access import Access
from tests.support import eventually

AGENTS = {"reviewer": "1"}


async def claim(store: Store, worker: str = "w", limit: int = 10, lease_s: float = 30.0) -> list[Claimed]:
    return await store.claim(TENANT, worker, AGENTS, lease_s, limit)


def fault() -> None:
    raise OSError("the fault of this test")


class Creating:
    """Store.create and conversations."""

    async def test_a_run_comes_back_as_it_was_made(self, bench: Bench) -> None:
        store = await bench.open()
        create = new_run(store, owner="w", start_key="k", start_hash="h")
        assert await store.create(create) == create.after
        assert await store.load(TENANT, create.after.id) == create.after
        row = await store.run(TENANT, create.after.id)
        assert row.run == create.after
        assert (row.created_by, row.lease_owner, row.last_committed_sequence, row.metadata) == ("ann", "w", 0, b"{}")
        assert await store.conversation(TENANT, create.after.conversation_id) == (0, create.after.id)
        (first,) = await store.events(TENANT, create.after.id, 0, 10)
        assert (first.event, first.at, first.sequence, first.version) == (create.events[0], create.at, 1, 1)

    async def test_the_same_start_key_makes_one_run(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        creates = [new_run(store, n, start_key="k", start_hash="h") for n in range(1, 21)]
        made = await asyncio.gather(*[(store, other)[n % 2].create(create) for n, create in enumerate(creates)])
        assert len({run.id for run in made}) == 1
        assert len(await store.run_ids(TENANT)) == 1

    async def test_a_start_key_with_another_request_is_refused(self, bench: Bench) -> None:
        store = await bench.open()
        await store.create(new_run(store, 1, start_key="k", start_hash="h"))
        with pytest.raises(KeyReused) as caught:
            await store.create(new_run(store, 2, start_key="k", start_hash="other"))
        assert caught.value.details == {"run_id": names(1)[0]}
        await store.create(new_run(store, 2, tenant="another", start_key="k", start_hash="other"))

    async def test_a_conversation_has_one_run_under_way(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, 1)
        conversation = story.run.conversation_id
        with pytest.raises(NotAllowed) as caught:
            await store.create(new_run(store, 2, conversation=conversation))
        assert caught.value.code == "conversation_busy"
        with pytest.raises(NotFound):
            await store.create(new_run(store, 2, conversation="conv_that_is_not"))
        with pytest.raises(Conflict):
            await store.create(new_run(store, 1))
        await story.begin_step()
        await story.end_step()
        await story.complete()
        position, under_way = await store.conversation(TENANT, conversation)
        assert (position, under_way) == (1, None)
        second = await store.create(new_run(store, 2, conversation=conversation, position=position))
        assert await store.conversation(TENANT, conversation) == (1, second.id)

    async def test_a_run_begins_to_work_for_another_under_that_ones_lease(self, bench: Bench) -> None:
        store = await bench.open()
        caller = await Story.begin(store, 1, owner="w")
        await store.release(TENANT, caller.run.id, 1)
        (claimed,) = await claim(store, "other")
        late = new_run(store, 2, parent=caller.run.id, parent_token=1)
        with pytest.raises(LeaseLost):
            await store.create(late)
        assert await store.run_ids(TENANT) == [caller.run.id]
        await store.create(replace(late, parent_token=claimed.token, start_key="k"))
        assert (await store.create(replace(late, start_key="k"))).id == late.after.id, "it is there, whoever asks"
        await store.create(new_run(store, 3, parent=caller.run.id))
        caller.token = None
        await caller.complete()
        with pytest.raises(RunEnded):
            await store.create(new_run(store, 4, parent=caller.run.id, parent_token=claimed.token))

    async def test_two_runs_that_begin_at_once_in_one_conversation(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, 1)
        await story.complete()
        creates = [new_run(store, n, conversation=story.run.conversation_id) for n in (2, 3)]
        answers = await asyncio.gather(*[store.create(create) for create in creates], return_exceptions=True)
        assert [type(answer) for answer in answers].count(NotAllowed) == 1

    async def test_notes_wait_for_the_next_run_which_places_them(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, 1)
        conversation = story.run.conversation_id
        await story.complete()
        for name in ("note_b", "note_a"):
            await story.append(ev.MessageQueued(name, "note"), payloads=[MessageBody(name, b'"late"')])
        waiting = await store.queued(TENANT, conversation)
        assert [(m.id, m.position, m.role) for m in waiting] == [("note_b", None, "note"), ("note_a", None, "note")]
        placed = [ev.MessageAppended(m.id, m.role, n) for n, m in enumerate(waiting)]
        await store.create(new_run(store, 2, conversation=conversation, events=placed))
        assert await store.queued(TENANT, conversation) == []
        assert [(m.id, m.position, m.body) for m in await store.messages(TENANT, conversation)] == [
            ("note_b", 0, b'"late"'),
            ("note_a", 1, b'"late"'),
        ]

    async def test_another_tenants_records_do_not_exist(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.wait_for_person()
        run_id, step_id = story.run.id, story.step_id(1)
        for read in (
            store.load("b", run_id),
            store.run("b", run_id),
            store.step("b", step_id),
            store.action("b", "act_1"),
            store.events("b", run_id, 0, 10),
            store.conversation("b", story.run.conversation_id),
            store.claim_one("b", run_id, "w", 1.0),
        ):
            with pytest.raises(NotFound):
                await read
        assert await store.claim("b", "w", AGENTS, 30.0, 10) == []
        assert await store.runs("b", status=None, agent=None, before=None, limit=10) == []
        assert await store.actions("b") == []
        assert await store.steps("b", run_id) == []
        assert await store.run_ids("b") == []
        assert await store.versions("b", [run_id]) == {}
        assert await store.messages("b", story.run.conversation_id) == []


class Appending:
    """Store.append: guards, joined commits, faults."""

    async def test_a_step_through_its_life(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w")
        await story.begin_step()
        assert await story.reloaded()
        await story.append(
            ev.StepOutcomeUnknown(story.step_id(1), 1, "reset"),
            ev.RunStatusChanged(RunStatus.running, RunStatus.reconciling),
        )
        assert await story.reloaded()
        await story.append(
            ev.LookupAnswered(story.step_id(1), "absent", concluded=True),
            story.started(attempt=2),
            ev.RunStatusChanged(RunStatus.reconciling, RunStatus.running),
        )
        assert await story.reloaded()
        await story.append(story.succeeded(attempt=2), story.result()[0], payloads=[story.result()[1]])
        assert await story.reloaded()
        row = await store.step(TENANT, story.step_id(1))
        assert (row.step.status, row.step.external_resource_id) == (StepStatus.succeeded, "c1")
        assert [(a.end, a.absent) for a in row.step.attempts] == [
            (AttemptEnd.in_doubt, True),
            (AttemptEnd.applied, False),
        ]
        assert (await store.run(TENANT, story.run.id)).last_committed_sequence == 1
        recorded = await store.events(TENANT, story.run.id, 0, 100)
        assert [line.sequence for line in recorded] == list(range(1, story.run.event_sequence + 1))
        assert forget_closed(replay(recorded)) == await store.load(TENANT, story.run.id)
        assert replay(recorded).steps[story.step_id(1)] == row.step
        assert (await store.load(TENANT, story.run.id, story.step_id(1))).steps[story.step_id(1)] == row.step
        with pytest.raises(NotFound):
            await store.load(TENANT, story.run.id, story.step_id(7))

    async def test_an_older_version_is_a_conflict(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        stale = story.next(story.created())
        await story.wait_for_person()
        with pytest.raises(Conflict):
            await store.append(stale)
        assert await story.reloaded()
        assert len(await store.steps(TENANT, story.run.id)) == 1

    async def test_c030_two_appends_at_once_on_one_run_have_one_winner(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        appended, body = story.result()
        both = [story.next(story.succeeded(), appended, payloads=[body]) for _ in range(2)]
        answers = await asyncio.gather(*[store.append(append) for append in both], return_exceptions=True)
        assert answers[0] is None and isinstance(answers[1], Conflict)
        assert len(await store.messages(TENANT, story.run.conversation_id)) == 1

    async def test_a_refused_append_does_not_spoil_its_batch(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n) for n in range(1, 11)]
        appends = [story.next(story.created(), story.started()) for story in stories]
        for story in stories[:3]:
            await story.append(ev.RunCancelled("ann"))
        commits = bench.commits.count
        answers = await asyncio.gather(*[store.append(append) for append in appends], return_exceptions=True)
        assert [type(answer) for answer in answers] == [Conflict] * 3 + [type(None)] * 7
        assert bench.commits.count == commits + 1
        for append in appends[3:]:
            assert await store.load(TENANT, append.after.id) == append.after
        for story in stories[:3]:
            assert await story.reloaded() and await store.steps(TENANT, story.run.id) == []

    async def test_c031_what_the_unique_keys_refuse_is_refused_alone(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n) for n in range(1, 5)]
        same = MessageBody("msg_same", b'"x"')
        queued = ev.MessageQueued("msg_same", "user")
        appends = [stories[0].next(queued, payloads=[same]), stories[1].next(queued, payloads=[same])]
        appends += [story.next(story.created(), story.started()) for story in stories[2:]]
        answers = await asyncio.gather(*[store.append(append) for append in appends], return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None), Conflict, type(None), type(None)]
        assert await store.load(TENANT, stories[1].run.id) == stories[1].run
        assert await store.load(TENANT, stories[3].run.id) == appends[3].after

    async def test_a_value_that_the_store_cannot_take_is_refused_alone(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n) for n in range(1, 4)]
        appends = [story.next(story.created(), story.started()) for story in stories]
        answers = await asyncio.gather(
            store.append(appends[0]),
            store.append(stories[1].next(ev.RunFailed("half \ud83d"))),
            store.append(appends[2]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [type(None), InvalidInput, type(None)]
        assert await store.load(TENANT, stories[1].run.id) == stories[1].run

    async def test_c036_a_lease_has_a_token_for_each_acquisition(self, bench: Bench) -> None:
        store = await bench.open()
        old = await Story.begin(store, owner="worker-1", lease_s=10.0)
        await old.begin_step()
        bench.clock.advance(11.0)
        (claimed,) = await claim(store, "worker-1")
        assert (claimed.run_id, claimed.token) == (old.run.id, 2)
        with pytest.raises(LeaseLost):
            await old.append(old.succeeded())
        assert await store.renew(TENANT, {old.run.id: 1}, 30.0) == {}
        await store.release(TENANT, old.run.id, 1)
        await store.block(TENANT, old.run.id, 1, "unreadable")
        new = Story(store, old.run, claimed.token)
        await new.append(new.succeeded(), needs_lease=True)
        assert (await store.run(TENANT, old.run.id)).blocked_code is None

    async def test_c060_no_intent_after_the_lease_is_over(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w", lease_s=10.0)
        await story.append(story.created())
        intent = story.next(story.started(), needs_lease=True)
        bench.clock.advance(20.0)
        with pytest.raises(LeaseLost):
            await store.append(intent)
        assert (await store.step(TENANT, story.step_id(1))).step.attempts == ()
        assert await store.renew(TENANT, {story.run.id: 1}, 30.0) == {}

    async def test_the_end_of_an_attempt_needs_the_token_only(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w", lease_s=10.0)
        await story.begin_step()
        bench.clock.advance(20.0)
        await story.append(story.succeeded())
        assert await story.reloaded()

    async def test_c035_no_intent_after_a_cancel_that_came_during_the_claim(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        for number in range(1, 31):
            story = await Story.begin(store, number, owner="dead", lease_s=1.0)
            await story.append(story.created())
            bench.clock.advance(2.0)
            person = Story(other, await other.load(TENANT, story.run.id))
            cancel = person.next(ev.RunCancelled("ann"))
            if number % 3 == 0:
                await other.append(cancel)
            taken = await store.claim_one(TENANT, story.run.id, "alive", 30.0)
            assert taken is not None
            if number % 3 == 1:
                await other.append(cancel)
            rescuer = Story(store, story.run, taken.token)
            intent = rescuer.next(rescuer.started(), needs_lease=True)
            waits = [store.append(intent)] if number % 3 < 2 else [other.append(cancel), store.append(intent)]
            answers = await asyncio.gather(*waits, return_exceptions=True)
            if number % 3 == 2 and answers[-1] is None:
                # Both at once, and the intent came first: the cancel is decided again, and lists the call.
                assert isinstance(answers[0], Conflict)
                assert len((await store.step(TENANT, story.step_id(1))).step.attempts) == 1
                continue
            assert answers[0] is None or isinstance(answers[0], Conflict)
            assert isinstance(answers[-1], Conflict)
            assert (await store.step(TENANT, story.step_id(1))).step.attempts == ()

    async def test_nothing_is_sent_for_an_ended_run(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w")
        await story.append(story.created())
        await story.append(ev.RunCancelled("ann"))
        with pytest.raises(RunEnded):
            await story.append(story.started(), needs_lease=True)
        assert (await store.step(TENANT, story.step_id(1))).step.attempts == ()

    async def test_an_approval_that_has_expired_carries_no_intent(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w")
        await story.append(story.created())
        expires = store.now().wall + 60.0
        intent = story.next(story.started(), needs_lease=True, wall_before=expires)
        bench.clock.advance(5.0)
        await store.renew(TENANT, {story.run.id: 1}, 500.0)
        bench.clock.advance(61.0)
        with pytest.raises(NotAllowed) as caught:
            await store.append(intent)
        assert caught.value.code == "approval_expired"
        await story.append(story.started(), needs_lease=True, wall_before=store.now().wall + 60.0)

    async def test_a_run_that_is_not_there(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        append = story.next(story.created())
        await Story.begin(store, 2)
        missing = Story(store, new_run(store, 9).after)
        with pytest.raises(NotFound):
            await missing.append(missing.created())
        await store.append(append)

    async def test_the_lease_ends_with_the_append_that_says_so(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w")
        await story.append(ev.RunCompleted(), release=True, payloads=[RunResult(b'{"text":"done"}')])
        row = await store.run(TENANT, story.run.id)
        assert (row.lease_owner, row.result, row.ready_at) == (None, b'{"text":"done"}', None)
        assert await store.claim_one(TENANT, story.run.id, "other", 1.0) is not None

    async def test_cancelling_the_wait_does_not_cancel_the_commit(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        append = story.next(story.created())
        wait = asyncio.ensure_future(store.append(append))
        queued = asyncio.Event()
        asyncio.get_running_loop().call_soon(queued.set)
        await queued.wait()
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        # Who gave up waiting does not know when it is there: on PostgreSQL the commit may be under way yet.
        async with asyncio.timeout(20):
            while await store.load(TENANT, story.run.id) != append.after:
                await store.changed(store.change_count(), 0.05)

    async def test_a_fault_before_the_commit_writes_nothing(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        bench.commits.before = fault
        with pytest.raises(StoreUnavailable):
            await store.append(story.next(story.created()))
        with pytest.raises(StoreUnavailable):
            await store.create(new_run(store, 2))
        with pytest.raises(StoreUnavailable):
            await claim(store)
        bench.commits.before = None
        assert await story.reloaded()
        assert await store.run_ids(TENANT) == [story.run.id]
        await story.append(story.created())
        assert await story.reloaded()

    async def test_a_lost_answer_of_a_commit_is_unknown_and_written(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        append = story.next(story.created())
        stale = (await Story.begin(store, 2)).next(ev.RunCancelled("ann"))
        await store.append(stale)
        bench.commits.after = fault
        answers = await asyncio.gather(store.append(append), store.append(stale), return_exceptions=True)
        bench.commits.after = None
        assert [type(answer) for answer in answers] == [CommitUnknown, Conflict]
        assert await store.load(TENANT, story.run.id) == append.after

    async def test_a_crash_at_the_commit_reaches_whoever_waits(self, bench: Bench) -> None:
        class Crash(BaseException):
            pass

        def crash() -> None:
            raise Crash

        store = await bench.open()
        story = await Story.begin(store)
        bench.commits.before = crash
        with pytest.raises(Crash):
            await store.append(story.next(story.created()))
        bench.commits.before = None
        assert await story.reloaded()


class Payloads:
    """What rides on an append beside the events."""

    async def test_views_are_kept_apart_and_merged(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        step = story.step_id(1)
        await story.append(story.created(), payloads=[StepView(step, b'{"in":1}')])
        await story.append(story.started(), payloads=[StepView(step, safe_output=b'{"out":1}')])
        row = await store.step(TENANT, step)
        assert (row.safe_input, row.safe_output) == (b'{"in":1}', b'{"out":1}')
        message = MessageBody("msg_q", b'"x"')
        await story.append(ev.MessageQueued("msg_q", "user"), payloads=[message, StepView(step, b'{"in":2}')])
        row = await store.step(TENANT, step)
        assert (row.safe_input, row.safe_output) == (b'{"in":2}', b'{"out":1}')
        with pytest.raises(NotFound):
            await store.step(TENANT, story.step_id(9))

    @pytest.mark.parametrize("size", [PACKED_BYTES_MIN - 1, PACKED_BYTES_MIN, LARGE_BYTES_MIN, 300_000])
    @pytest.mark.parametrize("kind", ["words", "noise"])
    async def test_large_texts_come_back_byte_for_byte(self, bench: Bench, size: int, kind: str) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        step, created = story.step_id(1), story.created()
        text = noise(size) if kind == "noise" else msgspec.json.encode("größer " * (size // 8))
        await story.append(created, story.started(), payloads=[StepView(step, b"[%b]" % text)])
        told = MessageBody("msg_r", result_body(msgspec.Raw(text)))
        result = ev.MessageAppended("msg_r", "tool_result", 0, step, created.call_id)
        await story.append(ev.StepSucceeded(step, 1), result, payloads=[told, StepView(step, safe_output=AS_TOLD)])
        for row in (await store.step(TENANT, step), *await store.steps(TENANT, story.run.id)):
            assert (row.safe_input, row.safe_output) == (b"[%b]" % text, text)
        (message,) = await store.messages(TENANT, story.run.conversation_id)
        assert message.body == told.body
        await story.append(story.created(2), payloads=[StepView(step, text, text)])
        row = await store.step(TENANT, step)
        assert (row.safe_input, row.safe_output) == (text, text)

    async def test_a_question_and_its_answer(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        view = ActionView("act_1", b'{"body":"hello"}', b'{"text":"Post?"}')
        await story.append(
            story.created(),
            story.asked(expires_s=60.0),
            ev.StepWaitingForApproval(story.step_id(1), "act_1"),
            payloads=[view],
        )
        assert await story.reloaded()
        (row,) = await store.actions(TENANT, status="waiting")
        assert (row.tool_name, row.arguments, row.preview) == ("post_comment", view.arguments, view.preview)
        assert (row.decided_at, row.reason, row.answer) == (None, None, None)
        assert await store.action(TENANT, "act_1") == row
        await story.append(
            ev.ActionDecided("act_1", story.step_id(1), ActionStatus.approved, "approve", "ann", "key"),
            ev.StepReleased(story.step_id(1), "act_1"),
            payloads=[ActionAnswer("act_1", "fine", b'{"v":1}')],
        )
        assert await story.reloaded() and story.run.actions["act_1"].decision == "approve"
        row = await store.action(TENANT, "act_1")
        assert (row.reason, row.answer, row.action.decided_by) == ("fine", b'{"v":1}', "ann")
        assert row.decided_at is not None and row.arguments == view.arguments
        assert await store.actions(TENANT, status="waiting") == []
        assert await store.actions(TENANT, run_id=story.run.id) == [row]
        assert await store.actions(TENANT, run_id=story.run.id, status="rejected") == []
        assert await store.actions(TENANT, status="approved", limit=5) == [row]
        with pytest.raises(NotFound):
            await store.action(TENANT, "act_2")

    async def test_a_closed_step_comes_with_its_actions(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.wait_for_person()
        step = story.step_id(1)
        decided = ev.ActionDecided("act_1", step, ActionStatus.rejected, "reject", "ann")
        await story.append(decided, ev.StepFailed(step, "rejected"))
        assert (await store.load(TENANT, story.run.id)).actions == {}
        loaded = await store.load(TENANT, story.run.id, step)
        assert loaded.actions["act_1"].status is ActionStatus.rejected
        assert loaded.steps[step].status is StepStatus.failed

    async def test_several_runs_are_read_at_once(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, number) for number in range(1, 5)]
        await stories[0].wait_for_person()
        await stories[1].begin_step()
        await stories[2].begin_step()
        await stories[2].end_step()
        ids = [story.run.id for story in stories]
        found = await store.load_all(TENANT, [ids[2], "run_missing", ids[0], ids[1]])
        assert found == [await store.load(TENANT, run_id) for run_id in ids[:3]]
        assert [len(run.actions) for run in found] == [1, 0, 0] and found[1].steps[stories[1].step_id(1)].attempts
        assert not found.unreadable
        assert await store.load_all("another", ids) == await store.load_all(TENANT, []) == []

    async def test_blobs_are_found_by_their_content(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        data = b"\x00\xffbytes"
        ref = hashlib.sha256(data).hexdigest()
        await story.append(story.created(), payloads=[BlobPut(ref, data), BlobPut(ref, data)])
        await story.append(story.started(), payloads=[BlobPut(ref, data, "output")])
        assert await store.blob(TENANT, ref) == data
        for tenant, name in ((TENANT, "0" * 64), ("b", ref)):
            with pytest.raises(Unreadable):
                await store.blob(tenant, name)

    async def test_a_run_is_shown_with_closed_steps_about_which_a_person_is_asked(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        step = story.step_id(1)
        receipt = ev.StepSucceeded(step, attempt=1, external_resource_id="c1")
        await story.append(receipt, story.asked(), payloads=[ActionView("act_1", b"{}", b"{}")])
        assert await story.reloaded()
        shown = await store.shown(TENANT, story.run.id)
        assert shown.row.run.steps[step] == shown.steps[0].step and shown.steps[0].step.attempts[0].number == 1
        assert [one.action.id for one in shown.actions] == ["act_1"]
        await story.append(ev.ActionDecided("act_1", step, ActionStatus.rejected, "reject", "ann"))
        assert await story.reloaded()
        assert [row.step.attempts for row in (await store.shown(TENANT, story.run.id)).steps] == [()]
        with pytest.raises(NotFound):
            await store.shown("another", story.run.id)

    async def test_evidence_in_the_order_of_its_arrival(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        step = story.step_id(1)
        details = [
            EvidenceDetail(step, 1, "undetermined", "lookup", "http_403", None, None, b'{"pages":0}'),
            EvidenceDetail(step, None, "found", "webhook", None, "c1", "https://x/c1", b"{}"),
        ]
        for detail in details:
            event = ev.EvidenceRecorded(step, detail.source, detail.verdict, detail.attempt, detail.resource_id)
            await story.append(event, payloads=[detail])
            assert await story.reloaded()
        rows = await store.evidence(TENANT, story.run.id)
        assert [(r.verdict, r.source, r.reason, r.resource_id, r.detail) for r in rows] == [
            ("undetermined", "lookup", "http_403", None, b'{"pages":0}'),
            ("found", "webhook", None, "c1", b"{}"),
        ]

    async def test_a_business_key_has_one_holder_that_has_not_failed(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n) for n in range(1, 4)]
        key = "send_invoice:81"

        def taking(story: Story) -> list[ClaimKey]:
            return [ClaimKey(key, story.step_id(1), "hash")]

        appends = [story.next(story.created(key=key), payloads=taking(story)) for story in stories]
        answers = await asyncio.gather(*[store.append(append) for append in appends], return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None), KeyHeld, KeyHeld]
        assert await store.steps(TENANT, stories[1].run.id) == []
        holder = await store.key_owner(TENANT, key)
        assert holder is not None and holder.step_id == stories[0].step_id(1)
        by_key = await store.step_by_key(TENANT, key)
        assert by_key is not None and by_key.step.id == stories[0].step_id(1)
        stories[0].run = appends[0].after
        await stories[0].append(ev.StepFailed(stories[0].step_id(1), "refused"))
        await store.append(appends[1])
        holder = await store.key_owner(TENANT, key)
        assert holder is not None and holder.run_id == stories[1].run.id
        assert await store.key_owner("b", key) is None
        with pytest.raises(KeyHeld):
            await store.create(new_run(store, 9, payloads=[ClaimKey(key, "step_x", "hash")]))
        assert names(9)[0] not in await store.run_ids(TENANT)

    async def test_a_step_is_found_by_its_own_key(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        found = await store.step_by_key(TENANT, f"{story.run.id}:{story.step_id(1)}")
        assert found is not None and found.step == story.run.steps[story.step_id(1)]
        assert await store.step_by_key(TENANT, f"other:{story.step_id(1)}") is None
        assert await store.step_by_key(TENANT, "nothing") is None

    async def test_the_same_action_again(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        conversation = story.run.conversation_id
        await story.append(story.created(identity="i"))
        assert await store.same_action(TENANT, conversation, "i") is None
        await story.append(story.started())
        found = await store.same_action(TENANT, conversation, "i")
        assert found is not None and found.step.status is StepStatus.running
        await story.end_step()
        found = await store.same_action(TENANT, conversation, "i")
        assert found is not None and found.step.status is StepStatus.succeeded
        assert await store.same_action(TENANT, conversation, "other") is None
        assert await store.same_action(TENANT, "conv_other", "i") is None

    async def test_the_calls_of_a_conversation_that_change_something(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        conversation = story.run.conversation_id
        assert await store.acted(TENANT, conversation) == []
        await story.append(story.created(identity="i"), story.started())
        await story.append(story.created(2))
        (found,) = await store.acted(TENANT, conversation)
        assert found == await store.step(TENANT, story.step_id(1)) and len(found.step.attempts) == 1
        assert await store.acted(TENANT, "conv_other") == [] == await store.acted("other", conversation)

    async def test_the_run_of_a_start_key(self, bench: Bench) -> None:
        store = await bench.open()
        run = await store.create(new_run(store, start_key="k"))
        assert await store.run_of_key(TENANT, "k") == run.id
        assert await store.run_of_key(TENANT, "other") is None and await store.run_of_key("other", "k") is None

    async def test_the_sums_of_a_run_and_the_purpose_of_a_step(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        ended = ev.StepSucceeded(
            story.step_id(1), attempt=1, is_result=True, input_tokens=7, output_tokens=2, cost_microdollars=5,
            purpose="compact",
        )  # fmt: skip
        await story.append(ended)
        run = await store.load(TENANT, story.run.id)
        assert (run.input_tokens, run.output_tokens, run.cost_microdollars) == (7, 2, 5)
        assert run.result_step_id == story.step_id(1) and await story.reloaded()
        assert (await store.step(TENANT, story.step_id(1))).step.purpose == "compact"

    async def test_messages_wait_for_their_place(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        conversation = story.run.conversation_id
        await story.begin_step()
        await story.append(ev.MessageQueued("msg_q", "user"), payloads=[MessageBody("msg_q", b'"shorter"')])
        assert "msg_q" in story.run.queued and await story.reloaded()
        await story.end_step()
        await story.append(ev.MessageAppended("msg_q", "user", story.run.next_position))
        assert "msg_q" not in story.run.queued and await story.reloaded()
        rows = await store.messages(TENANT, conversation)
        assert [(m.position, m.role, m.call_id) for m in rows] == [
            (0, "tool_result", f"call_{story.number}_1"),
            (1, "user", None),
        ]
        assert await store.messages(TENANT, conversation, 0) == rows[1:]
        with pytest.raises(Conflict):
            await story.append(ev.MessageAppended("msg_that_is_not", "user", story.run.next_position))
        assert await story.reloaded()

    async def test_a_body_without_its_event_is_refused(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        with pytest.raises(InvalidInput):
            await story.append(story.created(), payloads=[MessageBody("msg_q", b'"x"')])
        with pytest.raises(InvalidInput):
            await story.append(ev.MessageQueued("msg_q", "user"))
        with pytest.raises(InvalidInput):
            await story.append(story.created(), payloads=[StepView(story.step_id(1), b"\xff")])
        assert await story.reloaded()


class Leasing:
    """Claims, renewals, releases."""

    async def test_r20_a_hundred_claimers_have_one_owner(self, bench: Bench) -> None:
        stores = [await bench.open() for _ in range(4)]
        for number in range(1, 6):
            run = await stores[0].create(new_run(stores[0], number))
            answers = await asyncio.gather(
                *[claim(stores[n % 4], f"w{n}") for n in range(50)],
                *[stores[n % 4].claim_one(TENANT, run.id, f"w{n}", 30.0) for n in range(50, 100)],
            )
            owners = [one for answer in answers for one in (answer if isinstance(answer, list) else [answer]) if one]
            assert [(one.run_id, one.token) for one in owners] == [(run.id, 1)]

    async def test_a_claim_takes_what_is_ready_and_known(self, bench: Bench) -> None:
        store = await bench.open()
        ready = await store.create(new_run(store, 1))
        await store.create(new_run(store, 2, agent="unknown"))
        await store.create(new_run(store, 3, version="2"))
        perform = await store.create(new_run(store, 4, agent="charge", kind="perform"))
        await (await Story.begin(store, 5)).wait_for_person()
        await (await Story.begin(store, 6)).complete()
        await Story.begin(store, 7, owner="other")
        await store.create(new_run(store, 8, agent="refund", kind="perform"))
        # An agent of a tool's name is no tool, and a tool of an agent's name no agent.
        assert await store.claim(TENANT, "w", {"charge": "1", "perform:reviewer": ""}, 30.0, 10) == []
        assert await store.next_wake(TENANT, {"perform:reviewer": ""}) == (None, None)
        claimed = await store.claim(TENANT, "w", {**AGENTS, "perform:charge": ""}, 30.0, 10)
        assert {one.run_id for one in claimed} == {ready.id, perform.id}
        assert all(one.token == 1 and not one.owner_died for one in claimed)
        assert all(abs(one.lease_until - store.now().mono - 30.0) < 5.0 for one in claimed)
        assert await claim(store) == []

    async def test_a_claim_has_a_limit_and_an_order(self, bench: Bench) -> None:
        store = await bench.open()
        for number in range(1, 6):
            story = await Story.begin(store, number)
            await story.append(story.created())
            await story.append(ev.StepDeferred(story.step_id(1), 60.0 - 10.0 * number))
        assert await claim(store) == []
        bench.clock.advance(35.0)
        assert [one.run_id for one in await claim(store, limit=2)] == [names(5)[0], names(4)[0]]
        assert [one.run_id for one in await claim(store, limit=9)] == [names(3)[0]]

    async def test_a_question_that_expires_makes_its_run_claimable(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.wait_for_person(expires_s=60.0)
        mono, wall = await store.next_wake(TENANT)
        assert mono is None and wall == story.run.actions["act_1"].expires_wall
        assert await claim(store) == []
        bench.clock.advance(61.0)
        assert [one.run_id for one in await claim(store)] == [story.run.id]

    async def test_an_ended_run_with_a_look_to_make_is_claimable(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        await story.end_step(1, ev.SweepScheduled(story.step_id(1), 0, 60.0), ev.RunCompleted())
        assert await story.reloaded() and story.run.steps
        assert await claim(store) == []
        bench.clock.advance(61.0)
        assert len(await claim(store)) == 1

    async def test_claim_one_takes_a_run_that_is_not_ready(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.wait_for_person()
        taken = await store.claim_one(TENANT, story.run.id, "w", 30.0)
        assert taken is not None and taken.token == 1
        assert await store.claim_one(TENANT, story.run.id, "w", 30.0) is None
        assert await store.claim_one(TENANT, story.run.id, "other", 30.0) is None
        await store.release(TENANT, story.run.id, 1)
        again = await store.claim_one(TENANT, story.run.id, "other", 30.0)
        assert again is not None and again.token == 2
        with pytest.raises(NotFound):
            await store.claim_one(TENANT, "run_that_is_not", "w", 30.0)

    async def test_the_leases_of_a_worker_are_listed_with_their_tokens(self, bench: Bench) -> None:
        store = await bench.open()
        assert await store.leases(TENANT, "w") == {}
        stories = [
            await Story.begin(store, n, owner=owner, lease_s=10.0) for n, owner in ((1, "w"), (2, "w"), (3, "v"))
        ]
        ids = [story.run.id for story in stories]
        await store.release(TENANT, ids[1], 1)
        assert await store.claim_one(TENANT, ids[1], "w", 10.0) is not None
        assert await store.leases(TENANT, "w") == {ids[0]: 1, ids[1]: 2}
        assert (await store.leases(TENANT, "v"), await store.leases("another", "w")) == ({ids[2]: 1}, {})

    async def test_renewals_lengthen_what_is_still_ours(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n, owner="w", lease_s=10.0) for n in range(1, 4)]
        await store.release(TENANT, stories[2].run.id, 1)
        bench.clock.advance(6.0)
        ids = [story.run.id for story in stories]
        ends = await store.renew(TENANT, {ids[0]: 1, ids[1]: 7, ids[2]: 1, "run_that_is_not": 1}, 10.0)
        assert set(ends) == {ids[0]} and abs(ends[ids[0]] - store.now().mono - 10.0) < 5.0
        bench.clock.advance(6.0)
        assert {one.run_id for one in await claim(store, "other")} == {ids[1], ids[2]}
        assert await store.renew(TENANT, {}, 10.0) == {}

    async def test_who_asks_for_one_run_knows_its_tool_though_others_did_not(self, bench: Bench) -> None:
        store = await bench.open()
        run = await store.create(new_run(store))
        (claimed,) = await claim(store)
        await store.block(TENANT, run.id, claimed.token, "unknown_tool")
        assert await claim(store) == []
        assert await store.claim_one(TENANT, run.id, "w", 30.0) is not None
        assert (await store.run(TENANT, run.id)).blocked_code is None

    async def test_who_reads_what_others_could_not_asks_for_it_so(self, bench: Bench) -> None:
        store = await bench.open()
        run = await store.create(new_run(store))
        await store.block(TENANT, run.id, None, "unreadable")
        assert await store.claim_one(TENANT, run.id, "w", 30.0) is None
        assert await store.claim_one(TENANT, run.id, "w", 30.0, "drive_failed") is None
        assert await store.claim_one(TENANT, run.id, "w", 30.0, "unreadable") is not None
        assert (await store.run(TENANT, run.id)).blocked_code is None

    async def test_blocked_runs_are_listed_by_reason_and_id(self, bench: Bench) -> None:
        store = await bench.open()
        runs = sorted([(await store.create(new_run(store, number))).id for number in (1, 2, 3)])
        for run_id, code in zip(runs, ("unknown_tool", "unreadable", "unknown_tool"), strict=True):
            await store.block(TENANT, run_id, None, code)
        assert await store.blocked_runs(TENANT, "unknown_tool", "", 10) == [runs[0], runs[2]]
        assert await store.blocked_runs(TENANT, "unknown_tool", "", 1) == [runs[0]]
        assert await store.blocked_runs(TENANT, "unknown_tool", runs[0], 10) == [runs[2]]
        assert await store.blocked_runs("another", "unknown_tool", "", 10) == []

    async def test_a_blocked_run_is_not_claimed(self, bench: Bench) -> None:
        store = await bench.open()
        run = await store.create(new_run(store))
        (claimed,) = await claim(store)
        await store.block(TENANT, run.id, claimed.token, "drive_failed")
        row = await store.run(TENANT, run.id)
        assert (row.blocked_code, row.lease_owner) == ("drive_failed", None)
        assert await claim(store) == []
        assert await store.claim_one(TENANT, run.id, "w", 30.0) is None
        assert await store.next_wake(TENANT) == (None, None)
        await store.unblock("b")
        assert await claim(store) == []
        await store.unblock(TENANT)
        assert len(await claim(store)) == 1
        await store.block(TENANT, run.id, None, "unreadable")
        assert (await store.run(TENANT, run.id)).blocked_code == "unreadable"

    async def test_the_next_wake_counts_what_could_be_claimed(self, bench: Bench) -> None:
        store = await bench.open()
        assert await store.next_wake(TENANT) == (None, None)
        story = await Story.begin(store, 1)
        await story.append(story.created())
        await story.append(ev.StepDeferred(story.step_id(1), 50.0))
        due = story.run.steps[story.step_id(1)].not_before
        assert await store.next_wake(TENANT) == (due, None)
        assert await store.next_wake(TENANT, {"unknown": "1"}) == (None, None)
        assert await store.next_wake(TENANT, AGENTS) == (due, None)
        await Story.begin(store, 2, owner="w", lease_s=10.0)
        mono, _ = await store.next_wake(TENANT)
        assert mono is not None and abs(mono - store.now().mono - 10.0) < 5.0
        bench.clock.advance(11.0)
        mono, _ = await store.next_wake(TENANT)
        assert mono is not None and mono <= store.now().mono

    async def test_a_registered_worker_claims_as_itself(self, bench: Bench) -> None:
        store = await bench.open()
        await store.register_worker("worker/ä 1")
        await store.register_worker("worker/ä 1")
        run = await store.create(new_run(store))
        assert len(await claim(store, "worker/ä 1")) == 1
        assert (await store.run(TENANT, run.id)).lease_owner == "worker/ä 1"

    async def test_what_living_workers_take_is_known_to_others(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        mine, theirs = Takes(TENANT, {"clerk": "1", "perform:ä": ""}), Takes(TENANT, {"clerk": "2"})
        await store.register_worker("w1", mine)
        await store.register_worker("starter")
        await other.register_worker("w2", theirs)
        for one, name, takes in ((store, "w1", mine), (store, "starter", None), (other, "w2", theirs)):
            await one.claim(TENANT, name, takes.agents if takes else {}, 30.0, 1)
        for one in (store, other):
            assert sorted([takes.agents["clerk"] for takes in await one.workers_take(TENANT)]) == ["1", "2"]
            assert await one.workers_take("b") == []
        assert mine in await other.workers_take(TENANT)
        other.abandon()  # type: ignore[attr-defined]  # both stores have it, for simulations
        assert await store.workers_take(TENANT) == [mine]
        await store.close()
        assert await (await bench.open()).workers_take(TENANT) == []


class Watching:
    """Waiting for commits, listing, upkeep."""

    async def test_own_commits_wake_at_once(self, bench: Bench) -> None:
        store = await bench.open()
        seen = store.change_count()
        wait = asyncio.ensure_future(store.changed(seen, 60.0))
        story = await Story.begin(store)
        assert await wait > seen
        foreign = store.foreign_count()
        await story.complete()
        assert store.foreign_count() == foreign
        assert await store.changed(seen, 60.0) > seen
        assert await store.changed(store.change_count(), 0.01) == store.change_count()
        assert await store.foreign_changed(foreign, 0.01) == foreign

    async def test_commits_of_others_are_noticed(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        await store.foreign_changed(store.foreign_count(), 0.0)
        seen, foreign = store.change_count(), store.foreign_count()
        waits = [
            asyncio.ensure_future(store.changed(seen, 60.0)),
            asyncio.ensure_future(store.foreign_changed(foreign, 60.0)),
        ]
        await Story.begin(other)
        began = bench.clock.now().mono
        assert await waits[0] > seen and await waits[1] > foreign
        assert bench.clock.now().mono - began < 5.0
        run_id = names(1)[0]
        assert await store.versions(TENANT, [run_id, "run_that_is_not"]) == {run_id: 1}

    async def test_runs_are_listed_newest_first(self, bench: Bench) -> None:
        store = await bench.open()
        for number in range(1, 6):
            story = await Story.begin(store, number)
            if number % 2:
                await story.complete()
        everything = await store.runs(TENANT, status=None, agent=None, before=None, limit=10)
        assert [row.run.id for row in everything] == [names(n)[0] for n in (5, 4, 3, 2, 1)]
        assert [row.run.id for row in everything] == list(reversed(await store.run_ids(TENANT)))
        page = await store.runs(TENANT, status="completed", agent="reviewer", before=names(5)[0], limit=1)
        assert [row.run.id for row in page] == [names(3)[0]]
        assert await store.runs(TENANT, status=None, agent="other", before=None, limit=10) == []
        going_on = await store.runs(TENANT, status="running", agent=None, before=None, limit=10)
        assert [row.run.id for row in going_on] == [names(n)[0] for n in (4, 2)]
        page = await store.runs(TENANT, status="running", agent="reviewer", before=names(4)[0], limit=1)
        assert [row.run.id for row in page] == [names(2)[0]]
        for status, agent, before in (
            ("running", "other", None),
            ("running", None, names(2)[0]),
            ("waiting_for_user", None, None),
        ):
            assert await store.runs(TENANT, status=status, agent=agent, before=before, limit=10) == []

    async def test_events_come_in_pages(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        await story.begin_step()
        await story.end_step()
        pages = [await store.events(TENANT, story.run.id, after, 2) for after in (0, 2, 4, 6)]
        assert [[line.sequence for line in page] for page in pages] == [[1, 2], [3, 4], [5], []]
        singles = [(await store.events(TENANT, story.run.id, after, 1))[0] for after in range(5)]
        assert singles == await store.events(TENANT, story.run.id, 0, 10)
        with pytest.raises(NotFound):
            await store.events(TENANT, "run_that_is_not", 0, 10)
        for read in (store.load(TENANT, "run_x"), store.run(TENANT, "run_x"), store.conversation(TENANT, "conv_x")):
            with pytest.raises(NotFound):
                await read

    async def test_a_sound_store_has_no_findings(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store, owner="w")
        await story.begin_step()
        assert await store.integrity() == []

    async def test_prune_removes_whole_runs_that_nothing_needs(self, bench: Bench) -> None:
        store = await bench.open()
        data = b"request"
        ref = hashlib.sha256(data).hexdigest()
        old = await Story.begin(store, 1)
        await old.append(
            old.created(key="k"), old.started(), payloads=[BlobPut(ref, data), ClaimKey("k", old.step_id(1), "h")]
        )
        await old.end_step()
        await old.complete()
        asked = await Story.begin(store, 2)
        await asked.wait_for_person()
        await asked.append(ev.RunCancelled("ann"))
        looked = await Story.begin(store, 3)
        await looked.begin_step()
        await looked.end_step(1, ev.SweepScheduled(looked.step_id(1), 0, 60.0), ev.RunCompleted())
        bench.clock.advance(1_000.0)
        young = await Story.begin(store, 4)
        await young.complete()
        before = store.now().wall - 500.0
        counts = await store.prune(TENANT, before, blobs_before=before)
        assert (counts["runs"], counts["steps"], counts["messages"]) == (1, 1, 1)
        assert (counts["blobs"], counts["operation_keys"], counts["conversations"]) == (1, 1, 1)
        assert counts["events"] == old.run.event_sequence
        assert await store.run_ids(TENANT) == [names(n)[0] for n in (2, 3, 4)]
        assert await store.key_owner(TENANT, "k") is None
        with pytest.raises(Unreadable):
            await store.blob(TENANT, ref)
        assert await store.integrity() == []
        assert (await store.prune("b", before, blobs_before=before))["runs"] == 0

    async def test_prune_keeps_the_requests_of_open_steps(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        refs = {}
        for sequence, data in ((1, b"ended"), (2, b"open")):
            refs[sequence] = hashlib.sha256(data).hexdigest()
            created = story.created(sequence)
            event = ev.StepCreated(
                **{f: getattr(created, f) for f in created.__struct_fields__} | {"input_ref": refs[sequence]}
            )
            await story.append(event, story.started(sequence), payloads=[BlobPut(refs[sequence], data)])
        await story.end_step(1)
        bench.clock.advance(1_000.0)
        before = store.now().wall - 500.0
        counts = await store.prune(TENANT, before, blobs_before=before)
        assert (counts["runs"], counts["blobs"]) == (0, 1)
        assert await store.blob(TENANT, refs[2]) == b"open"
        with pytest.raises(Unreadable):
            await store.blob(TENANT, refs[1])

    async def test_closing_finishes_what_is_queued(self, bench: Bench) -> None:
        store = await bench.open()
        stories = [await Story.begin(store, n) for n in range(1, 4)]
        appends = [story.next(story.created()) for story in stories]
        waits = [asyncio.ensure_future(store.append(append)) for append in appends]
        started = asyncio.Event()
        asyncio.get_running_loop().call_soon(started.set)
        await started.wait()
        await store.close()
        await store.close()
        await asyncio.gather(*waits)
        with pytest.raises(StoreUnavailable):
            await store.load(TENANT, stories[0].run.id)
        with pytest.raises(StoreUnavailable):
            await store.append(appends[0])
        with pytest.raises(StoreUnavailable):
            await claim(store)
        other = await bench.open()
        for append in appends:
            assert await other.load(TENANT, append.after.id) == append.after

    async def test_times_are_those_of_the_append(self, bench: Bench) -> None:
        store = await bench.open()
        story = await Story.begin(store)
        at = Instant(store.now().mono - 3.25, store.now().wall - 3.25)
        await store.append(story.next(story.created(), at=at))
        row = await store.step(TENANT, story.step_id(1))
        assert (row.created_at, row.updated_at, row.conversation_id) == (at.wall, at.wall, story.run.conversation_id)
        assert (await store.run(TENANT, story.run.id)).updated_at == at.wall
        assert (await store.events(TENANT, story.run.id, 1, 1))[0].at == at

    async def test_many_runs_begin_at_once(self, bench: Bench) -> None:
        store = await bench.open()
        commits = bench.commits.count
        creates: list[Create] = [new_run(store, n, owner="w") for n in range(1, 601)]
        await asyncio.gather(*[store.create(create) for create in creates])
        assert len(await store.run_ids(TENANT)) == 600
        assert bench.commits.count - commits <= 3, "at most 512 in one commit"

    async def test_awaited_conditions_are_polled_by_others_too(self, bench: Bench) -> None:
        store, other = await bench.open(), await bench.open()
        story = await Story.begin(store)
        counts = [other.change_count()]

        async def follow() -> None:
            while (await other.run(TENANT, story.run.id)).run.status is not RunStatus.completed:
                counts.append(await other.changed(counts[-1], 30.0))

        following = asyncio.ensure_future(follow())
        await story.begin_step()
        await eventually(lambda: len(counts) > 1, "the first commit of the other store")
        await story.end_step()
        await story.complete()
        await asyncio.wait_for(following, 20.0)


class StoreConformance(Creating, Appending, Payloads, Leasing, Watching, Access):
    """All of it."""
