"""What people do about questions: the methods of `Surefoot` that approve, reject, resolve and answer."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from surefoot.agent.answers import check_answer
from surefoot.core.facts import check_id, check_link
from surefoot.core.people import Decision
from surefoot.core.state import ActionStatus
from surefoot.core.values import canonical
from surefoot.errors import InvalidInput
from surefoot.runtime.context import Context
from surefoot.runtime.deciding import refusals_told
from surefoot.runtime.given import check_status
from surefoot.store.listed import Listed, to_the_end
from surefoot.store.port import ActionRow


class Decisions(ABC):
    """A mixin: each decision is made once, by somebody, about exactly one action."""

    @property
    @abstractmethod
    def context(self) -> Context:
        """The runtime's means; raises InvalidInput outside `async with`."""

    @abstractmethod
    async def _decide(self, action_id: str, decision: Decision) -> ActionRow: ...

    async def actions(self, *, status: str | None = None, run_id: str | None = None) -> Listed[ActionRow]:
        """Questions to people, oldest first; those of a run with those of the runs that work for it.

        `status` is waiting, approved, rejected or expired. Raises InvalidInput for another one. What cannot be read is
        none of them, and stands in `unreadable` of the list.
        """
        check_status(status, ActionStatus)
        store, tenant_id = self.context.store, self.context.tenant_id
        return await to_the_end(
            lambda after: store.actions(tenant_id, status=status, run_id=run_id, below=True, after=after)
        )

    async def approve(
        self,
        action_id: str,
        *,
        by: str,
        reason: str | None = None,
        input_hash: str | None = None,
        key: str | None = None,
        source: str = "program",
    ) -> ActionRow:
        """Approve the exact action. Raises NotFound, AlreadyDecided, NotAllowed (`action_expired`, `input_changed`).

        The same decision by the same person under the same `key` returns what was recorded. `source` is written down
        with it: from where the person decided.
        """
        decision = Decision("approve", by, reason=reason, key=key, input_hash=input_hash, source=source)
        async with refusals_told(self.context, action_id, "approve", by):
            return await self._decide(action_id, decision)

    async def reject(
        self,
        action_id: str,
        *,
        by: str,
        reason: str | None = None,
        input_hash: str | None = None,
        key: str | None = None,
        source: str = "program",
    ) -> ActionRow:
        """Reject the action; the model is told. Raises as `approve` does."""
        decision = Decision("reject", by, reason=reason, key=key, input_hash=input_hash, source=source)
        async with refusals_told(self.context, action_id, "reject", by):
            return await self._decide(action_id, decision)

    async def resolve(
        self,
        action_id: str,
        outcome: str,
        *,
        by: str,
        external_resource_id: str | None = None,
        url: str | None = None,
        reason: str | None = None,
        input_hash: str | None = None,
        key: str | None = None,
        source: str = "program",
    ) -> ActionRow:
        """Say what happened: "happened" (with id or link), "did_not_happen" or "give_up". Raises as `approve` does."""
        async with refusals_told(self.context, action_id, outcome, by):
            resource_id, link = check_id(external_resource_id, "external_resource_id"), check_link(url, "url")
            if outcome == "happened" and resource_id is None and link is None:
                raise InvalidInput("say what happened with its id or its link: external_resource_id=… or url=…")
            decision = Decision(
                outcome,
                by,
                reason=reason,
                input_hash=input_hash,
                key=key,
                external_resource_id=resource_id,
                url=link,
                source=source,
            )
            return await self._decide(action_id, decision)

    async def answer(
        self,
        action_id: str,
        value: object,
        *,
        by: str,
        reason: str | None = None,
        input_hash: str | None = None,
        key: str | None = None,
        source: str = "program",
    ) -> ActionRow:
        """Answer a question with a JSON value that fits its schema. Raises as `approve` does."""
        async with refusals_told(self.context, action_id, "answer", by):
            row = await self.context.store.action(self.context.tenant_id, action_id)
            if (schema := msgspec.json.decode(row.preview).get("schema")) is not None:
                check_answer(schema, value)
            said = canonical(value, "value")
            decision = Decision("answer", by, reason=reason, input_hash=input_hash, key=key, value=said, source=source)
            return await self._decide(action_id, decision)

    async def decide(
        self,
        action_id: str,
        decision: str,
        *,
        by: str,
        reason: str | None = None,
        input_hash: str | None = None,
        external_resource_id: str | None = None,
        url: str | None = None,
        value: object = None,
        key: str | None = None,
        source: str = "program",
    ) -> ActionRow:
        """The decision by its name: approve, reject, answer, or one of the outcomes that `resolve` takes.

        What the named one has no use for is left aside. Raises as `approve` does, and InvalidInput.
        """
        match decision:
            case "approve":
                return await self.approve(
                    action_id, by=by, reason=reason, input_hash=input_hash, key=key, source=source
                )
            case "reject":
                return await self.reject(action_id, by=by, reason=reason, input_hash=input_hash, key=key, source=source)
            case "answer":
                return await self.answer(
                    action_id, value, by=by, reason=reason, input_hash=input_hash, key=key, source=source
                )
            case outcome:
                return await self.resolve(
                    action_id,
                    outcome,
                    by=by,
                    external_resource_id=external_resource_id,
                    url=url,
                    reason=reason,
                    input_hash=input_hash,
                    key=key,
                    source=source,
                )
