"""One attempt of one tool call: run it, bound its time, and sort what became of it into one of four ends.

A straight list: bind, run, wait, sort. Whatever a tool returns or raises, exactly one Outcome comes out.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType

import msgspec

from surefoot.core import policy
from surefoot.core.attempts import Outcome
from surefoot.core.facts import mended
from surefoot.core.payloads import result_body
from surefoot.core.reconcile import Look
from surefoot.core.redact import Redactor, safe_error
from surefoot.core.state import EffectClass, Rules, Step
from surefoot.core.text import clean_text, cut
from surefoot.core.values import encode_output
from surefoot.doors import Doors
from surefoot.effects import InDoubt, NotSent, Operation, Receipt, Refused
from surefoot.errors import InvalidInput
from surefoot.runtime.registry import RunnableTool

RESULT_BYTES_MAX = 256 * 1024
"""What of a result is kept for the model and the views; the rest is cut, with a note."""
FACT_CHARACTERS_MAX = 8_000
"""The same for an id, a link or an error of a receipt."""
RECEIPT_ERROR = "receipt_error"
"""The code of a result that is a receipt with bad news."""
RETRY_AFTER_SECONDS_DEFAULT = 60.0
RETRY_AFTER_SECONDS_MAX = 7 * 86_400.0
CANCEL_GRACE_SECONDS = 2.0
"""How long a call that was told to stop may take until it counts as one that does not end."""
DOUBTFUL_REPEATS = frozenset({409, 412, 422})
"""Refusals that may be the echo of an earlier attempt of the same step."""


def is_async(function: object) -> bool:
    """Whether calling `function` gives a coroutine, as far as can be seen: a decorator may hide it."""
    of_object = getattr(type(function), "__call__", None)  # noqa: B004 - not whether it can be called, but how
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object)


class Call:
    """A call under way: a task on the loop, or a thread with a future that follows it.

    `done` resolves when the function has really ended, so that the attempt is over; a cancelled wait does not end it.
    A function whose decorator hides that it is async gives its coroutine from a thread: that is awaited here too.
    """

    def __init__(self, function: Callable[[], object], *, is_async: bool) -> None:
        self._task: asyncio.Task[object] | None = None
        self._told_to_stop = False
        self.done: asyncio.Future[object] = self._in_task(function) if is_async else self._in_thread(function)
        self.done.add_done_callback(_seen)

    def cancel(self) -> None:
        """Tell it to stop. A thread cannot be told."""
        self._told_to_stop = True
        if self._task is not None:
            self._task.cancel()

    def _in_task(self, function: Callable[[], object]) -> asyncio.Task[object]:
        async def run() -> object:
            try:
                value = function()
                if isinstance(value, CoroutineType) or inspect.isawaitable(value):
                    value = await value
            except (SystemExit, KeyboardInterrupt) as problem:
                # One tool does not end the worker of all the others.
                raise RuntimeError(type(problem).__name__) from problem
            return _one_value(value)

        self._task = asyncio.get_running_loop().create_task(run())
        return self._task

    def _in_thread(self, function: Callable[[], object]) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def settle(value: object, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None and inspect.isawaitable(value):
                self._in_task(lambda: value).add_done_callback(lambda ended: _follow(future, ended))
                if self._told_to_stop:
                    self.cancel()
            elif error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def run() -> None:
            value, error = None, None
            try:
                value = _one_value(function())
            except BaseException as problem:
                # StopIteration cannot be carried by a future; it is what `next(...)` raises where nothing is left.
                fits = isinstance(problem, Exception) and not isinstance(problem, StopIteration)
                error = problem if fits else RuntimeError(type(problem).__name__)
            # A closed loop: the process is ending, the row says running, and the next worker looks.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, error)

        # A daemon thread: a call that never ends must not keep a worker from ending.
        threading.Thread(target=run, name="surefoot-call", daemon=True).start()
        return future


def _one_value(value: object) -> object:
    """`value`. Raises TypeError for a generator: what was to be done has not even begun, and is no success."""
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        raise TypeError("it returned a generator, none of whose code has run; return one value")
    return value


def _seen(done: asyncio.Future[object]) -> None:
    """Whoever gave the call up is told nothing; the loop would complain of an error that nobody has looked at."""
    if not done.cancelled():
        done.exception()


def _follow(future: asyncio.Future[object], ended: asyncio.Task[object]) -> None:
    if future.done():
        return
    error = None if ended.cancelled() else ended.exception()
    if ended.cancelled():
        future.cancel()
    elif error is None:
        future.set_result(ended.result())
    else:
        future.set_exception(error)


async def run_call(
    doors: Doors, tool: RunnableTool, op: Operation, arguments: dict[str, object], rules: Rules, redactor: Redactor
) -> tuple[Outcome, Call | None]:
    """One attempt, to its sorted end. The Call is returned where it may still be under way (`over` is False)."""
    sorter = Sorter(tool.name, op, rules, redactor, doors.entropy.fraction())
    if doors.clock.now().mono > op.first_byte_before:
        # The one check that a tool with a client of its own gets; surefoot.http checks again at the socket.
        return sorter.sort_error(NotSent("the time in which the call could begin has passed")), None
    try:
        function = tool.make_call(op, arguments)
    except InvalidInput as problem:
        return sorter.refused("invalid_arguments", str(problem)), None

    def passage() -> object:
        doors.hook("tool", "before")
        return function()

    call = Call(passage, is_async=tool.is_async)
    try:
        ended = await wait_call(doors, call, op.last_byte_before - doors.clock.now().mono)
    except asyncio.CancelledError:
        # The worker stops or lost its lease: the call is told to end. Unless it says what it did, that is not known.
        call.cancel()
        await asyncio.wait({call.done}, timeout=CANCEL_GRACE_SECONDS)
        if not call.done.done():
            return sorter.doubt("worker_stopped", over=False), call
        if not _ended_by_itself(call.done):
            # Its end is not that of all it awaited: a thread of the tool's own, say, which may act until the time-out.
            return sorter.doubt("worker_stopped", over=False), None
        ended = True
    if not ended:
        call.cancel()
        # Told to stop as well: it is asked for the same once more, and may not be forgotten.
        with contextlib.suppress(asyncio.CancelledError):
            await wait_call(doors, call, CANCEL_GRACE_SECONDS)
        if not call.done.done():
            return sorter.doubt("timeout", over=False), call
        if call.done.cancelled():
            return sorter.doubt("timeout"), None
    try:
        doors.hook("tool", "after")
    except Exception as problem:
        return sorter.sort_error(problem), None
    return sorter.sort(call.done), None


def _ended_by_itself(done: asyncio.Future[object]) -> bool:
    """Whether a call that was told to stop says what it did: by a result, or by an error that is meant to say so."""
    if done.cancelled():
        return False
    error = done.exception()
    return error is None or isinstance(error, (NotSent, Refused, InDoubt))


async def wait_call(doors: Doors, call: Call, seconds: float) -> bool:
    """Wait for the end of a call, at most so long; True if it has ended."""
    if not call.done.done():
        # A bare future and the loop's own timer: this is on the path of every call.
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake(done: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = loop.call_later(max(seconds, 0.0), wake)
        call.done.add_done_callback(wake)
        try:
            await waiter
        finally:
            timer.cancel()
            call.done.remove_done_callback(wake)
    return call.done.done()


class Sorter:
    """Sorts what a tool did into the closed set of ends."""

    def __init__(self, tool_name: str, op: Operation, rules: Rules, redactor: Redactor, jitter: float) -> None:
        self._name = tool_name
        self._op = op
        self._read = rules.effect is EffectClass.read
        self._redactor = redactor
        self._jitter = jitter

    def sort(self, done: asyncio.Future[object]) -> Outcome:
        """The outcome of a call that has ended."""
        if done.cancelled():
            return self.doubt("cancelled")
        error = done.exception()
        if error is not None:
            return self.sort_error(error)
        return self.applied(done.result())

    def sort_error(self, error: BaseException) -> Outcome:
        """The outcome of a call that raised."""
        text = safe_error(error, self._redactor)
        if isinstance(error, NotSent):
            return Outcome("not_sent", code="not_sent", again_s=self._backoff(), body=self._body(text, "not_sent"))
        if isinstance(error, Refused):
            if error.status in DOUBTFUL_REPEATS and self._op.earlier_may_be_sent:
                return self.doubt("conflict_after_doubt")
            code = "refused" if error.retry_after is None else "refused_for_now"
            return self.refused(code, text, error.retry_after)
        if isinstance(error, InDoubt):
            return self.doubt("in_doubt" if error.status is None else f"http_{error.status}", text)
        if self._read and not isinstance(error, asyncio.CancelledError):
            return self.refused("tool_error", text)
        return self.doubt("exception", text)

    def applied(self, value: object) -> Outcome:
        """A receipt, or the plain value of a tool, as result and view. A problem with a result never repeats a call."""
        receipt = value if isinstance(value, Receipt) else Receipt(output=value)
        return Outcome("applied", look=receipt_look(receipt, self._redactor, source="worker"))

    def refused(self, code: str, text: str, retry_after: float | None = None) -> Outcome:
        """The target certainly did not act."""
        return Outcome("refused", code=code, again_s=_wait_s(retry_after), body=self._body(text, code))

    def doubt(self, code: str, text: str = "", *, over: bool = True) -> Outcome:
        """Nobody knows."""
        body = self._body(text or f"The call failed and may be tried again later ({code}).", code)
        return Outcome("in_doubt", code=code, over=over, again_s=self._backoff(), body=body)

    def _backoff(self) -> float:
        return policy.backoff(self._op.attempt - 1, self._jitter)

    def _body(self, text: str, code: str) -> bytes:
        return result_body(f"{self._name}: {text}", code=code)


def _wait_s(retry_after: object) -> float | None:
    """What a tool says about when to try again, made fit: seconds, finite, from 0 to RETRY_AFTER_SECONDS_MAX."""
    if retry_after is None:
        return None
    if not isinstance(retry_after, int | float) or retry_after != retry_after:
        return RETRY_AFTER_SECONDS_DEFAULT
    return min(max(float(retry_after), 0.0), RETRY_AFTER_SECONDS_MAX)


def receipt_look(receipt: Receipt, redactor: Redactor, *, source: str) -> Look:
    """A receipt as evidence with its result for the model; read leniently, cut and redacted."""
    output, notes = (b"null", []) if receipt.output is None else encode_output(receipt.output, RESULT_BYTES_MAX)
    facts: dict[str, str] = {}
    for name, fact in (("resource_id", receipt.resource_id), ("url", receipt.url), ("error", receipt.error)):
        text = None if fact is None else fact_text(fact, redactor)
        if text is not None and (text.strip() or name == "error"):
            facts[name] = text
    content: dict[str, object] = {**facts}
    if receipt.output is not None or facts.keys() <= {"error"}:
        content["output"] = msgspec.Raw(output)
    if notes:
        content["notes"] = notes
    whole = msgspec.Raw(output) if content.keys() == {"output"} else msgspec.Raw(msgspec.json.encode(content))
    safe = redact_json(redactor, bytes(whole))
    body = msgspec.json.encode(
        {
            "content": msgspec.Raw(safe),
            "code": RECEIPT_ERROR if receipt.error is not None else None,
            "is_error": receipt.error is not None,
        }
    )
    resource_id, url = mended(facts.get("resource_id"), facts.get("url"))
    return Look(
        "found",
        source=source,
        resource_id=resource_id,
        url=url,
        body=body,
        safe_output=view_json(redactor, safe),
    )


def shown_receipt(step: Step, safe_output: bytes | None) -> Receipt:
    """The receipt that `receipt_look` has made the view of, or the plain value of a tool, which may look like one."""
    shown: object = msgspec.json.decode(safe_output or b"null")
    receipt = Receipt(resource_id=step.external_resource_id, url=step.resource_url, output=shown)
    if isinstance(shown, dict):
        has_facts = bool(receipt.resource_id or receipt.url) and not shown.keys().isdisjoint(("resource_id", "url"))
        if has_facts or (shown.keys() >= {"error", "output"} and isinstance(shown["error"], str)):
            return msgspec.structs.replace(receipt, output=shown.get("output"), error=shown.get("error"))
    return receipt


def fact_text(fact: object, redactor: Redactor) -> str:
    """An id, a link or an error as a text under the value rule, of a bounded length and without known secrets."""
    try:
        text = str(fact)
    except Exception:
        text = type(fact).__name__
    return cut(redactor.text(clean_text(text[: 4 * FACT_CHARACTERS_MAX])), FACT_CHARACTERS_MAX)[0]


def redact_json(redactor: Redactor, data: bytes) -> bytes:
    """JSON with known secret values replaced; the same bytes where there is none."""
    if redactor.has_known(data) is None:
        return data
    return msgspec.json.encode(redactor.value(msgspec.json.decode(data)))


def view_json(redactor: Redactor, data: bytes) -> bytes:
    """The same with the second net over it, for rows that people read."""
    return view_and_flags(redactor, data)[0]


def view_and_flags(redactor: Redactor, data: bytes) -> tuple[bytes, list[str]]:
    """The view, and the names of what in it only looked like a secret; the view itself does not hold them any more."""
    plain = data.decode("utf-8", "replace")
    text, flags = redactor.patterns(plain)
    if not flags and text == plain:
        return data, []
    shown, flags = redactor.patterns_value(msgspec.json.decode(data))
    return msgspec.json.encode(shown), flags
