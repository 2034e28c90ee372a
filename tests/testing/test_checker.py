"""The checker finds each broken invariant in a hand-made history, and nothing in one that is sound."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from surefoot.core import events as ev
from surefoot.core.attempts import Outcome
from surefoot.core.canonical import canonical, digest
from surefoot.core.decide import ProposedCall, cancel_run
from surefoot.core.evolve import Recorded, begin, evolve, forget_closed
from surefoot.core.marker import append_marker
from surefoot.core.payloads import Ask, BlobPut, MessageBody
from surefoot.core.reconcile import Look, ask_what_happened, believe_person
from surefoot.core.state import ActionKind, Resolution, Run, StepStatus
from surefoot.http import system_doors
from surefoot.store.open import open_store
from surefoot.store.port import ActionRow, Append, Create, MessageRow, RunRow, StepRow, Store
from surefoot.testing.checker import Commit, Lived, Reading, Violation, check, judge, key_of_request, stamp_commits
from surefoot.testing.wire import Applied, LogEntry, Received, Replied
from tests.core.play import ABSENT, RULES, WALL, Play

PATH = "/repos/acme/app/issues/128/comments"
BODY = "Looks good."
DATA = canonical({"repo": "acme/app", "issue_number": 128, "body": BODY})
BOT = "surefoot-bot"


def proposal(play: Play, tool: str = "comment", *, gated: bool = True) -> ProposedCall:
    return ProposedCall(
        tool_name=tool,
        tool_version="1",
        rules=RULES[tool],
        input_ref=digest(DATA),
        input_hash=digest(canonical([digest(DATA), tool, "1", "acme/app#128", "GITHUB_TOKEN"])),
        data=DATA,
        safe_input=DATA,
        target="acme/app#128",
        credential="GITHUB_TOKEN",
        gate=Ask(f"act_{play.asked + 100}", DATA, b"{}", expires_s=86_400.0) if gated else None,
    )


class Stage:
    """A run and the World's log beside it, on one clock."""

    def __init__(self, tool: str = "comment", *, gated: bool = True) -> None:
        self.play = Play()
        self.log: list[LogEntry] = []
        (self.step,) = self.play.calls(proposal(self.play, tool, gated=gated))
        if gated:
            self.play.decide("act_100", "approve")
        self.play.begin(self.step)

    # The World

    def send(self, *, body: str = BODY, applied: str | None = "7", account: str = BOT, key: str | None = None) -> int:
        """A request, and what it made."""
        number, at = len(self.log) + 1, self.play.at.wall
        marker = f"<!-- agent-operation:{key or self.key} k=3f9a01c2 mac={'0' * 32} -->"
        text = json.dumps({"body": append_marker(body, marker)})
        self.log.append(Received(number, at, number, "POST", PATH, {}, account, {}, text, ""))
        if applied is not None:
            self.log.append(
                Applied(len(self.log) + 1, at, number, "comment_created", int(applied), "acme/app#128", account, text)
            )
        return number

    def listed(self, *ids: int, path: str = PATH) -> None:
        number, at = len(self.log) + 1, self.play.at.wall
        self.log.append(Received(number, at, number, "GET", path, {}, BOT, {}, "", ""))
        self.log.append(Replied(number + 1, at, number, 200, "reply", listed=ids))

    # The run

    @property
    def key(self) -> str:
        return self.play.step(self.step).operation_key

    def receipt(self, resource: str = "7") -> Stage:
        look = Look("found", source="worker", resource_id=resource, url=f"https://x/{resource}", body=b"{}")
        self.play.end(self.step, Outcome("applied", look=look))
        return self

    def lose(self) -> Stage:
        self.play.end(self.step, Outcome("in_doubt", "reset"))
        return self

    def absent(self, *, look: bool = True) -> Stage:
        self.play.wait(60.0)
        if look:
            self.listed()
        assert self.play.look(self.step, ABSENT)
        return self

    # What the checker sees

    def lived(self) -> Lived:
        play = self.play
        row = RunRow(play.full, "ann", None, b"{}", None, WALL, WALL, None, 0, None)
        messages = [
            MessageRow(m.message_id, "conv_1", "run_1", m.step_id, m.call_id, m.position, m.role, b"{}", WALL)
            for m in play.events(ev.MessageAppended)
        ]
        return Lived(
            row=row,
            steps=[StepRow(s, "run_1", "conv_1", None, None, WALL, WALL) for s in play.full.steps.values()],
            actions=[
                ActionRow(a, "run_1", None, b"{}", b"{}", None, None, WALL, WALL, None)
                for a in play.full.actions.values()
            ],
            events=play.recorded,
            messages=messages,
            requests={digest(DATA): DATA},
        )

    def judge(self, lived: Lived | None = None, reading: Reading | None = None) -> list[Violation]:
        return judge(self.log, [lived or self.lived()], reading=reading or Reading(gated=("comment",)))


