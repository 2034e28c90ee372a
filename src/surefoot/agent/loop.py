"""The agent loop: call the model, check and write down what it proposes, go on when every call has its result.

It decides nothing about effects: a proposed call becomes a step, and the runtime does the rest.
"""

from __future__ import annotations

import asyncio

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.messages import History, assistant_body
from surefoot.agent.model import (
    Model,
    ModelNeedsPerson,
    ModelRefused,
    ModelRequest,
    ModelResponse,
    ModelRetryable,
)
from surefoot.agent.prepare import Preparer
from surefoot.core import policy
from surefoot.core.attempts import Outcome
from surefoot.core.decide import ProposedCall, Start, complete_run, fail_run, record_model_answer, start_model_call
from surefoot.core.draft import Draft
from surefoot.core.reconcile import Questions
from surefoot.core.redact import safe_error
from surefoot.core.state import Run, Step
from surefoot.core.values import digest
from surefoot.errors import NotAllowed
from surefoot.runtime.context import Context
from surefoot.runtime.execute import redact_json
from surefoot.runtime.loop import RecordModel

RETRY_AFTER_SECONDS_MAX = 3_600.0
"""A provider that asks for a longer wait is asked again after this."""
_BUDGET = frozenset({"turns_used_up", "time_used_up"})


class AgentLoop:
    """The logic of a run of kind agent (the runtime's `Loop`)."""

    def __init__(self, ctx: Context, agent: Agent, model: Model) -> None:
        self._ctx = ctx
        self._agent = agent
        self._model = model
        self._history = History()

    async def resume(self, run: Run) -> None:
        """Nothing: the conversation is read when the model is called next, since a rescue may not need it."""

    def go_on(self, d: Draft, start: Start | None) -> list[str]:
        """Every call has its result: the next model call."""
        if start is None:
            return []
        try:
            step = start_model_call(d, start, self._input_hash(d))
        except NotAllowed as refusal:
            if refusal.code not in _BUDGET:
                raise
            fail_run(d, refusal.code)
            return []
        return [step.id]

    def _input_hash(self, d: Draft) -> str:
        # The conversation is append-only: what the model is sent is named by the agent and a position.
        return digest(f"{self._agent.input_hash}:{d.run.conversation_id}:{d.run.next_position}".encode())

    async def call_model(self, run: Run, step: Step) -> ModelResponse:
        """One request with the whole conversation up to now."""
        rows = await self._ctx.store.messages(run.tenant_id, run.conversation_id, self._history.position)
        self._history.extend(rows)
        request = ModelRequest(
            self._agent.instructions, tuple(self._history.messages), self._agent.specs, self._agent.settings
        )
        async with asyncio.timeout(step.rules.timeout_s):
            return await self._model.complete(request)

    async def record_model(self, run: Run, answer: object) -> RecordModel:
        """The answer's calls checked and hashed; the command writes them down and ends the run if there are none."""
        assert isinstance(answer, ModelResponse)
        calls = await Preparer(self._ctx, self._agent).prepare(run, answer.calls)
        body = redact_json(self._ctx.redactor, assistant_body(answer))
        result = redact_json(self._ctx.redactor, msgspec.json.encode({"text": _stored_text(body)}))

        return _Record(body, result, calls)

    def sort_model_error(self, step: Step, error: Exception) -> tuple[Outcome, bool]:
        """429, 5xx and time-outs back off on the same step; what a person can mend is asked; the rest ends the run."""
        delay = policy.backoff(step.attempt - 1, self._ctx.doors.entropy.fraction())
        if isinstance(error, ModelRetryable):
            again = delay if error.retry_after is None else min(max(error.retry_after, delay), RETRY_AFTER_SECONDS_MAX)
            if error.status == 429:
                return Outcome("refused", code="model_rate_limited", again_s=again), False
            return Outcome("in_doubt", code="model_unavailable", again_s=again), False
        if isinstance(error, ModelNeedsPerson):
            return Outcome("refused", code="model_needs_person"), True
        if isinstance(error, TimeoutError):
            return Outcome("in_doubt", code="model_timeout", again_s=delay), False
        self._ctx.log(f"{step.id}: the model call failed: {safe_error(error, self._ctx.redactor)}")
        if isinstance(error, ModelRefused):
            return Outcome("refused", code="model_refused_request"), False
        return Outcome("in_doubt", code="model_error", again_s=delay), False


class _Record:
    """Records one answer: its message, its calls, and the run's end if there are none."""

    def __init__(self, body: bytes, result: bytes, calls: list[ProposedCall]) -> None:
        self._body = body
        self._result = result
        self._calls = calls
        self.known = {
            call.input_ref: (msgspec.json.decode(call.data, type=dict[str, object]), call.safe_input)
            for call in calls
            if call.input_ref is not None and call.data is not None
        }

    def __call__(self, d: Draft, step_id: str, attempt: int, questions: Questions) -> None:
        record_model_answer(d, step_id, attempt, self._body, self._calls)
        if not self._calls and not d.run.queued:
            complete_run(d, self._result)


def _stored_text(body: bytes) -> str:
    text = msgspec.json.decode(body)["text"]
    assert isinstance(text, str)
    return text
