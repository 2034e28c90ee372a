"""A clerk who mails invoices under their business keys, and whose replies are lost."""

from __future__ import annotations

from surefoot import Agent, Operation, Receipt, effects, tool
from surefoot.testing.model import FakeModel


def clerk(sent: list[str]) -> Agent:
    """Mails invoice 81; `sent` gets the keys. Nobody can look for a mail."""

    @tool(effect=effects.opaque, key=lambda invoice: invoice)
    async def mail(op: Operation, invoice: str) -> Receipt:
        """Mail an invoice."""
        sent.append(op.key)
        raise effects.InDoubt("the connection broke")

    return Agent("clerk", FakeModel([[("mail", {"invoice": "81"})], "Done."]), tools=[mail])
