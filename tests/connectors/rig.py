"""The stage of the connectors' tests."""

from __future__ import annotations

import msgspec

from surefoot.core.audit import check_run
from surefoot.doors import Clock
from surefoot.http import system_doors
from surefoot.store.open import open_store
from tests.cases.rig import AT_REST, Sim


class ToolSim(Sim):
    """A Sim whose end is judged by rows and events alone.

    Most of these tools carry no key on the wire (a label, a merge), so that a judge who reads the World's log by keys
    cannot tell whose effect it was. Each test counts its own effects there.
    """

    async def judge(self, clock: Clock) -> None:
        """Rows that fit their events, and a run at rest."""
        store = await open_store(self.url, msgspec.structs.replace(system_doors(), clock=clock))
        try:
            for run_id in await store.run_ids("default"):
                run = (await store.run("default", run_id)).run
                steps = [row.step for row in await store.steps("default", run_id)]
                actions = [row.action for row in await store.actions("default", run_id=run_id)]
                faults = check_run(run, steps, actions, await store.events("default", run_id, 0, 100_000))
                assert not faults, faults
                assert run.status.value in AT_REST, f"{run_id} is {run.status.value}"
        finally:
            await store.close()