def names(found: Sequence[Violation]) -> list[str]:
    return sorted({violation.invariant for violation in found})


def sound() -> Stage:
    stage = Stage()
    stage.send()
    return stage.receipt()


def with_step(lived: Lived, **changes: object) -> Lived:
    """The same with other values on the step that acted."""
    steps = [
        replace(r, step=replace(r.step, **changes)) if r.step.attempts and r.step.call_id else r for r in lived.steps
    ]
    return replace(lived, steps=steps)


def test_nothing_is_found_in_sound_histories() -> None:
    assert sound().judge() == []
    absent = Stage()
    absent.send(applied=None)
    absent.lose().absent().send()
    assert absent.receipt().judge() == []
    found = Stage()
    found.send()
    found.lose()
    found.play.look(found.step, Look("found", resource_id="7", url="https://x/7", body=b"{}"))
    assert found.judge() == []
    refused = Stage()
    refused.send(applied=None)
    refused.play.end(refused.step, Outcome("refused", "http_429", again_s=0.0))
    refused.play.wait(0.1)
    refused.play.begin(refused.step)
    refused.send()
    assert refused.receipt().judge() == []


# I1


def test_i1_two_effects_that_nobody_reported() -> None:
    stage = Stage()
    stage.send(applied="7")
    stage.lose().absent().send(applied="8")
    stage.receipt("8")
    assert "I1" in names(stage.judge())
    assert "I1" not in names(stage.judge(reading=Reading(sweeps_are_over=False)))
    stage.play.wait(60.0)
    stage.play.look(stage.step, Look("found", resource_id="8", url="https://x/8", also=(("7", "https://x/7"),)))
    assert "I1" not in names(stage.judge())


def test_i1_a_report_that_does_not_name_them_all() -> None:
    stage = Stage()
    stage.send(applied="7")
    stage.send(applied="8")
    stage.receipt("7")
    stage.play.wait(60.0)
    stage.play.do(lambda d: d.emit(ev.DuplicateDetected(stage.step, ("7", "9"))), step_id=stage.step)
    assert "I1" in names(stage.judge())


def test_i1_success_without_an_effect_or_with_another_id() -> None:
    stage = Stage()
    stage.send(applied=None)
    assert names(stage.receipt().judge()) == ["I1"]
    assert stage.judge(reading=Reading(unseen=("comment",))) == []
    other = Stage()
    other.send(applied="7")
    assert names(other.receipt("9").judge()) == ["I1"]


def test_i1_a_failure_with_an_effect_that_nobody_noticed() -> None:
    stage = Stage()
    stage.send(applied="7")
    stage.play.end(stage.step, Outcome("refused", "http_403"))
    assert names(stage.judge()) == ["I1"]


# I2


def test_i2_a_send_before_its_intent_was_durable() -> None:
    stage = sound()
    early = [replace(e, at=e.at - 5.0) for e in stage.log]
    assert names(judge(early, [stage.lived()])) == ["I2"]
    assert judge(early, [stage.lived()], reading=Reading(clock_slack_s=6.0)) == []


def test_i2_the_order_of_commits_counts_where_it_is_known() -> None:
    stage = sound()
    intent = next(
        r.sequence for r in stage.play.recorded if isinstance(r.event, ev.StepStarted) and r.event.step_id == stage.step
    )
    in_time = [Commit(0, "run_1", intent), Commit(2, "run_1", 99)]
    too_late = [Commit(0, "run_1", intent - 1), Commit(1, "run_1", intent)]
    assert judge(stage.log, [stage.lived()], commits=in_time) == []
    assert names(judge(stage.log, [stage.lived()], commits=too_late)) == ["I2"]


def test_i2_more_sends_than_intents() -> None:
    stage = Stage()
    stage.send(applied="7")
    stage.send(applied=None)
    assert "I2" in names(stage.receipt().judge())


def test_i2_a_send_of_nobody() -> None:
    stage = sound()
    stage.send(key="run_9:step_9", applied=None)
    assert names(stage.judge()) == ["I2"]
    bare = sound()
    number = len(bare.log) + 1
    bare.log.append(Received(number, WALL + 99.0, number, "POST", PATH, {}, BOT, {}, '{"body":"hi"}', ""))
    assert names(bare.judge()) == ["I2"]
    assert bare.judge(reading=Reading(foreign=lambda request: request.body == '{"body":"hi"}')) == []


def test_i2_another_account() -> None:
    stage = Stage()
    stage.send(account="somebody")
    reading = Reading(accounts={BOT: "bot", "somebody": "41"})
    assert names(stage.receipt().judge(reading=reading)) == ["I2"]
    assert sound().judge(reading=reading) == []


# I3


