"""Forged, stale, foreign and repeated decisions by the thousand: none counts, and one of many good ones wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import httpx
import pytest
from msgspec.structs import replace

from surefoot.server.doorman import COOKIE
from surefoot.server.links import link_to, write_link
from surefoot.server.tokens import Tokens
from surefoot.store.port import ActionRow
from tests.identity.rig import HOST, Rig, rig_of, token_of
from tests.places import Place

pytestmark = pytest.mark.prove
ATTEMPTS = 10_000
PARALLEL = 100
SEED = 7


class Forger:
    """Draws bad decisions about one waiting action."""

    def __init__(self, rig: Rig, row: ActionRow, foreign: str, session: str, seed: int) -> None:
        self.rig = rig
        self.row = row
        self.random = Random(seed)
        self.foreign = foreign
        self.session = session
        self.path = f"/v1/pending-actions/{row.action.id}/decision"

    async def attempt(self) -> httpx.Response:
        ways: list[Callable[[], Awaitable[httpx.Response]]] = [
            self._wrong_hash, self._wrong_token, self._too_little, self._other_tenant, self._wrong_kind, self._old_link,
            self._changed_link, self._no_csrf, self._other_action, self._get,
        ]  # fmt: skip
        return await self.random.choice(ways)()

    def _mangled(self, text: str) -> str:
        place = self.random.randrange(len(text))
        other = self.random.choice([c for c in "abcdefghijklmnop0123456789" if c != text[place]])
        return text[:place] + other + text[place + 1 :]

    async def _decide(self, headers: dict[str, str], path: str = "", **more: object) -> httpx.Response:
        body = {"decision": "approve", **more}
        return await self.rig.http.post(path or self.path, json=body, headers=headers)

    async def _wrong_hash(self) -> httpx.Response:
        wrong = self._mangled(self.row.action.input_hash)
        return await self._decide({"Authorization": f"Bearer {token_of('approve')}"}, input_hash=wrong)

    async def _wrong_token(self) -> httpx.Response:
        return await self._decide({"Authorization": f"Bearer {self._mangled(token_of('approve'))}"})

    async def _too_little(self) -> httpx.Response:
        permission = self.random.choice(["read", "start", "resolve", "evidence"])
        return await self._decide({"Authorization": f"Bearer {token_of(permission)}"})

    async def _other_tenant(self) -> httpx.Response:
        return await self._decide({"Authorization": f"Bearer {self.foreign}"})

    async def _wrong_kind(self) -> httpx.Response:
        decision = self.random.choice(["happened", "did_not_happen", "give_up", "answer", "yes", ""])
        return await self._decide({"Authorization": f"Bearer {token_of('admin')}"}, decision=decision)

    async def _other_action(self) -> httpx.Response:
        path = self.path.replace(self.row.action.id, "act_" + self._mangled(self.row.action.id[4:]))
        return await self._decide({"Authorization": f"Bearer {token_of('admin')}"}, path)

    def _link(self, **changes: object) -> str:
        wall = self.rig.sf.doors.clock.now().wall
        link = link_to(self.row.action, "default", wall, person="ann")
        return write_link(self.rig.sf.context.keyring, replace(link, **changes))

    async def _post_link(self, path: str) -> httpx.Response:
        headers = {"Origin": HOST, "Content-Type": "application/x-www-form-urlencoded"}
        return await self.rig.http.post(path, content="decision=approve&key=1", headers=headers)

    async def _old_link(self) -> httpx.Response:
        return await self._post_link(self._link(expires_at=self.random.randrange(1_000)))

    async def _changed_link(self) -> httpx.Response:
        path = self._link()
        return await self._post_link(path[:7] + self._mangled(path[7:]))

    async def _no_csrf(self) -> httpx.Response:
        csrf = self.random.choice(["", "0" * 64, self._mangled("a" * 64)])
        return await self._decide({"Cookie": f"{COOKIE}={self.session}", "Origin": HOST, "X-CSRF-Token": csrf})

    async def _get(self) -> httpx.Response:
        method = self.random.choice(["GET", "HEAD"])
        return await self.rig.http.request(method, self._link() + "?decision=approve&key=1")


async def test_r22_r23_no_forged_decision_counts_and_one_of_a_hundred_wins(
    place: Place, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    async with rig_of(place, monkeypatch, gated=True) as rig:
        run = await rig.sf.start("reviewer", "Review it")
        await rig.sf.wait(run.id, timeout=20)
        (row,) = await rig.sf.actions(status="waiting")
        before = await rig.sf.snapshot(run.id)
        book = Tokens(rig.sf.store, rig.sf.doors.clock, rig.sf.doors.entropy)
        _, foreign = await book.create("another", "eve", ["admin"])
        _, own = await book.create("default", "bob", ["admin"])
        holder = await book.find(own)
        assert holder is not None
        _, session = await book.begin_session(holder, 36_000)
        forger = Forger(rig, row, foreign, session, SEED)
        statuses: dict[int, int] = {}
        for _ in range(ATTEMPTS):
            answer = await forger.attempt()
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code >= 400 or answer.request.method in ("GET", "HEAD"), answer.text
        assert await rig.sf.snapshot(run.id) == before
        assert rig.world.requests("POST") == []
        answers = await asyncio.gather(
            *(
                rig.ask("POST", forger.path, {"decision": "approve"}, token=("approve", "admin")[n % 2])
                for n in range(PARALLEL)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * (PARALLEL - 1)
        done = await rig.sf.wait(run.id, timeout=30)
        assert done.status == "completed" and len(rig.world.requests("POST")) == 1

    record_property("figure", f"forged decisions (seed {SEED}): 0 of {ATTEMPTS} counted; answers {statuses}")
