"""A row that cannot be read takes no list down: the others are shown and decided, and that it is there is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from surefoot import Surefoot
from surefoot.doctor import examine
from surefoot.errors import Unreadable
from surefoot.server.announce import Announcer
from surefoot.server.meters import Meters
from surefoot.server.options import Options
from surefoot.store.access import Span
from surefoot.views import UNREADABLE_MAX
from tests.cli.rig import Cli
from tests.places import Place
from tests.server.house import House, Outside, code_of, house, note, surefoot_at
from tests.support import eventually

DAMAGE = {
    "no JSON": "UPDATE run SET limits = '{' WHERE id = ?",
    "a field of a newer version": "UPDATE run SET signals = '{\"of_tomorrow\":1}' WHERE id = ?",
    "a status of a newer version": "UPDATE run SET status = 'dreaming' WHERE id = ?",
    "a step's rules": "UPDATE step SET rules = '{\"of_tomorrow\":1}' WHERE run_id = ?",
    "a step's status": "UPDATE step SET status = 'dreaming' WHERE run_id = ? AND status = 'waiting_for_approval'",
    "metadata beyond every number": "UPDATE run SET metadata = '{\"n\":1e999}' WHERE id = ?",
}
NO_UTF8 = "UPDATE run SET created_by = CAST(x'ff' AS TEXT) WHERE id = ?"
QUESTION = {
    "no JSON": "UPDATE pending_action SET preview = '{' WHERE id = ?",
    "a kind of a newer version": "UPDATE pending_action SET kind = 'guess' WHERE id = ?",
    "arguments beyond every number": "UPDATE pending_action SET arguments = '[1e999]' WHERE id = ?",
}


@asynccontextmanager
async def three(place: Place, outside: Outside) -> AsyncIterator[tuple[House, list[str], list[str]]]:
    """A server with three runs that wait with a question each, oldest first, and nobody who works."""
    async with house(place, [outside.writer()]) as at:
        asked = [await at.asked(key=f"run {number}") for number in range(3)]
    async with house(place, [outside.writer()], worker=False) as at:
        yield at, [run_id for run_id, _ in asked], [action_id for _, action_id in asked]


def ids(rows: object) -> list[str]:
    assert isinstance(rows, list)
    return [str(row["id"]) for row in rows]


@pytest.mark.parametrize("how", list(DAMAGE))
async def test_a_run_that_cannot_be_read_is_named_beside_the_others(place: Place, outside: Outside, how: str) -> None:
    async with three(place, outside) as (at, runs, actions):
        assert place.execute(DAMAGE[how], runs[1])
        page = (await at.client.get("/v1/runs")).json()
        assert ids(page["items"]) == [runs[2], runs[0]] and page["next_cursor"] is None
        (bad,) = page["unreadable"]
        assert (bad["id"], bad["run_id"], bad["code"]) == (runs[1], runs[1], "unreadable")
        assert "surefoot doctor" in bad["message"]
        listed = await at.sf.runs()
        assert [run.id for run in listed] == [runs[2], runs[0]] and [bad.id for bad in listed.unreadable] == [runs[1]]
        assert code_of(await at.client.get(f"/v1/runs/{runs[1]}")) == (500, "unreadable")
        inbox = (await at.client.get("/v1/pending-actions", params={"status": "waiting"})).json()
        assert ids(inbox["items"]) == actions, "its question is whole"
        of_run = await at.client.get("/v1/pending-actions", params={"run_id": runs[1]})
        assert ids(of_run.json()["items"]) == [actions[1]]
        for action_id in (actions[0], actions[2]):
            assert (await at.decide(action_id, "approve")).status_code == 200
        assert not outside.sent


@pytest.mark.sqlite_only("PostgreSQL keeps no text that is none")
async def test_a_text_that_is_no_utf8_is_one_rows_damage(place: Place, outside: Outside) -> None:
    async with three(place, outside) as (at, runs, actions):
        assert place.execute(NO_UTF8, runs[1])
        assert place.execute("UPDATE pending_action SET input_hash = CAST(x'ff' AS TEXT) WHERE id = ?", actions[0])
        page = (await at.client.get("/v1/runs")).json()
        assert (ids(page["items"]), ids(page["unreadable"])) == ([runs[2]], [runs[1], runs[0]])
        inbox = await at.sf.actions(status="waiting")
        assert [row.action.id for row in inbox] == actions[1:] and [bad.id for bad in inbox.unreadable] == [actions[0]]
        assert place.execute("UPDATE run SET status = CAST(x'ff' AS TEXT) WHERE id = ?", runs[1])
        assert (await at.sf.store.counts(at.sf.tenant)).runs == {"waiting_for_user": 2, "\ufffd": 1}


@pytest.mark.parametrize("how", list(QUESTION))
async def test_a_question_that_cannot_be_read_hides_no_other(place: Place, outside: Outside, how: str) -> None:
    async with three(place, outside) as (at, runs, actions):
        assert place.execute(QUESTION[how], actions[0])
        for params in ({"status": "waiting"}, {}):
            page = (await at.client.get("/v1/pending-actions", params=params)).json()
            assert ids(page["items"]) == actions[1:] and page["next_cursor"] is None
            (bad,) = page["unreadable"]
            assert (bad["id"], bad["run_id"], bad["code"]) == (actions[0], runs[0], "unreadable")
        assert (await at.decide(actions[1], "approve")).status_code == 200
        answer = await at.client.get("/v1/pending-actions", params={"cursor": actions[0], "limit": 1})
        assert ids(answer.json()["items"]) == [actions[1]], "a cursor is a place, whatever stands there"


async def test_pages_without_a_readable_row_lead_on(place: Place, outside: Outside) -> None:
    async with three(place, outside) as (at, runs, actions):
        for run_id, action_id in zip(runs[1:], actions[:2], strict=True):
            assert place.execute(DAMAGE["no JSON"], run_id) and place.execute(QUESTION["no JSON"], action_id)
        for path, want in (("/v1/runs", runs[::-1]), ("/v1/pending-actions", actions)):
            seen: list[str] = []
            cursor: str | None = None
            while True:
                asked = {"limit": "1"} | ({} if cursor is None else {"cursor": cursor})
                page = (await at.client.get(path, params=asked)).json()
                assert len(page["items"]) + len(page["unreadable"]) == 1
                seen += ids(page["items"]) + ids(page["unreadable"])
                if (cursor := page["next_cursor"]) is None:
                    break
            assert seen == want
        page = await at.sf.runs(limit=1)
        assert [run.id for run in page] == [runs[0]] and page.behind is None, "a program's page is filled"
        assert [bad.id for bad in page.unreadable] == [runs[2], runs[1]]


async def test_a_page_passes_over_so_many_rows_at_most(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert UNREADABLE_MAX == 1_000
    monkeypatch.setattr("surefoot.views.UNREADABLE_MAX", 2)
    async with three(place, outside) as (at, runs, _):
        for run_id in runs[1:]:
            assert place.execute(DAMAGE["no JSON"], run_id)
        page = await at.sf.runs(limit=1)
        assert not page and page.behind == runs[1]
        assert [run.id for run in await at.sf.runs(limit=1, before=page.behind)] == [runs[0]]


async def test_every_question_is_listed_however_many_there_are(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = outside.agent("two", [note("one"), note("another")], "Written.")
    async with house(place, [two]) as at:
        run_id = await at.started("two")
        run = await at.sf.wait(run_id, until=lambda run: len(run.pending_actions) == 2, timeout=20)
        actions = type(at.sf.store).actions
        monkeypatch.setattr(actions, "__kwdefaults__", {**(actions.__kwdefaults__ or {}), "limit": 1})
        assert [row.action.id for row in await at.sf.actions()] == [action.id for action in run.pending_actions]
        assert not (await examine(at.sf.store, at.sf.tenant)).findings


async def test_the_rest_goes_on_beside_it(place: Place, outside: Outside) -> None:
    lines: list[str] = []
    async with three(place, outside) as (_, runs, actions):
        assert place.execute(DAMAGE["no JSON"], runs[1])
        # Ready as well, so that a worker claims it together with the others.
        assert place.execute("UPDATE run SET ready_at = 0.0 WHERE id = ?", runs[1])
    async with Surefoot(place.url, [outside.writer()], worker=True, secret="s" * 32, log=lines.append) as sf:
        await eventually(lambda: any("unreadable" in line for line in lines), "a worker to come across it")
        for run_id, action_id in ((runs[0], actions[0]), (runs[2], actions[2])):
            await sf.approve(action_id, by="ann")
            assert (await sf.wait(run_id, timeout=20)).status == "completed"
        with pytest.raises(Unreadable):
            await sf.cancel(runs[1], by="ann")
        now = sf.store.now().wall
        assert sum(
            sum(one.values()) for one in (await sf.store.statistics(sf.tenant, Span(0.0, 60.0, 9))).runs.values()
        )
        report = await examine(sf.store, sf.tenant)
        (finding,) = report.findings
        assert (finding.code, finding.run_id) == ("unreadable", runs[1]) and "nor can it be cancelled" in finding.next
        assert (await sf.store.prune(sf.tenant, now + 1.0, blobs_before=now + 1.0))["runs"] == 2
        assert (await sf.store.run_ids(sf.tenant)) == [runs[1]]


async def test_readyz_and_metrics_count_it_once(place: Place, outside: Outside) -> None:
    async with three(place, outside) as (at, runs, _):
        assert place.execute("UPDATE run SET limits = '{', status = 'running' WHERE id = ?", runs[1])
        ready = (await at.client.get("/readyz")).json()
        assert ready["blocked_runs"]["unreadable"] == 1, "before a worker has come across it"
        await at.sf.store.block(at.sf.tenant, runs[1], None, "unreadable")
        ready = (await at.client.get("/readyz")).json()
        assert ready["blocked_runs"]["unreadable"] == 1
        told = (await at.client.get("/metrics")).text
        assert 'surefoot_runs_blocked{code="unreadable"} 1' in told


async def test_times_without_end_keep_nothing_from_being_counted(place: Place, outside: Outside) -> None:
    async with three(place, outside) as (at, runs, _):
        for time in (1e300, float("inf")):
            assert place.execute("UPDATE run SET created_at = ? WHERE id = ?", time, runs[1])
            answer = await at.client.get("/v1/statistics")
            assert answer.status_code == 200
            assert sum(one["counts"].get("waiting_for_user", 0) for one in answer.json()["runs"]) == 2
            page = (await at.client.get("/v1/runs")).json()
            assert len(page["items"]) + len(page["unreadable"]) == 3


async def test_the_doctor_survives_any_number(place: Place, outside: Outside) -> None:
    async with three(place, outside) as (at, runs, _):
        last = "sequence = (SELECT max(sequence) FROM event AS line WHERE line.run_id = event.run_id)"
        assert place.execute(f"UPDATE event SET version = ? WHERE run_id = ? AND {last}", 2**62, runs[1])
        findings = (await examine(at.sf.store, at.sf.tenant)).findings
        assert {finding.run_id for finding in findings} == {runs[1]}
        assert any("versions" in finding.text for finding in findings)


async def test_it_is_announced_later_and_the_others_now(place: Place, outside: Outside) -> None:
    taken: list[bytes] = []

    async def hook(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hook, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with three(place, outside) as (at, _, actions), server:
        assert place.execute(QUESTION["no JSON"], actions[0])
        options = Options(announce_url=url, announce_secrets=("s" * 32,), public_url="http://127.0.0.1:1")
        meters = Meters()
        announcer = Announcer(at.sf, options, meters)
        assert await announcer.announce_due() == 3
        outcomes = {dict(key)["outcome"]: count for key, count in meters.counters["announcements"].items()}
        assert outcomes == {"sent": 2, "unreadable": 1} and len(taken) == 2
        due = await at.sf.store.next_announcement(at.sf.tenant, announcer.hook, 20)
        assert due is not None and due > at.sf.store.now().wall, "once more, in case it is mended"


async def test_what_a_run_waits_for_is_shown_though_its_part_cannot_be_read(place: Place, outside: Outside) -> None:
    writer = outside.writer()
    boss = outside.agent("boss", [("writer", {"task": "Write"})], "Done.")
    boss = type(boss)(name="boss", model=boss.model, instructions="Do it.", tools=[writer])
    async with house(place, [boss, writer]) as at:
        run_id = await at.started("boss")
        await at.sf.wait(run_id, until=lambda run: bool(run.pending_actions), timeout=20)
        (child,) = await at.sf.store.children(at.sf.tenant, run_id)
    async with surefoot_at(place, [boss, writer], worker=False) as sf:
        (asked,) = await sf.actions()
        assert place.execute(DAMAGE["no JSON"], child.id) and place.execute(QUESTION["no JSON"], asked.action.id)
        run = await sf.snapshot(run_id)
        assert [bad.id for bad in run.unreadable] == [child.id, asked.action.id] and not run.waits_for_person
        with pytest.raises(Unreadable, match=f"{run_id} is cancelled, and {child.id}"):
            await sf.cancel(run_id, by="ann")
        assert (await sf.snapshot(run_id)).status == "cancelled"


def _cli_lists(cli: Cli, more: Sequence[str], runs: Sequence[str], actions: Sequence[str]) -> None:
    listed = cli.json("runs", "list", *more)
    assert listed.code == 0 and ids(listed.records()) == [runs[2], runs[0]]
    assert runs[1] in listed.err and "unreadable" in listed.err and "surefoot doctor" in listed.err
    shown = cli.run("runs", "list", "--limit", "1", *more)
    assert f"--before {runs[2]}" in shown.out
    shown = cli.run("runs", "list", "--limit", "1", "--before", runs[2], *more)
    assert runs[0] in shown.out and runs[1] not in shown.out and runs[1] in shown.err
    listed = cli.json("actions", "list", *more)
    assert listed.code == 0 and ids(listed.records()) == actions[1:]
    assert f"{actions[0]} (of {runs[0]})" in listed.err
    assert ids(cli.json("actions", "list", "--run", runs[1], *more).records()) == [actions[1]]
    assert cli.json("runs", "show", runs[1], *more).error == "unreadable"


async def test_the_command_line_lists_the_others_and_says_so(place: Place, outside: Outside) -> None:
    cli = Cli(place)
    async with three(place, outside) as (at, runs, actions):
        assert place.execute(DAMAGE["a step's rules"], runs[1]) and place.execute(QUESTION["no JSON"], actions[0])
        await asyncio.to_thread(_cli_lists, cli, ("--url", at.running.url), runs, actions)
    await asyncio.to_thread(_cli_lists, cli, (), runs, actions)
    doctor = await asyncio.to_thread(cli.json, "doctor")
    assert doctor.code == 1


HIDDEN = {
    "the run's metadata": "UPDATE run SET metadata = '{\"n\":1e999}' WHERE id = ?",
    "a call's arguments as they are shown": "UPDATE step SET safe_input = '{\"n\":[1e999]}' WHERE run_id = ?",
    "a call's result as it is shown": "UPDATE step SET safe_output = '-1e999' WHERE run_id = ?",
    "a question's arguments": "UPDATE pending_action SET arguments = '[1e999]' WHERE run_id = ?",
    "a question's preview": "UPDATE pending_action SET preview = '{\"n\":1e999}' WHERE run_id = ?",
    "a message's number": 'UPDATE message SET body = \'{"role":"user","text":1e999}\' WHERE run_id = ?',
    "a message": "UPDATE message SET body = '{' WHERE run_id = ?",
}


@pytest.mark.parametrize("how", list(HIDDEN))
async def test_the_doctor_finds_what_nothing_else_reads_before_it_is_needed(
    place: Place, outside: Outside, how: str
) -> None:
    async with three(place, outside) as (at, runs, _):
        assert not (await examine(at.sf.store, at.sf.tenant)).findings
        assert place.execute(HIDDEN[how], runs[1])
        findings = (await examine(at.sf.store, at.sf.tenant)).findings
        assert findings and {(finding.code, finding.run_id) for finding in findings} == {("unreadable", runs[1])}


TOKEN = {
    "no JSON": "UPDATE credential SET permissions = '{' WHERE id = ?",
    "a kind of permissions of a newer version": "UPDATE credential SET permissions = '[{\"of\":1}]' WHERE id = ?",
}


@pytest.mark.parametrize("how", list(TOKEN))
def test_a_token_that_cannot_be_read_is_named_beside_the_others_and_can_be_revoked(place: Place, how: str) -> None:
    cli = Cli(place)
    made = [str(cli.json("tokens", "create", name, "--permission", "read").record()["id"]) for name in ("ann", "bob")]
    assert place.execute(TOKEN[how], made[0])
    listed = cli.json("tokens", "list")
    assert listed.code == 0 and ids(listed.records()) == made[1:]
    assert f"{made[0]} is not in this list (unreadable)" in listed.err
    doctor = cli.json("doctor")
    findings = doctor.record()["findings"]
    assert isinstance(findings, list)
    (finding,) = findings
    assert doctor.code == 1 and finding["code"] == "unreadable" and made[0] in finding["text"]
    assert "surefoot tokens revoke" in finding["next"]
    revoked = cli.json("tokens", "revoke", made[0])
    assert revoked.code == 0 and revoked.record()["revoked_at"] is not None
    shown = cli.run("tokens", "revoke", made[0])
    assert shown.code == 0 and "is revoked" in shown.out
    assert place.query("SELECT count(*) FROM credential WHERE revoked_at IS NOT NULL") == [(1,)]
    assert cli.run("doctor").code == 0, "nobody can use it, and nobody has to do anything"


@pytest.mark.sqlite_only("PostgreSQL keeps no text that is none")
def test_a_token_whose_name_is_no_utf8_hides_no_other(place: Place) -> None:
    cli = Cli(place)
    made = [str(cli.json("tokens", "create", name, "--permission", "read").record()["id"]) for name in ("ann", "bob")]
    assert place.execute("UPDATE credential SET name = CAST(x'ff' AS TEXT) WHERE id = ?", made[1])
    listed = cli.json("tokens", "list")
    assert listed.code == 0 and ids(listed.records()) == made[:1] and made[1] in listed.err
