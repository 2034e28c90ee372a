"""Spans of OpenTelemetry, by its conventions for generative AI, where the program has loaded OpenTelemetry.

One trace for each time that a process drives a run: a trace cannot go through a crash. Its first span,
`invoke_agent NAME`, links to that of the last drive, whose place is in the store as soon as a drive begins. Below it
are `chat MODEL`, `execute_tool NAME` and `lookup NAME`, one for each attempt. Spans hold ids, names, counts and codes,
never what was said or sent.

Nothing is imported here: without `opentelemetry.trace` in the process (`opentelemetry-instrument`, or a program that
has set up its SDK before it opened Surefoot) nothing is done. docs/operate.md says how to turn it on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from surefoot.core.redact import Redactor
from surefoot.core.state import Run, Step
from surefoot.errors import StoreError
from surefoot.store.port import Store

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

MARK = "trace"
SCOPE = "surefoot"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
TOOL_NAME = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
TENANT = "surefoot.tenant"
RUN_ID = "surefoot.run.id"
STEP_ID = "surefoot.step.id"
ATTEMPT = "surefoot.attempt"
ATTEMPT_END = "surefoot.attempt.end"
EFFECT = "surefoot.effect"
OPERATION_KEY = "surefoot.operation.key"
VERDICT = "surefoot.reconcile.verdict"
RUN_STATUS = "surefoot.run.status"


class Noted(Protocol):
    """What a span is told of what it is about. Values are ids, names, counts and codes."""

    def note(self, name: str, value: str | int | list[str] | None) -> None:
        """An attribute; None is left out."""
        ...

    def failed(self, code: str) -> None:
        """It did not come to a good end: the code of why."""
        ...


class Tracing(Protocol):
    """Makes spans. Never raises for the sake of a span."""

    def drive(self, run: Run) -> AbstractAsyncContextManager[Noted]:
        """The time for which this process drives the run; what begins inside is below it."""
        ...

    def model(self, run: Run, step: Step, model: str) -> AbstractContextManager[Noted]:
        """One request to a model."""
        ...

    def tool(self, run: Run, step: Step) -> AbstractContextManager[Noted]:
        """One attempt of a call."""
        ...

    def look(self, run_id: str, step: Step) -> AbstractContextManager[Noted]:
        """One lookup."""
        ...


class Untold:
    """A span that nobody sees."""

    def note(self, name: str, value: str | int | list[str] | None) -> None:
        """Nothing."""

    def failed(self, code: str) -> None:
        """Nothing."""


_NOBODY = contextlib.nullcontext(Untold())


class NoTracing:
    """No OpenTelemetry in this process."""

    def drive(self, run: Run) -> AbstractAsyncContextManager[Noted]:
        """Nothing."""
        return _NOBODY

    def model(self, run: Run, step: Step, model: str) -> AbstractContextManager[Noted]:
        """Nothing."""
        return _NOBODY

    def tool(self, run: Run, step: Step) -> AbstractContextManager[Noted]:
        """Nothing."""
        return _NOBODY

    def look(self, run_id: str, step: Step) -> AbstractContextManager[Noted]:
        """Nothing."""
        return _NOBODY


def process_tracing(store: Store, redactor: Redactor) -> Tracing:
    """Spans, if this process has loaded OpenTelemetry; else nothing at all."""
    trace = sys.modules.get("opentelemetry.trace")
    return NoTracing() if trace is None else Spans(trace, store, redactor)


class _Told:
    """A span, told in redacted words."""

    def __init__(self, span: Span, trace: ModuleType, redactor: Redactor) -> None:
        self._span = span
        self._trace = trace
        self._redactor = redactor

    def note(self, name: str, value: str | int | list[str] | None) -> None:
        if isinstance(value, str):
            value = self._redactor.text(value)
        if value is not None:
            self._span.set_attribute(name, value)

    def failed(self, code: str) -> None:
        self.note(ERROR_TYPE, code)
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))


class Spans:
    """Tracing by the OpenTelemetry that the process has loaded."""

    def __init__(self, trace: ModuleType, store: Store, redactor: Redactor) -> None:
        self._trace = trace
        self._tracer = trace.get_tracer(SCOPE)
        self._store = store
        self._redactor = redactor

    @contextlib.asynccontextmanager
    async def drive(self, run: Run) -> AsyncIterator[Noted]:
        """The first span of a trace, with a link to the last one of this run."""
        name = f"invoke_agent {run.agent}"
        with self._tracer.start_as_current_span(
            name, context=_no_parent(), kind=self._trace.SpanKind.INTERNAL, record_exception=False
        ) as span:
            told = self._told(span, "invoke_agent", run)
            # Libraries load the API for themselves: where nobody records, the store is not asked for a place either.
            if span.is_recording():
                if (before := await self._last(run)) is not None:
                    span.add_link(before)
                await self._keep(run, span.get_span_context())
            yield told

    @contextlib.contextmanager
    def model(self, run: Run, step: Step, model: str) -> Iterator[Noted]:
        """One request to a model."""
        provider, colon, name = model.partition(":")
        with self._span(f"chat {name or model}", self._trace.SpanKind.CLIENT) as span:
            told = self._told(span, "chat", run, step)
            told.note(PROVIDER, provider if colon else None)
            told.note(REQUEST_MODEL, name or model)
            try:
                yield told
            except BaseException as error:
                told.failed(type(error).__name__)
                raise

    @contextlib.contextmanager
    def tool(self, run: Run, step: Step) -> Iterator[Noted]:
        """One attempt of a call."""
        with self._span(f"execute_tool {step.tool_name}", self._trace.SpanKind.INTERNAL) as span:
            told = self._told(span, "execute_tool", run, step)
            told.note(OPERATION_KEY, step.operation_key or None)
            yield told

    @contextlib.contextmanager
    def look(self, run_id: str, step: Step) -> Iterator[Noted]:
        """One lookup."""
        with self._span(f"lookup {step.tool_name}", self._trace.SpanKind.INTERNAL) as span:
            told = _Told(span, self._trace, self._redactor)
            _note_step(told, run_id, step)
            yield told

    def _span(self, name: str, kind: object) -> AbstractContextManager[Span]:
        # What a tool or a provider raised may hold what was said: its class is noted, its text is not.
        span: AbstractContextManager[Span] = self._tracer.start_as_current_span(
            name, kind=kind, record_exception=False, set_status_on_exception=False
        )
        return span

    def _told(self, span: Span, operation: str, run: Run, step: Step | None = None) -> _Told:
        told = _Told(span, self._trace, self._redactor)
        told.note(OPERATION, operation)
        told.note(AGENT_NAME, run.agent)
        told.note(CONVERSATION, run.conversation_id)
        if step is None:
            told.note(AGENT_VERSION, run.agent_version)
            told.note(TENANT, run.tenant_id)
            told.note(RUN_ID, run.id)
        else:
            _note_step(told, run.id, step)
        return told

    # The place of the last drive: a crash must not lose it, so it is in the store before the run goes on.

    async def _last(self, run: Run) -> SpanContext | None:
        try:
            kept = await self._store.marked(run.tenant_id, MARK, run.id)
        except StoreError:
            return None
        parts = (kept or "").split("-")
        if len(parts) != 3:
            return None
        ids = (int(parts[0], 16), int(parts[1], 16))
        context: SpanContext = self._trace.SpanContext(
            *ids, is_remote=True, trace_flags=self._trace.TraceFlags(int(parts[2], 16))
        )
        return context

    async def _keep(self, run: Run, context: SpanContext) -> None:
        place = f"{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
        with contextlib.suppress(StoreError):
            await self._store.mark(run.tenant_id, MARK, run.id, place)


def _no_parent() -> object:
    """An empty context: a drive is the beginning of a trace, wherever the worker was started."""
    found = sys.modules["opentelemetry.context"]
    context: object = found.Context()
    return context


def _note_step(told: Noted, run_id: str, step: Step) -> None:
    told.note(RUN_ID, run_id)
    told.note(STEP_ID, step.id)
    told.note(ATTEMPT, step.attempt)
    told.note(TOOL_NAME, step.tool_name)
    told.note(CALL_ID, step.call_id)
    told.note(EFFECT, step.rules.effect.value)
