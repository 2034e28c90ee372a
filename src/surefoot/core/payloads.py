"""What rides on an append beside the events: redacted views, message bodies, blobs. The core passes them on unread."""

from __future__ import annotations

import msgspec


class MessageBody(msgspec.Struct, frozen=True, gc=False):
    """The content of a message named by a message_queued or message_appended event. `body` is JSON, redacted."""

    message_id: str
    body: bytes


class BlobPut(msgspec.Struct, frozen=True, gc=False):
    """Bytes addressed by content: `ref` is their sha256 in hex. Writing the same bytes twice is one blob."""

    ref: str
    data: bytes
    retention: str = "request"


class TransientDrop(msgspec.Struct, frozen=True, gc=False):
    """The run's transient blobs go, before the append's own blobs are written."""


AS_TOLD = b""
"""The output of a step whose view is what the model was told: the message has it, and it is not stored twice."""


class StepView(msgspec.Struct, frozen=True, gc=False):
    """Redacted JSON views of a step's input or output; None leaves a column as it is. An output may be AS_TOLD."""

    step_id: str
    safe_input: bytes | None = None
    safe_output: bytes | None = None


class ActionView(msgspec.Struct, frozen=True, gc=False):
    """What the person is shown: redacted arguments, and a preview with text, warnings, difference, links; both JSON."""

    action_id: str
    arguments: bytes
    preview: bytes


class ActionAnswer(msgspec.Struct, frozen=True, gc=False):
    """What the person answered beside the decision; `reason` is redacted text, `answer` JSON."""

    action_id: str
    reason: str | None = None
    answer: bytes | None = None


class EvidenceDetail(msgspec.Struct, frozen=True, gc=False):
    """One row of evidence; `detail` is JSON (how it was looked up, coverage)."""

    step_id: str
    attempt: int | None
    verdict: str
    source: str
    reason: str | None
    resource_id: str | None
    resource_url: str | None
    detail: bytes


class RunResult(msgspec.Struct, frozen=True, gc=False):
    """The run's result as redacted JSON."""

    result: bytes


class ClaimKey(msgspec.Struct, frozen=True, gc=False):
    """The step takes a business key. The append raises Conflict if another step holds it that has not failed."""

    operation_key: str
    step_id: str
    input_hash: str


Payload = (
    MessageBody | BlobPut | TransientDrop | StepView | ActionView | ActionAnswer | EvidenceDetail | RunResult | ClaimKey
)


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A question to a person, prepared by the runtime: a minted id, what is shown, and how long it stays open."""

    action_id: str
    arguments: bytes
    preview: bytes
    permission: str | None = None
    expires_s: float | None = None


def result_body(content: object, *, code: str | None = None) -> bytes:
    """The body of a tool result or a note: JSON with `content`; `code` marks bad news for the model."""
    return msgspec.json.encode({"content": content, "code": code, "is_error": code is not None})


def shows(body: bytes, view: bytes) -> bool:
    """Whether the content of a result's body is this view, byte for byte."""
    return body.startswith(b'{"content":%b,"code":' % view)
