"""What holds in a day in which each process has another code, beside all that holds in every day.

What may come out otherwise than under one code, and nothing else:

- A call that the model proposes while the process that drives the run has no such tool is refused (`unknown_tool`), as
  is one that no agent works on there (`unknown_agent`) and one that does not fit the tool's parameters
  (`invalid_arguments`): that code cannot do it, and the model is told so at once. Nothing of such a call was begun, or
  what was begun is known to have done nothing.
- A call of a tool that is gated there waits for a person, and may be rejected or expire.
- A person is asked once more where the code that is to send is of another version than the one that was approved.
- A call that was tried as often as the code of now allows fails (`attempts_used_up`), or is asked about where one of
  its attempts may have acted. Under one code nothing is tried that often in a day.
- A schedule has runs for the due times of each of its crons; one of them may pass over due times of the other (D5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from surefoot.core import events as ev
from surefoot.core.state import AttemptEnd, StepStatus
from surefoot.testing.checker import Book, Lived, Owner, key_of_request
from surefoot.testing.judge import READING, Outside, as_sent
from surefoot.testing.wire import Received
from tests.day.code import ATTEMPTS_FEWER, Code
from tests.day.laws import steps_of


class Send(msgspec.Struct, frozen=True):
    """A request that arrived, the call that it belongs to, and the version of the tool in the process that sent it."""

    owner: Owner
    post: Received
    version: str | None


class Deployed:
    """A day's runs, what happened outside, and what each process knew."""

    def __init__(self, lived: Sequence[Lived], outside: Outside, codes: Mapping[str, Code]) -> None:
        self.lived = lived
        self.codes = codes
        log, self._commits = as_sent(outside)
        book = Book(log, lived, self._commits, READING)
        self.sends: list[Send] = []
        posts = {entry.request: entry for entry in log if isinstance(entry, Received) and entry.method == "POST"}
        for sent in outside.sent:
            post = posts.get(sent.request)
            owner = None if post is None else book.owners.get(key_of_request(post) or "")
            if post is not None and owner is not None:
                self.sends.append(Send(owner, post, codes[sent.process].tools.get(owner.step.tool_name or "")))

    def approved(self, send: Send) -> str | None:
        """The version that stood in the question under whose approval a request went out; None without one."""
        owner = send.owner
        stamps = [c for c in self._commits if c.run_id == owner.lived.row.run.id and c.entries < send.post.order]
        before = max((commit.event_sequence for commit in stamps), default=0)
        asked = [line.event for line in owner.events() if line.sequence <= before]
        gate = [event.action_id for event in asked if isinstance(event, ev.StepWaitingForApproval)][-1:]
        row = next((row for row in owner.lived.actions if row.action.id in gate), None)
        if row is None:
            return None
        preview = msgspec.json.decode(row.preview, type=dict[str, object])
        return str(preview.get("tool_version", owner.step.tool_version))


def judge_deploys(deployed: Deployed) -> list[str]:
    """Everything that is wrong."""
    found = [text for one in deployed.lived for text in _what_cannot_be_done_was_not_begun(one, deployed)]
    found += [text for one in deployed.lived for text in _tries_are_counted(one)]
    return [*found, *_what_ran_was_approved(deployed)]


def _what_ran_was_approved(deployed: Deployed) -> Iterator[str]:
    """Each send of a gated call is by the version that the person was shown under whose approval it went."""
    for send in deployed.sends:
        shown, step = deployed.approved(send), send.owner.step
        if shown is not None and send.version != shown:
            yield f"D7: {step.id} was approved as version {shown}, and request {send.post.request} is of {send.version}"


_MISSING: Mapping[str, Callable[[Code, str], bool]] = {
    "unknown_tool": lambda code, name: not code.knows(name),
    "unknown_agent": lambda code, name: name not in code.agents or name in code.plain,
    "invalid_arguments": lambda code, name: code.changed.get(name) == "asks_more",
}
"""Of a refusal by its code, whether it may come from a process."""


_NOTHING_DONE = (AttemptEnd.not_sent, AttemptEnd.refused)


def _what_cannot_be_done_was_not_begun(one: Lived, deployed: Deployed) -> Iterator[str]:
    begun = {below.row.run.parent_step_id for below in deployed.lived}
    for step in steps_of(one):
        code, name = step.error_code or "", step.tool_name or ""
        if step.status is not StepStatus.failed or code not in _MISSING:
            continue
        if not any(_MISSING[code](known, name) for known in deployed.codes.values()):
            yield f"D9: {step.id} of {name} failed with {code}, and no process is like that"
        if step.doubtful_attempts or step.receipts or step.id in begun:
            yield f"D9: {step.id} of {name} was begun, and failed with {code}"


def _tries_are_counted(one: Lived) -> Iterator[str]:
    for step in steps_of(one):
        if step.error_code == "attempts_used_up" and (tries := _tries_until_it_failed(one, step.id)) < ATTEMPTS_FEWER:
            yield f"D11: {step.id} had {tries} attempts, and no code allows so few"


def _tries_until_it_failed(one: Lived, step_id: str) -> int:
    """The attempts that counted then: of one it may come out later, behind its lease, that nothing was sent."""
    tries: set[int | None] = set()
    for event in (line.event for line in one.events):
        if isinstance(event, ev.StepEvent) and event.step_id == step_id:
            if isinstance(event, ev.StepFailed):
                break
            if isinstance(event, ev.StepStarted):
                tries.add(event.attempt)
            elif isinstance(event, ev.AttemptEnded | ev.StepDeferred) and event.end in _NOTHING_DONE:
                tries.discard(event.attempt)
    return len(tries)


def seen_of_deploys(deployed: Deployed) -> Counter[str]:
    """How often what such a day is about came up."""
    seen: Counter[str] = Counter()
    versions: dict[str, set[str | None]] = {}
    for send in deployed.sends:
        versions.setdefault(send.owner.step.id, set()).add(send.version)
        seen["sent_by_another_code"] += send.version != send.owner.step.tool_version
    seen["sent_by_two_codes"] = sum(len(found) > 1 for found in versions.values())
    for one in deployed.lived:
        waits = [line.event for line in one.events if isinstance(line.event, ev.StepWaitingForApproval)]
        seen["asked_again"] += sum(count > 1 for count in Counter(event.step_id for event in waits).values())
        for step in steps_of(one):
            seen[f"refused: {step.error_code}"] += step.status is StepStatus.failed and step.error_code in _MISSING
    return seen