def repeated(**changes: bool) -> Stage:
    stage = Stage()
    stage.send(applied=None)
    stage.lose().absent(**changes)
    stage.send()
    return stage.receipt()


def test_i3_absence_that_was_never_looked_for() -> None:
    assert repeated().judge() == []
    assert names(repeated(look=False).judge()) == ["I3"]
    elsewhere = Stage()
    elsewhere.send(applied=None)
    elsewhere.lose()
    elsewhere.listed(path="/repos/acme/other/issues/1/comments")
    elsewhere.absent(look=False).send()
    assert names(elsewhere.receipt().judge()) == ["I3"]


def test_i3_a_look_that_concluded_nothing() -> None:
    stage = repeated()
    events = [
        replace(r, event=replace(r.event, verdict="undetermined", concluded=False))
        if isinstance(r.event, ev.LookupAnswered)
        else r
        for r in stage.play.recorded
    ]
    assert "I3" in names(stage.judge(replace(stage.lived(), events=events)))


def test_i3_a_refusal_that_was_none() -> None:
    stage = Stage()
    stage.send(applied="7")
    stage.play.end(stage.step, Outcome("refused", "http_429", again_s=0.0))
    stage.play.begin(stage.step)
    stage.send(applied="8")
    assert "I3" in names(stage.receipt("8").judge())


def test_i3_a_persons_word_is_enough() -> None:
    stage = Stage("mail")
    stage.send(applied=None)
    stage.lose()
    questions = stage.play.questions
    stage.play.do(lambda d: ask_what_happened(d, stage.step, questions))
    stage.play.decide(stage.play.open_action(ActionKind.resolve).id, "did_not_happen")
    stage.play.wait(60.0)
    stage.play.do(lambda d: believe_person(d, stage.step, stage.play.start()))
    stage.send()
    assert stage.receipt().judge() == []
    lived = stage.lived()
    events = [
        replace(r, event=replace(r.event, decision="give_up")) if isinstance(r.event, ev.ActionDecided) else r
        for r in lived.events
    ]
    assert "I3" in names(stage.judge(replace(lived, events=events)))


def test_i3_a_key_outside_its_lifetime() -> None:
    stage = Stage("charge", gated=False)
    stage.send(applied=None)
    stage.lose()
    stage.play.begin(stage.step)
    stage.send()
    stage.receipt()
    assert stage.judge() == []
    late = [replace(e, at=e.at + 4_000.0) if e.order > 1 else e for e in stage.log]
    assert names(judge(late, [stage.lived()])) == ["I3"]


# I4


def test_i4_other_bytes() -> None:
    stage = Stage()
    stage.send(body="Something else.")
    assert names(stage.receipt().judge()) == ["I4"]


def test_i4_a_stored_request_that_was_changed() -> None:
    stage = sound()
    other = replace(stage.lived(), requests={digest(DATA): DATA.replace(b"good", b"evil")})
    assert names(stage.judge(other)) == ["I4"]


def test_i4_a_hash_that_is_not_of_these_bytes() -> None:
    stage = sound()
    assert "I4" in names(stage.judge(with_step(stage.lived(), input_hash="0" * 64)))


def test_i4_a_gated_tool_without_an_approval() -> None:
    stage = Stage(gated=False)
    stage.send()
    stage.receipt()
    assert names(stage.judge()) == ["I4"]
    assert stage.judge(reading=Reading()) == []


def test_i4_an_approval_that_was_not_given_or_had_ended() -> None:
    stage = sound()
    lived = stage.lived()
    rejected = [
        replace(r, event=replace(r.event, status="rejected", decision="reject"))
        if isinstance(r.event, ev.ActionDecided)
        else r
        for r in lived.events
    ]
    assert "I4" in names(stage.judge(replace(lived, events=rejected)))
    over = [replace(r, action=replace(r.action, expires_wall=WALL - 1.0)) for r in lived.actions]
    assert names(stage.judge(replace(lived, actions=over))) == ["I4"]


def test_i4_one_approval_for_two_steps() -> None:
    stage = sound()
    lived = stage.lived()
    acted = next(r for r in lived.steps if r.step.action_id is not None)
    twice = replace(lived, steps=[*lived.steps, replace(acted, step=replace(acted.step, id="step_x", sequence=9))])
    assert any("serves 2 steps" in v.text for v in stage.judge(twice) if v.invariant == "I4")


# I5


@pytest.mark.parametrize(
    "changes", [{"status": StepStatus.failed}, {"answered": False}, {"resolution": Resolution.happened}, {"attempt": 3}]
)
def test_i5_rows_that_the_events_do_not_make(changes: dict[str, object]) -> None:
    stage = sound()
    assert "I5" in names(stage.judge(with_step(stage.lived(), **changes)))


