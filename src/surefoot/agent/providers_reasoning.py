"""What a provider wants back beside text and calls: signed reasoning and signatures, as an opaque text of the port.

It is sent to the same model only, in the place where it stood, and never shown. A text that does not fit is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pydantic_ai import messages as wire

from surefoot.agent.model import AssistantMessage


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of an answer in its place; texts and arguments stand in the conversation, not here."""

    kind: str
    content: str = ""
    id: str | None = None
    signature: str | None = None
    provider: str | None = None
    details: dict[str, object] | None = None


class Kept(msgspec.Struct, frozen=True):
    """The parts of one answer, and which model gave it."""

    model: str
    parts: tuple[Part, ...]


def kept_of(answer: wire.ModelResponse, name: str) -> str | None:
    """What to keep of an answer until its calls are answered, or None where the provider signed nothing."""
    signed = any(
        (isinstance(part, wire.ThinkingPart) and part.signature)
        or (isinstance(part, wire.ToolCallPart) and part.provider_details)
        for part in answer.parts
    )
    if not signed:
        return None
    parts: list[Part] = []
    for part in answer.parts:
        if not isinstance(part, wire.ThinkingPart | wire.TextPart | wire.ToolCallPart):
            return None
        reasoning = isinstance(part, wire.ThinkingPart)
        content = part.content if isinstance(part, wire.ThinkingPart) else ""
        signature = part.signature if isinstance(part, wire.ThinkingPart) else None
        if reasoning and not signature:
            continue
        parts.append(Part(part.part_kind, content, part.id, signature, part.provider_name, part.provider_details))
    try:
        return msgspec.json.encode(Kept(name, tuple(parts))).decode()
    except (TypeError, UnicodeEncodeError):
        return None


def restored(
    message: AssistantMessage, calls: list[wire.ToolCallPart], name: str
) -> list[wire.ModelResponsePart] | None:
    """The answer's parts as the model gave them, or None where nothing is kept, or not for this model."""
    if message.reasoning is None:
        return None
    try:
        kept = msgspec.json.decode(message.reasoning, type=Kept)
    except msgspec.DecodeError:
        return None
    if kept.model != name or sum(part.kind == "tool-call" for part in kept.parts) != len(calls):
        return None
    left, said, out = list(calls), message.text, list[wire.ModelResponsePart]()
    for part in kept.parts:
        own = {"id": part.id, "provider_name": part.provider, "provider_details": part.details}
        if part.kind == "thinking":
            out.append(_with(wire.ThinkingPart(part.content, signature=part.signature), own))
        elif part.kind == "tool-call":
            out.append(_with(left.pop(0), own))
        elif said.strip():
            # The conversation has one text an answer: it stands where the first one stood.
            out.append(_with(wire.TextPart(said), own))
            said = ""
    if said.strip():
        out.insert(len(out) - len(calls), wire.TextPart(said))
    return out


def _with(part: wire.ModelResponsePart, own: Mapping[str, object]) -> wire.ModelResponsePart:
    for field, value in own.items():
        setattr(part, field, value)
    return part
