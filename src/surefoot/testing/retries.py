"""Somebody who takes up runs that failed or were cancelled, at odd moments and again and again, and cancels some."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from surefoot.app import Surefoot
from surefoot.errors import StoreError, SurefootError
from surefoot.snapshot import RunSnapshot
from surefoot.testing.machine import Machine, Process
from surefoot.testing.people import Script

POLL_SECONDS = 1.0
MOMENTS_MAX = 7
CANCELLED_SHARE = 0.6
"""Of the runs of such a story, so that there is something to be taken up."""


class Retries:
    """One for the story. `seconds` is how long it goes on."""

    def __init__(
        self, machine: Machine, seed: int, texts: Sequence[str], run_ids: Mapping[str, str], seconds: float
    ) -> None:
        self.violations: list[str] = []
        self.cancelled: set[str] = set()
        """Runs that it has cancelled, or may have."""
        self._machine = machine
        self._run_ids = run_ids
        dice = random.Random(f"{seed}:retries")
        self.left = sorted(
            (dice.uniform(0.0, seconds) ** 2 / seconds, text, dice.random())
            for text in texts
            for _ in range(dice.randint(2, MOMENTS_MAX))
        )
        """Moments at which something is still to be done: when, to which run, and what."""
        self._chains: dict[str, list[str]] = {}
        """The runs of a conversation as far as they were told, by the text of the first."""
        self._taken_up: dict[str, str] = {}
        """By which run another one was taken up, as it was acknowledged first."""

    async def live(self, sf: Surefoot, process: Process) -> None:
        """Until every moment has passed. What gets no answer is asked again."""
        while self.left:
            at, text, chance = self.left[0]
            if self._machine.clock.elapsed >= at and text in self._run_ids:
                try:
                    await self._act(sf, process, text, chance)
                except (StoreError, OSError) as problem:
                    process.say(f"meets {problem!r}")
                except SurefootError as refusal:
                    process.say(f"is told: {refusal.code}")
                    self.left.pop(0)
                else:
                    self.left.pop(0)
            await process.doors.clock.sleep(POLL_SECONDS)

    async def _act(self, sf: Surefoot, process: Process, text: str, chance: float) -> None:
        chain = self._chains.setdefault(text, [self._run_ids[text]])
        if chance < 0.25:
            process.say(f"cancels {chain[-1]}")
            # Also where the answer is lost.
            self.cancelled.add(chain[-1])
            await sf.cancel(chain[-1], by="bob")
        elif chance < 0.35:
            key = f"again {len(chain)} {text}"
            conversation = (await sf.store.run(sf.tenant, chain[-1])).run.conversation_id
            chain.append((await sf.start("reviewer", text, conversation_id=conversation, key=key)).id)
        else:
            # Also one that was taken up before: it is the same run that has done so.
            asked = chain[-1] if chance < 0.8 else chain[int((chance - 0.8) / 0.2 * len(chain))]
            process.say(f"takes up {asked}")
            new = (await self._retried(sf, asked)).id
            known = self._taken_up.setdefault(asked, new)
            if known != new:
                self.violations.append(f"R1: run {asked} was taken up by {known}, and then by {new}")
            if new not in chain:
                chain.append(new)

    async def _retried(self, sf: Surefoot, asked: str) -> RunSnapshot:
        try:
            return await sf.retry(asked, by="bob")
        except StoreError:
            raise
        except SurefootError as refusal:
            if asked in self._taken_up:
                known = self._taken_up[asked]
                self.violations.append(f"R1: run {asked} was taken up by {known}, and is refused: {refusal.code}")
            raise


def more_cancelled(script: Script, dice: random.Random) -> Script:
    """The same, with more runs that somebody cancels."""
    runs = [
        msgspec.structs.replace(run, cancelled=round(run.starts + dice.uniform(0.1, 25.0), 3))
        if dice.random() < CANCELLED_SHARE
        else run
        for run in script.runs
    ]
    return msgspec.structs.replace(script, runs=tuple(runs))
