"""The agent loop: call the model, check and write down what it proposes, go on when every call has its result.

It decides nothing about effects: a proposed call becomes a step, and the runtime does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.compaction import compaction_request, cut_of, opening, summary_body
from surefoot.agent.fallback import SUMMARY_STOPPED, Models
from surefoot.agent.messages import History, assistant_body, read_answer
from surefoot.agent.model import FILTERED, Model, ModelRequest, ModelResponse, NoteMessage, WireMessage
from surefoot.agent.output import REMINDER
from surefoot.agent.prepare import Preparer
from surefoot.agent.texts import Texts
from surefoot.core.attempts import Outcome
from surefoot.core.decide import (
    MODEL_RULES,
    ProposedCall,
    Start,
    complete_run,
    fail_run,
    record_model_answer,
    record_summary,
    start_model_call,
)
from surefoot.core.draft import Draft
from surefoot.core.duplicates import Questions
from surefoot.core.ends import note
from surefoot.core.events import MessageAppended
from surefoot.core.payloads import BlobPut, MessageBody, TransientDrop, result_body
from surefoot.core.state import Run, Step
from surefoot.core.totals import Spent
from surefoot.core.values import clean_text, digest
from surefoot.errors import NotAllowed, Unreadable
from surefoot.runtime import tracing
from surefoot.runtime.background import from_inside
from surefoot.runtime.context import Context
from surefoot.runtime.execute import redact_json
from surefoot.runtime.loop import RecordModel, known_calls
from surefoot.store.port import Append, MessageRow

_BUDGET = frozenset({"turns_used_up", "time_used_up", "tokens_used_up", "cost_used_up"})
CUT_NOTE = (
    "Your answer was cut off at the limit of its tokens, so it is not taken as the result. Give the whole answer "
    "again, shorter."
)
FILTER_NOTE = (
    "Your answer was stopped by the provider's content filter, or refused, so it is not taken as the result. Give an "
    "answer in other words, or say what cannot be done."
)
UNFINISHED = {"length": (CUT_NOTE, "answer_cut"), FILTERED: (FILTER_NOTE, "answer_filtered")}
"""How an answer without calls ends that is none, with what the model is told once, and the code of a run after two."""
REASONING_CHARACTERS_MAX = 1024 * 1024
"""Of one answer; more is not kept, and the provider may then refuse what comes next."""
Streaming = Callable[[ModelRequest, Callable[[str], None]], Awaitable[ModelResponse]]


class Reasoning(msgspec.Struct, frozen=True):
    """The transient blob of an answer: what its provider wants back, of which run and place."""

    run_id: str
    position: int
    text: str


class Shortened(msgspec.Struct, frozen=True):
    """The answer of a model call that was to summarise the history up to a position."""

    response: ModelResponse
    up_to: int


class AgentLoop:
    """The logic of a run of kind agent (the runtime's `Loop`)."""

    def __init__(self, ctx: Context, agent: Agent, models: Sequence[Model], texts: Texts | None = None) -> None:
        self._ctx = ctx
        self._agent = agent
        self._models = Models(ctx, models)
        self._texts = texts
        self._rules = msgspec.structs.replace(MODEL_RULES, timeout_s=agent.model_timeout)
        self._history = History()
        self._opening: tuple[NoteMessage, int, int] | None = None
        """What stands for the older part, made for a summary and a number of notes."""

        self._own: dict[int, MessageRow] = {}
        """What this process has said since the model was called last, by its place: it need not be read again."""
        self._proposed: set[str] | None = None
        """Every action that was proposed in the conversation; None where it began before this driver did."""

    async def resume(self, run: Run) -> None:
        """Nothing is read: the conversation is when the model is called next, since a rescue may not need it."""
        if self._proposed is None and run.next_position <= 1 and run.step_count <= 1:
            self._proposed = set()

    def appended(self, append: Append) -> None:
        """Keep what was said."""
        bodies: dict[str, bytes] = {}
        for said in append.payloads:
            if type(said) is MessageBody:
                bodies[said.message_id] = said.body
        if not bodies:
            return
        run, wall = append.after, append.at.wall
        for event in append.events:
            if type(event) is MessageAppended and (body := bodies.get(event.message_id)) is not None:
                self._own[event.position] = MessageRow(
                    event.message_id, run.conversation_id, run.id, event.step_id, event.call_id, event.position,
                    event.role, body, wall,
                )  # fmt: skip

    def go_on(self, d: Draft, start: Start | None) -> list[str]:
        """Every call has its result: the run's end, where one of them gave its result, else the next model call."""
        if d.run.result_step_id is not None:
            # A user's message that came meanwhile undoes the result; a note does not.
            d.place_queued()
            if d.run.result_step_id is not None:
                complete_run(d, None)
                return []
        if start is None:
            return []
        try:
            step = start_model_call(d, start, self._input_hash(d), self._rules)
        except NotAllowed as refusal:
            if refusal.code not in _BUDGET:
                raise
            fail_run(d, refusal.code)
            return []
        return [step.id]

    def _input_hash(self, d: Draft) -> str:
        # The conversation is append-only: what the model is sent is named by the agent and a position.
        return digest(f"{self._agent.input_hash}:{d.run.conversation_id}:{d.run.next_position}".encode())

    async def call_model(self, run: Run, step: Step) -> ModelResponse | Shortened:
        """One request: the conversation up to now, or its older part to be summarised where it has become too long."""
        self._history.extend(await self._said(run))
        bound = self._agent.history_tokens
        up_to = None
        stopped = sum(attempt.code == SUMMARY_STOPPED for attempt in step.attempts)
        # The last turn is not spent on a summary, nor what no model of the agent's is let summarise.
        if bound is not None and run.turns < run.limits.turns_max and stopped < len(self._agent.models):
            up_to = cut_of(self._history, bound)
        if up_to is not None:
            request = compaction_request(self._history, up_to, self._agent.settings)
            return Shortened(await self._ask(run, step, request, shown=False), up_to)
        messages = (*await self._begin(run), *await self._messages(run))
        request = ModelRequest(self._agent.instructions, messages, self._agent.specs, self._agent.settings)
        return await self._ask(run, step, request)

    async def _said(self, run: Run) -> list[MessageRow]:
        """What was said since the history was taken in: from memory where this process said all of it."""
        own, self._own = self._own, {}
        rows: list[MessageRow] = []
        for position in range(self._history.position + 1, run.next_position):
            if position not in own:
                return await self._ctx.store.messages(run.tenant_id, run.conversation_id, self._history.position)
            rows.append(own[position])
        return rows

    async def _messages(self, run: Run) -> tuple[WireMessage, ...]:
        """What is sent as it is, with the reasoning that a provider wants back with the results of a batch."""
        if self._history.reasoning_ref is None:
            return self._history.messages
        try:
            data = await self._ctx.store.blob(run.tenant_id, self._history.reasoning_ref)
        except Unreadable:
            return self._history.messages  # It was for another run of this conversation, which is over.
        return self._history.with_reasoning(msgspec.json.decode(data, type=Reasoning).text)

    async def _ask(self, run: Run, step: Step, request: ModelRequest, *, shown: bool = True) -> ModelResponse:
        model = self._models.of(step)
        with self._ctx.tracing.model(run, step, model.name) as span:
            async with asyncio.timeout(step.rules.timeout_s):
                answer = read_answer(await self._answer(run, step, model, request, shown=shown), model.name)
            span.note(tracing.RESPONSE_MODEL, answer.model or None)
            span.note(tracing.FINISH_REASONS, [answer.finish])
            span.note(tracing.INPUT_TOKENS, answer.usage.input_tokens)
            span.note(tracing.OUTPUT_TOKENS, answer.usage.output_tokens)
        return answer

    async def _answer(self, run: Run, step: Step, model: Model, request: ModelRequest, *, shown: bool) -> object:
        stream: Streaming | None = getattr(model, "stream", None)
        if stream is None or self._texts is None or not shown or not self._texts.wanted(run.id):
            return await from_inside(lambda: model.complete(request))
        with self._texts.writing(run.id, step.id, step.attempt) as emit:
            return await from_inside(lambda: stream(request, emit))

    async def _begin(self, run: Run) -> list[NoteMessage]:
        summary, notes = self._history.summary, self._history.notes
        if summary is None:
            return []
        # A note may tell what became of a call: the list is read again then.
        if self._opening is None or self._opening[1:] != (summary.up_to, notes):
            acted = await self._ctx.store.acted(run.tenant_id, run.conversation_id)
            self._opening = (opening(summary, acted), summary.up_to, notes)
        return [self._opening[0]]

    async def record_model(self, run: Run, answer: object) -> RecordModel:
        """The answer's calls checked and hashed; the command writes them down and ends the run if there are none."""
        if isinstance(answer, Shortened):
            body = summary_body(answer.response, answer.up_to, self._agent.history_tokens or 0)
            return _RecordSummary(redact_json(self._ctx.redactor, body), _spent(answer.response))
        assert isinstance(answer, ModelResponse)
        whole = answer.finish not in UNFINISHED
        calls = await Preparer(self._ctx, self._agent, self._proposed).prepare(run, answer.calls, whole=whole)
        kept = None if not calls else self._reasoning(run, answer.reasoning)
        message = assistant_body(answer, None if kept is None else kept.ref)
        body = redact_json(self._ctx.redactor, message)
        result = None
        if not calls and not self._agent.output:
            result = redact_json(self._ctx.redactor, msgspec.json.encode({"text": _stored_text(body)}))
        had = self._history.reasoning_ref is not None
        told, code = UNFINISHED.get(answer.finish, (None, ""))
        if any(self._history.ends_with(note) for note, _ in UNFINISHED.values()):
            return _Record(body, result, calls, _spent(answer), kept, had, told, code)
        return _Record(body, result, calls, _spent(answer), kept, had, told)

    def _reasoning(self, run: Run, text: str | None) -> BlobPut | None:
        """The transient blob. Signed text cannot be redacted: with a known secret in it, nothing is kept."""
        if text is None or len(text) > REASONING_CHARACTERS_MAX or self._ctx.redactor.has_known(text) is not None:
            return None
        # The run and its place make it a blob of this batch alone, which may go when the batch is answered.
        data = msgspec.json.encode(Reasoning(run.id, run.next_position, clean_text(text)))
        return BlobPut(digest(data), data, "transient")

    def sort_model_error(self, step: Step, error: Exception) -> tuple[Outcome, bool]:
        """How the attempt ended, and whether a person is asked: see `Models.sort_error`."""
        return self._models.sort_error(step, error)


class _Record:
    """Records one answer: its message, its calls, and the run's end if there are none.

    Without a `result` only a call can give it, and the model is told so. `unfinished` is what it is told of an answer
    that was cut off or filtered: half an answer is no result. After a second one in a row `code` ends the run.
    """

    def __init__(
        self,
        body: bytes,
        result: bytes | None,
        calls: list[ProposedCall],
        spent: Spent,
        reasoning: BlobPut | None,
        had_reasoning: bool,
        unfinished: str | None,
        code: str = "",
    ) -> None:
        self._unfinished = unfinished
        self._code = code
        self._reasoning = reasoning
        self._had_reasoning = had_reasoning
        self._body = body
        self._result = result
        self._calls = calls
        self._spent = spent
        self.known = known_calls(calls)

    def __call__(self, d: Draft, step_id: str, attempt: int, questions: Questions) -> None:
        record_model_answer(d, step_id, attempt, self._body, self._calls, self._spent)
        if self._had_reasoning:
            d.carry(TransientDrop())
        if self._reasoning is not None:
            d.carry(self._reasoning)
        if self._calls or d.run.queued:
            return
        if self._unfinished is not None:
            # Also before the end: whoever takes the run up goes on behind it.
            note(d, result_body(self._unfinished))
            if self._code:
                fail_run(d, self._code)
        elif self._result is None:
            note(d, result_body(REMINDER))
        else:
            complete_run(d, self._result)


class _RecordSummary:
    """Records a summary: from here on it stands for the older part of the history."""

    def __init__(self, body: bytes, spent: Spent) -> None:
        self.known: dict[str, tuple[dict[str, object], bytes]] = {}
        self._body = body
        self._spent = spent

    def __call__(self, d: Draft, step_id: str, attempt: int, questions: Questions) -> None:
        record_summary(d, step_id, attempt, self._body, self._spent)


def _spent(response: ModelResponse) -> Spent:
    usage = response.usage
    return Spent(usage.input_tokens, usage.output_tokens, usage.cost_microdollars or 0)


def _stored_text(body: bytes) -> str:
    text = msgspec.json.decode(body)["text"]
    assert isinstance(text, str)
    return text
