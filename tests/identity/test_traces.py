"""Spans of a story, from an exporter in memory: names, attributes, links over restarts, and nothing that was said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.runtime import tracing
from surefoot.testing.model import FakeModel
from surefoot.testing.world import TOKEN
from tests.github.rig import BODY
from tests.identity.rig import SECRET, rig_of
from tests.places import Place
from tests.support import eventually


class Spans:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """As in a program that has set up its SDK; only surefoot's own tracer writes to it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    yield Spans(exporter)
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_story_with_doubt_is_a_trace(place: Place, monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        await rig.deliver(rig.delivery())
        done = await rig.sf.wait(run_id, timeout=20)
    (root,) = spans.named("invoke_agent reviewer")
    assert root.parent is None and root.kind is SpanKind.INTERNAL and root.links == ()
    assert attributes(root) == {
        tracing.OPERATION: "invoke_agent", tracing.AGENT_NAME: "reviewer", tracing.AGENT_VERSION: done.agent_version,
        tracing.CONVERSATION: done.conversation_id, tracing.TENANT: "default", tracing.RUN_ID: run_id,
        tracing.RUN_STATUS: "completed",
    }  # fmt: skip
    context = root.get_span_context()
    assert context is not None
    for span in spans.all():
        found = span.get_span_context()
        assert found is not None and found.trace_id == context.trace_id
        assert span is root or (span.parent is not None and span.parent.span_id == context.span_id)
    chats = [span for span in spans.all() if span.name.startswith("chat ")]
    assert len(chats) == 2 and all(span.kind is SpanKind.CLIENT for span in chats)
    first = attributes(chats[0])
    assert first[tracing.OPERATION] == "chat" and first[tracing.FINISH_REASONS] == ("tool_calls",)
    assert tracing.INPUT_TOKENS in first and first[tracing.STEP_ID] == done.steps[0].id
    (call,) = spans.named("execute_tool create_issue_comment")
    step = next(s for s in done.steps if s.type == "tool_call")
    told = attributes(call)
    assert told[tracing.CALL_ID] == step.call_id and told[tracing.OPERATION_KEY] == step.operation_key
    assert (told[tracing.ATTEMPT], told[tracing.ATTEMPT_END], told[tracing.EFFECT]) == (1, "in_doubt", "lookup")
    assert call.status.status_code is StatusCode.ERROR and told[tracing.ERROR_TYPE] == "in_doubt"
    looks = spans.named("lookup create_issue_comment")
    assert looks and {attributes(look)[tracing.VERDICT] for look in looks} == {"undetermined"}


async def test_what_was_said_is_in_no_span(place: Place, monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run = await rig.sf.start("reviewer", "Review it, canary-input")
        await rig.sf.wait(run.id, timeout=20)
    text = spans.text()
    assert len(spans.all()) >= 4
    for said in (BODY[:10], "canary-input", "Done.", TOKEN, "Review."):
        assert said not in text


async def test_a_run_that_is_taken_up_again_links_to_its_last_trace(
    place: Place, monkeypatch: pytest.MonkeyPatch, spans: Spans
) -> None:
    sent: list[str] = []

    @tool(effect=effects.opaque, approval="always")
    async def send(op: Operation, text: str) -> Receipt:
        """Send it."""
        sent.append(text)
        return Receipt(resource_id="1")

    def process() -> Surefoot:
        model = FakeModel([[("send", {"text": "hello"})], "Done."], by="history")
        agent = Agent(name="sender", model=model, instructions="Send.", tools=[send])
        return Surefoot(place.url, [agent], worker=True, secret=SECRET)

    async with process() as sf:
        run = await sf.start("sender", "Go")
        await sf.wait(run.id, timeout=20)
        kept = await sf.store.marked("default", tracing.MARK, run.id)
    async with process() as sf:
        (row,) = await sf.actions(status="waiting")
        await sf.approve(row.action.id, by="ann")
        assert (await sf.wait(run.id, timeout=20)).status == "completed"
    first, second = spans.named("invoke_agent sender")
    begun, again = first.get_span_context(), second.get_span_context()
    assert begun is not None and again is not None and begun.trace_id != again.trace_id
    (link,) = second.links
    assert (link.context.trace_id, link.context.span_id) == (begun.trace_id, begun.span_id)
    assert kept == f"{begun.trace_id:032x}-{begun.span_id:016x}-{int(begun.trace_flags):02x}"
    (call,) = spans.named("execute_tool send")
    assert call.parent is not None and call.parent.span_id == again.span_id
    assert sent == ["hello"] and call.status.status_code is StatusCode.UNSET


async def test_a_model_that_fails_is_an_error_by_its_class(
    place: Place, monkeypatch: pytest.MonkeyPatch, spans: Spans
) -> None:
    class Broken:
        name = "openai:gpt-broken"

        async def complete(self, request: object) -> object:
            raise RuntimeError(f"what was said: {TOKEN} canary-output")

    agent = Agent(name="broken", model=Broken(), instructions="Go.", tools=[])  # type: ignore[arg-type]  # a bad model
    async with Surefoot(place.url, [agent], worker=True, secret=SECRET) as sf:
        await sf.start("broken", "Go")
        await eventually(lambda: spans.named("chat gpt-broken"), "the end of an attempt")
    chat = spans.named("chat gpt-broken")[0]
    told = attributes(chat)
    assert (told[tracing.PROVIDER], told[tracing.REQUEST_MODEL]) == ("openai", "gpt-broken")
    assert (told[tracing.ERROR_TYPE], chat.status.status_code) == ("RuntimeError", StatusCode.ERROR)
    assert chat.events == () and "canary-output" not in spans.text()


def test_without_opentelemetry_in_the_process_nothing_is_loaded(store_url: str) -> None:
    code = (
        "import asyncio, sys\n"
        "from surefoot import Surefoot\n"
        "async def main():\n"
        f"    async with Surefoot('{store_url}') as sf:\n"
        "        print(type(sf.context.tracing).__name__, 'opentelemetry' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["NoTracing", "False"]
