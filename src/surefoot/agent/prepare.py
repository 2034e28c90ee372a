"""From a call that a model or a caller proposed to a ProposedCall: checked, hashed, limited, asked about if need be.

In this order: known tool, valid arguments, no secret in them, limits, business key, the same action again, approval.
Every refusal comes before any question to a person and before any send.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.builtin import delay_of, is_question, question_seconds, question_shown
from surefoot.agent.model import CallPart
from surefoot.agent.output import FINAL_RESULT, Output
from surefoot.agent.tools import Tool
from surefoot.core.decide import ProposedCall, Refusal, key_reused
from surefoot.core.payloads import Ask
from surefoot.core.state import STEP_ENDS, ActionKind, EffectClass, Rules, Run
from surefoot.core.values import canonical, clean_text, digest
from surefoot.errors import InvalidInput, Unreadable
from surefoot.runtime.context import Context
from surefoot.runtime.execute import redact_json, view_and_flags, view_json
from surefoot.runtime.late import fate_of_failed
from surefoot.runtime.questions import make_ask
from surefoot.runtime.ready import asked_of, read_precondition

_UNKNOWN_RULES = Rules(effect=EffectClass.read)
ARGUMENT_BYTES_MAX = 1024 * 1024
_NAME_CHARACTERS_MAX = 200
"""Of a name that a model invented."""


class Preparer:
    """Prepares the calls of one answer; later ones are compared with earlier ones of the same answer too."""

    def __init__(
        self, ctx: Context, agent: Agent | None, proposed: set[str] | None = None, *, asks_owner: bool = True
    ) -> None:
        """`proposed` are all actions that were proposed in the conversation so far, where the caller knows them.

        Without `asks_owner` nobody is asked who holds a business key: the commit that takes it will tell.
        """
        self._ctx = ctx
        self._agent = agent
        self._identities: set[str] = set()
        self._proposed = proposed
        self._asks_owner = asks_owner
        self._has_result = False

    async def prepare(self, run: Run, calls: Sequence[CallPart], *, whole: bool = True) -> list[ProposedCall]:
        """One ProposedCall for each call, in order. Reads the store, sends nothing.

        Of an answer that is not `whole` the last call may have lost its arguments: none are no arguments then.
        """
        if whole or not calls or calls[-1].arguments.strip():
            return [await self._one(run, call) for call in calls]
        return [*[await self._one(run, call) for call in calls[:-1]], self._lost(calls[-1])]

    def _lost(self, call: CallPart) -> ProposedCall:
        text = f"{call.name}: the answer was cut off before the arguments of this call. Call it again."
        return self._refused(call, "invalid_arguments", text, self._agent.tools.get(call.name) if self._agent else None)

    async def _one(self, run: Run, call: CallPart) -> ProposedCall:
        if self._agent is not None and self._agent.output is not None and call.name == FINAL_RESULT:
            return self._result(call, self._agent.output)
        tool = None if self._agent is None else self._agent.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._agent.tools)) if self._agent is not None else ""
            return self._refused(call, "unknown_tool", f"There is no tool {call.name!r}; the tools are: {known}.")
        try:
            arguments = tool.check_arguments(call.arguments)
        except InvalidInput as problem:
            return self._refused(call, "invalid_arguments", str(problem), tool)
        return await self.call(run, tool, arguments)

    async def call(
        self, run: Run, tool: Tool, arguments: dict[str, object], business_key: str | None = None
    ) -> ProposedCall:
        """The same for arguments that were checked already, and perhaps a business key of the caller."""
        data = canonical(arguments)
        part = CallPart("", tool.name, "")
        secret = self._ctx.redactor.has_known(data)
        if secret is not None:
            text = f"The arguments hold the secret {secret}. Secrets are never arguments; the tool takes them by name."
            return self._refused(part, "secret_in_arguments", text, tool)
        if len(data) > ARGUMENT_BYTES_MAX:
            return self._refused(part, "too_large", f"The arguments have more than {ARGUMENT_BYTES_MAX} bytes.", tool)
        limit = tool.refusal(arguments)
        if limit is not None:
            return self._refused(part, "limit", limit, tool)
        try:
            key = business_key or tool.operation_key(arguments)
        except InvalidInput as problem:
            return self._refused(part, "invalid_key", str(problem), tool)
        secret = None if key is None else self._ctx.redactor.has_known(key)
        if secret is not None:
            # It stands in every row of the call, and goes out with it.
            text = f"The key of this call holds the secret {secret}. Secrets are never keys."
            return self._refused(part, "secret_in_arguments", text, tool)
        return await self._checked(run, tool, arguments, data, key)

    async def _checked(
        self, run: Run, tool: Tool, arguments: dict[str, object], data: bytes, key: str | None
    ) -> ProposedCall:
        target = tool.target_text(arguments) or None
        input_ref = digest(data)
        input_hash = digest(canonical([input_ref, tool.name, tool.version, target, tool.credential]))
        owner, refusal = await self._owner(key, (input_ref, target, tool.credential))
        identity = None if tool.effect.name == "read" else tool.identity_hash(arguments)
        repeat = await self._repeat(run, identity) if key is None and identity is not None else None
        safe_input, flags = view_and_flags(self._ctx.redactor, data)
        gate, question = None, None
        if is_question(tool):
            question = self._question(tool, arguments, safe_input)
        elif refusal is None and owner is None:
            gate = await self._gate(run, tool, arguments, target, safe_input, flags, repeat)
        return ProposedCall(
            tool_name=tool.name,
            tool_version=tool.version,
            rules=self._ctx.registry.rules_for(tool),
            input_ref=input_ref,
            input_hash=input_hash,
            data=data,
            safe_input=safe_input,
            identity_hash=identity,
            target=target,
            credential=tool.credential,
            business_key=key,
            owner_step_id=owner,
            refusal=refusal,
            gate=gate,
            question=question,
            delay_s=delay_of(tool, arguments),
        )

    def _result(self, call: CallPart, output: Output) -> ProposedCall:
        """The run's result: checked here, and never executed."""
        if self._has_result:
            return self._refused(call, "result_given", f"{FINAL_RESULT} was called in this answer already.")
        try:
            data = canonical(output.check(call.arguments))
        except InvalidInput as problem:
            return self._refused(call, "invalid_arguments", str(problem))
        secret = self._ctx.redactor.has_known(data)
        if secret is not None:
            return self._refused(call, "secret_in_arguments", f"The result holds the secret {secret}.")
        if len(data) > ARGUMENT_BYTES_MAX:
            return self._refused(call, "too_large", f"The result has more than {ARGUMENT_BYTES_MAX} bytes.")
        self._has_result = True
        return ProposedCall(
            tool_name=FINAL_RESULT,
            tool_version="",
            rules=_UNKNOWN_RULES,
            input_ref=None,
            input_hash=digest(data),
            data=None,
            safe_input=view_json(self._ctx.redactor, data),
            result=data,
        )

    def _question(self, tool: Tool, arguments: dict[str, object], safe_input: bytes) -> Ask:
        return make_ask(
            self._ctx.doors,
            ActionKind.ask,
            tool_name=tool.name,
            target=None,
            safe_input=safe_input,
            permission=None if tool.approval is None else tool.approval.permission,
            expires_s=question_seconds(tool, arguments),
            shown=question_shown(tool, msgspec.json.decode(safe_input, type=dict[str, object])),
        )

    async def _owner(
        self, key: str | None, asked: tuple[str, str | None, str | None]
    ) -> tuple[str | None, Refusal | None]:
        """Who holds the business key: the same bytes, target and credential are answered from there, all else refused.

        Not the hash that an approval binds to: another version of the tool, asked for the same, means the same effect.
        """
        if key is None or not self._asks_owner:
            return None, None
        held = await self._ctx.store.key_owner(self._ctx.tenant_id, key)
        if held is None:
            return None, None
        try:
            owner = await self._ctx.store.step(self._ctx.tenant_id, held.step_id)
            fate = await fate_of_failed(self._ctx, owner)
        except Unreadable:
            return held.step_id, None  # this call waits until that one can be read, and is compared with it then
        if fate == "nothing":
            return None, None
        if asked_of(owner.step) != asked:
            return None, key_reused(key)
        return held.step_id, None

    async def _repeat(self, run: Run, identity: str) -> str | None:
        """Why this is the same action again, in words for the person; None if it is not."""
        if identity in self._identities:
            return "The same call stands twice in this answer of the model."
        self._identities.add(identity)
        if self._proposed is not None and identity not in self._proposed:
            self._proposed.add(identity)
            return None
        earlier = await self._ctx.store.same_action(run.tenant_id, run.conversation_id, identity)
        if earlier is None:
            return None
        if earlier.step.status in STEP_ENDS:
            where = earlier.step.resource_url or earlier.step.external_resource_id or earlier.step.id
            undone = " and was undone since" if await fate_of_failed(self._ctx, earlier) == "nothing" else ""
            return f"The same action was already done in this conversation{undone}: {where}."
        return f"The same action is still unresolved in this conversation: {earlier.step.id}."

    async def _gate(
        self,
        run: Run,
        tool: Tool,
        arguments: dict[str, object],
        target: str | None,
        safe_input: bytes,
        flags: list[str],
        repeat: str | None,
    ) -> Ask | None:
        if repeat is None and not tool.needs_approval(arguments):
            return None
        shown: dict[str, object] = {"tool_version": tool.version, "repeat": repeat is not None}
        warnings = [] if repeat is None else [repeat]
        warnings += [f"The arguments hold what looks like a secret ({flag})." for flag in flags]
        if tool.precondition is not None:
            shown["precondition"] = await self._precondition(run, tool, arguments)
        approval = tool.approval
        return make_ask(
            self._ctx.doors,
            ActionKind.approve,
            tool_name=tool.name,
            target=target,
            safe_input=safe_input,
            warnings=tuple(warnings),
            permission=None if approval is None else approval.permission,
            expires_s=self._ctx.registry.rules_for(tool).approval_expires_s,
            shown=shown,
        )

    async def _precondition(self, run: Run, tool: Tool, arguments: dict[str, object]) -> object:
        """What holds now: shown at approval, compared again before the send."""
        return await read_precondition(self._ctx, self._ctx.reading(run.id, tool.name), tool, arguments)

    def _refused(self, call: CallPart, code: str, text: str, tool: Tool | None = None) -> ProposedCall:
        # The arguments of a refused call are not stored as a request: there will be none.
        raw = redact_json(self._ctx.redactor, msgspec.json.encode({"arguments": call.arguments[:2_000]}))
        return ProposedCall(
            tool_name=self._ctx.redactor.text(clean_text(call.name[:_NAME_CHARACTERS_MAX])),
            tool_version="" if tool is None else tool.version,
            rules=_UNKNOWN_RULES if tool is None else self._ctx.registry.rules_for(tool),
            input_ref=None,
            input_hash=digest(raw),
            data=None,
            safe_input=view_json(self._ctx.redactor, raw),
            refusal=Refusal(code, self._ctx.redactor.text(text)),
        )
