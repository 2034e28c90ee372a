"""Who acts in a day: one program that starts runs, sends signals and messages, cancels, and decides what waits.

It is killed now and then. What it has been told stays known: that is what the judge holds the store to.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from surefoot import Surefoot
from surefoot.errors import RunEnded, StoreError, SurefootError
from surefoot.store.port import ActionRow
from surefoot.testing.machine import Machine, Process
from surefoot.testing.world import World
from tests.day.script import Day

POLL_SECONDS_MIN = 2.0


class Person:
    """One for the story, whatever becomes of its processes."""

    def __init__(self, day: Day, machine: Machine, world: World) -> None:
        self.run_ids: dict[str, str] = {}
        """Of the top-level runs, by their plan's text."""
        self.received: set[tuple[str, str]] = set()
        """Run and key of each signal whose receipt was acknowledged."""
        self.cancelled: dict[str, float] = {}
        """When the cancel of a run was acknowledged."""
        self.refused = 0
        """Signals that came behind a run's end."""
        self.waits: Callable[[], bool] = lambda: False
        """Whether something is still to come that nobody sees in the store."""
        self._day = day
        self._machine = machine
        self._world = world
        self._seen: dict[str, float] = {}
        self._done: set[str] = set()
        self._poll_s = max(POLL_SECONDS_MIN, day.seconds / 2_000)

    async def live(self, sf: Surefoot, process: Process) -> None:
        """Until the day is over and everything has come to rest."""
        while True:
            try:
                await self._act(sf)
                for row in await sf.actions(status="waiting"):
                    await self._decide(sf, row)
                if self._now >= self._day.seconds and not self.waits() and await at_rest(sf):
                    return
            except SurefootError as refusal:
                process.say(f"is told: {refusal.code}")
            except OSError as fault:
                process.say(f"meets {fault}")
            await process.doors.clock.sleep(self._poll_s)

    @property
    def _now(self) -> float:
        return self._machine.clock.elapsed

    async def _act(self, sf: Surefoot) -> None:
        now = self._now
        for plan in self._day.runs:
            if now < plan.starts:
                continue
            if plan.text not in self.run_ids:
                self.run_ids[plan.text] = (await sf.start("reviewer", plan.text, key=plan.text)).id
            run_id = self.run_ids[plan.text]
            if plan.message is not None and now >= plan.message and self._first(f"message {run_id}"):
                await sf.message(run_id, "Please be brief.")
            if plan.cancelled is not None and now >= plan.cancelled and f"cancel {run_id}" not in self._done:
                await self._cancel(sf, run_id)
        for said in self._day.signals:
            for time in range(said.times):
                if now >= said.at + 20.0 * time and said.text in self.run_ids and self._open(f"{said.name} {time}"):
                    await self._signal(sf, self.run_ids[said.text], said.name)
                    self._done.add(f"{said.name} {time}")

    def _open(self, act: str) -> bool:
        return act not in self._done

    def _first(self, act: str) -> bool:
        if act in self._done:
            return False
        self._done.add(act)
        return True

    async def _cancel(self, sf: Surefoot, run_id: str) -> None:
        # A person who dies in the middle of it does not come back to it: somebody else has to finish it.
        self._done.add(f"cancel {run_id}")
        try:
            await sf.cancel(run_id)
        except RunEnded:
            return
        except (StoreError, OSError):
            self._done.remove(f"cancel {run_id}")
            raise
        self.cancelled[run_id] = self._now

    async def _signal(self, sf: Surefoot, run_id: str, name: str) -> None:
        try:
            await sf.signal(run_id, name, {"of": name}, key=name, by="ci")
        except RunEnded:
            self.refused += 1
            return
        self.received.add((run_id, name))

    async def _decide(self, sf: Surefoot, row: ActionRow) -> None:
        action, dice = row.action, random.Random(f"{self._machine.seed}:{row.action.id}")
        if self._now < self._seen.setdefault(action.id, self._now) + dice.uniform(0.0, self._day.seconds / 50):
            return
        try:
            await self._decided(sf, row, dice)
        except StoreError:
            raise
        except SurefootError as refusal:
            # It has moved on: expired, settled, or its run was cancelled.
            assert refusal.code in ("action_expired", "run_ended", "already_decided"), refusal

    async def _decided(self, sf: Surefoot, row: ActionRow, dice: random.Random) -> None:
        action, kind = row.action, row.action.kind.value
        if kind == "approve":
            decide = sf.approve if dice.random() < 0.85 else sf.reject
            await decide(action.id, by="ann", input_hash=action.input_hash, key=action.id)
        elif kind == "duplicate":
            await sf.reject(action.id, by="ann", key=action.id)
        elif kind == "resolve":
            await self._resolve(sf, row, dice)
        elif row.tool_name == "wait_for_signal":
            step = (await sf.store.step(sf.tenant, action.step_id)).step
            if step.target in self._day.answered:
                await self._signal(sf, row.run_id, step.target)
        else:
            await sf.answer(action.id, "yes" if row.tool_name == "ask_person" else "try_again", by="ann", key=action.id)

    async def _resolve(self, sf: Surefoot, row: ActionRow, dice: random.Random) -> None:
        """The person looks at the world itself, once nothing is under way any more."""
        machine, action = self._machine, row.action
        if machine.under_way or self._world.next_due() is not None or any(p.frozen for p in machine.processes):
            return
        made = self._world.effects((await sf.store.step(sf.tenant, action.step_id)).step.operation_key)
        if dice.random() < 0.1:
            await sf.resolve(action.id, "give_up", by="ann", key=action.id)
        elif made:
            found = str(made[0].resource_id)
            await sf.resolve(action.id, "happened", by="ann", external_resource_id=found, key=action.id)
        else:
            await sf.resolve(action.id, "did_not_happen", by="ann", key=action.id)


async def at_rest(sf: Surefoot) -> bool:
    """Every run has ended, nobody is asked, nothing is to be looked up again, and nothing waits for other code."""
    if await sf.store.next_wake(sf.tenant) != (None, None) or await sf.actions(status="waiting"):
        return False
    if await sf.store.blocked(sf.tenant):
        return False
    for status in ("running", "reconciling", "waiting_for_user"):
        if await sf.store.runs(sf.tenant, status=status, agent=None, before=None, limit=1):
            return False
    return True
