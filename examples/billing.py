"""A tool of one's own: send an invoice, once, through a billing service that has no idempotency keys.

The service keeps a `reference` with each invoice and lists its invoices, so the effect can be looked for: class lookup.

    export BILLING_URL=https://billing.example.com BILLING_TOKEN=...
    python examples/billing.py 81 900
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from surefoot import (
    Absent,
    Agent,
    Approval,
    Found,
    Operation,
    Receipt,
    Surefoot,
    Undetermined,
    effects,
    errors,
    run_sync,
    tool,
)
from surefoot.http import Client, client

PAGES_MAX = 100


def billing(op: Operation) -> Client:
    """The service, for one call. The token has a name here; its value never reaches the store."""
    token = op.secret("BILLING_TOKEN")
    if token is None:
        raise effects.Refused("BILLING_TOKEN is not set: give the worker one")
    return client(op, base_url=os.environ["BILLING_URL"], headers={"Authorization": f"Bearer {token}"})


async def find_invoice(op: Operation) -> Found | Absent | Undetermined:
    """Every invoice since the first send, searched for our key. Where one cannot be read this raises: undetermined."""
    since = datetime.fromtimestamp(op.search_from, UTC).isoformat()
    async with billing(op) as http:
        for page in range(1, PAGES_MAX + 1):
            listed = (await http.get("/invoices", params={"since": since, "page": page})).json()
            if not isinstance(listed, list):
                return Undetermined(f"page {page} is no list")
            for invoice in listed:
                if invoice["reference"] == op.key:
                    return Found(receipt_of(invoice))
            if not listed:
                return Absent(coverage={"since": since, "pages": page})
    return Undetermined(f"more than {PAGES_MAX} pages")


@tool(
    effect=effects.lookup(find_invoice, settle=30),
    approval=Approval(when=lambda amount_cents: amount_cents >= 10_000, permission="billing", expires=3_600),
    identity=("invoice_id",),
    timeout=10,
    credential="BILLING_TOKEN",
)
async def send_invoice(op: Operation, invoice_id: str, amount_cents: int) -> Receipt:
    """Send an invoice to its customer.

    Args:
        invoice_id: The number of the invoice.
        amount_cents: The amount in cents.
    """
    order = {"invoice": invoice_id, "amount_cents": amount_cents, "reference": op.key}
    async with billing(op) as http:
        created = (await http.post("/invoices", json=order)).json()
    if not isinstance(created, dict):
        raise effects.InDoubt("the service answered without an invoice")
    return receipt_of(created)


def receipt_of(invoice: Mapping[str, object]) -> Receipt:
    """An id and a link are all that a receipt needs."""
    return Receipt(resource_id=str(invoice["id"]), url=str(invoice["url"]), output={"status": invoice["status"]})


clerk = Agent(
    name="clerk",
    model="openai:gpt-5",
    instructions="Send the invoices that you are asked for, each once, and say what you sent.",
    tools=[send_invoice],
)


async def main(invoice_id: str, amount_cents: int) -> None:
    """The same guarantee without an agent: run it twice, kill it in between, and there is one invoice."""
    async with Surefoot("sqlite:///billing.db") as sf:
        call = send_invoice.call(invoice_id=invoice_id, amount_cents=amount_cents)
        try:
            receipt = await sf.perform(call, key=invoice_id)
        except errors.ApprovalPending as waiting:
            print(f"surefoot --store sqlite:///billing.db actions approve {waiting.details['action_id']}")
        else:
            print(receipt.resource_id, receipt.url)


if __name__ == "__main__":
    run_sync(main(sys.argv[1], int(sys.argv[2])))