def test_i5_a_gap_a_second_end_and_an_illegal_event() -> None:
    stage = sound()
    lived = stage.lived()
    assert "I5" in names(stage.judge(replace(lived, events=[*lived.events[:3], *lived.events[4:]])))
    last = lived.events[-1]
    end = Recorded("run_1", last.sequence + 1, last.version + 1, last.at, ev.RunCompleted())
    twice = replace(end, sequence=last.sequence + 2, version=last.version + 2)
    assert names(stage.judge(replace(lived, events=[*lived.events, end, twice]))) == ["I5"]


def test_i5_two_results_for_one_call_or_none() -> None:
    stage = sound()
    lived = stage.lived()
    result = next(m for m in lived.messages if m.role == "tool_result")
    two = replace(lived, messages=[*lived.messages, replace(result, id="m2", position=99)])
    assert names(stage.judge(two)) == ["I5"]
    none = replace(lived, messages=[m for m in lived.messages if m is not result])
    assert names(stage.judge(none)) == ["I5"]


# I6


def test_i6_an_attempt_under_a_stale_token() -> None:
    stage = repeated()
    lived = stage.lived()
    events = [
        replace(r, event=replace(r.event, token=9))
        if isinstance(r.event, ev.StepStarted) and r.event.attempt == 1
        else r
        for r in lived.events
    ]
    found = stage.judge(replace(lived, events=events))
    assert "I6" in names(found) and all("token 1" in v.text for v in found if v.invariant == "I6")


# I7


QUIET = Reading(faults_are_over=True)


def test_i7_what_hangs_is_found_once_faults_are_over() -> None:
    running = sound()
    assert running.judge(reading=Reading()) == []
    assert names(running.judge(reading=QUIET)) == ["I7"]


def test_i7_reconciling_has_a_reason_and_a_next_time_or_a_question() -> None:
    stage = Stage()
    stage.send()
    stage.lose()
    assert stage.judge(reading=QUIET) == []
    assert "I7" in names(stage.judge(with_step(stage.lived(), look_at=None), QUIET))
    assert "I7" in names(stage.judge(with_step(stage.lived(), error_code=None), QUIET))
    stage.play.wait(200.0)
    stage.play.look(stage.step, Look("undetermined", reason="http_403"))
    assert stage.play.waits(ActionKind.resolve)
    assert stage.judge(with_step(stage.lived(), look_at=None), QUIET) == []


def test_c032_a_step_that_still_runs_in_an_ended_run_is_found() -> None:
    stage = Stage()
    stage.send()
    stage.play.do(lambda d: cancel_run(d, "ann"))
    assert names(stage.judge(reading=QUIET)) == ["I7"]
    stage.receipt()
    assert stage.judge(reading=QUIET) == []


# Reading


def test_keys_are_read_from_the_header_or_the_marker() -> None:
    request = Received(1, 0.0, 1, "POST", PATH, {}, BOT, {"idempotency-key": "run_1:step_1"}, "{}", "")
    assert key_of_request(request) == "run_1:step_1"
    assert key_of_request(replace(request, headers={})) is None
    marked = '{"body":"x\\n\\n<!-- agent-operation:run_1:step_2 k=3f9a01c2 mac=00 -->"}'
    assert key_of_request(replace(request, headers={}, body=marked)) == "run_1:step_2"


# The store


async def written(store: Store, stage: Stage) -> None:
    """The same history in a store, append by append."""
    recorded = stage.play.recorded
    first = recorded[0]
    assert isinstance(first.event, ev.RunStarted)
    at = store.now()
    run = await store.create(
        Create(after=begin(first.event, at), events=(first.event,), at=at, payloads=(), new_conversation=True)
    )
    known: set[str] = set()
    for version in range(2, recorded[-1].version + 1):
        lines = [r for r in recorded if r.version == version]
        after: Run = run
        for line in lines:
            after = evolve(after, line.event, at)
        after = replace(after, version=version)
        new = {r.event.message_id for r in lines if isinstance(r.event, ev.MessageQueued | ev.MessageAppended)} - known
        known |= new
        bodies = tuple(MessageBody(message, b"{}") for message in sorted(new))
        events = tuple(r.event for r in lines)
        await store.append(
            Append(before=run, after=after, events=events, at=at, payloads=(*bodies, BlobPut(digest(DATA), DATA)))
        )
        run = forget_closed(after)


async def test_a_store_is_read_and_judged(store_url: str) -> None:
    stage = sound()
    store = await open_store(store_url, system_doors())
    try:
        commits = stamp_commits(store, stage.log)
        await written(store, stage)
        assert len(commits) == stage.play.recorded[-1].version and {c.entries for c in commits} == {len(stage.log)}
        found = await check(stage.log, store, "t", commits=commits)
        assert names(found) == ["I2"], "the whole log was there before the first commit"
        early = [replace(c, entries=0) for c in commits]
        assert await check(stage.log, store, "t", commits=early) == []
    finally:
        await store.close()
