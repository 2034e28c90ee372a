"""What the driver asks of a run's own logic: what comes next when every call has its result. Agents bring theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from surefoot.core.attempts import Outcome
from surefoot.core.decide import ProposedCall, Start, complete_run, fail_run
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.payloads import Payload, StepView
from surefoot.core.state import STEP_ENDS, Resolution, Run, Step, StepStatus
from surefoot.runtime.context import Context
from surefoot.store.port import Append


class Loop(Protocol):
    """A run's logic. `go_on` and `record_model` are commands: they may be called again for the same decision."""

    async def resume(self, run: Run) -> None:
        """Read what the next decision needs of a run that was read: after a claim, and after somebody else wrote."""
        ...

    def appended(self, append: Append) -> None:
        """This driver's append was committed. Called before anything that the append starts; must not raise."""
        ...

    def go_on(self, d: Draft, start: Start | None) -> list[str]:
        """No call is open: begin the next step or end the run. Returns the steps begun; none without `start`."""
        ...

    async def call_model(self, run: Run, step: Step) -> object:
        """One model call of the run; the answer goes to `record_model`. Raises what `sort_model_error` sorts."""
        ...

    async def record_model(self, run: Run, answer: object) -> RecordModel:
        """Prepare the answer's calls (checks, policies, reads of the store); returns the command that records it."""
        ...

    def sort_model_error(self, step: Step, error: Exception) -> tuple[Outcome, bool]:
        """How the model call ended, and whether a person can mend it."""
        ...


Known = tuple[dict[str, object], bytes]
"""A request's arguments, and their redacted view as JSON."""
_ARGUMENTS = msgspec.json.Decoder(dict[str, object])


def known_calls(calls: Sequence[ProposedCall]) -> dict[str, Known]:
    """The requests of calls that this process has just prepared, by the names of their blobs."""
    known: dict[str, Known] = {}
    for call in calls:
        if call.input_ref is not None and call.data is not None:
            known[call.input_ref] = (_ARGUMENTS.decode(call.data), call.safe_input)
    return known


class RecordModel(Protocol):
    """A command that records a model's answer."""

    @property
    def known(self) -> Mapping[str, Known]:
        """The requests of the answer's calls by the names of their blobs."""
        ...

    def __call__(self, d: Draft, step_id: str, attempt: int, questions: Questions) -> None:
        """Emit the events."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """What the append that made a version of a run said of its step; `output` is JSON, None where it was not in it."""

    version: int
    step: Step
    output: bytes | None


class PerformLoop:
    """The logic of a run of kind perform: one step, whose end is the run's."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._ended: Step | None = None
        self.answer: Answer | None = None
        """The last decision that this process made about the run's completion; whether it stands, its version says."""

    async def resume(self, run: Run) -> None:
        """The step may have ended without its run: a person's answer concludes nothing but the step."""
        if run.steps or run.ended:
            return
        rows = await self._ctx.store.steps(run.tenant_id, run.id)
        self._ended = rows[0].step if rows else None

    def appended(self, append: Append) -> None:
        """Keep the step once it has ended: the run in memory forgets it, and the run's end follows from it."""
        for step in append.after.steps.values():
            if step.status in STEP_ENDS or step.resolution is Resolution.given_up:
                self._ended = step

    def go_on(self, d: Draft, start: Start | None) -> list[str]:
        """End the run as its step ended."""
        step = next(iter(d.run.steps.values()), self._ended)
        if step is None:
            return []
        if step.status is StepStatus.succeeded:
            shown = {"resource_id": step.external_resource_id, "url": step.resource_url}
            complete_run(d, msgspec.json.encode(shown))
            self.answer = Answer(d.before.version + 1, step, _output(d.payloads))
        elif step.status is StepStatus.failed:
            fail_run(d, step.error_code or "failed")
        else:
            fail_run(d, "outcome_unknown")
        return []

    async def call_model(self, run: Run, step: Step) -> object:
        """There is none."""
        raise AssertionError("a perform run has no model call")

    async def record_model(self, run: Run, answer: object) -> RecordModel:
        """There is none."""
        raise AssertionError("a perform run has no model call")

    def sort_model_error(self, step: Step, error: Exception) -> tuple[Outcome, bool]:
        """There is none."""
        raise AssertionError("a perform run has no model call")


def _output(payloads: Sequence[Payload]) -> bytes | None:
    for payload in payloads:
        if isinstance(payload, StepView) and payload.safe_output:
            return payload.safe_output
    return None
