"""Where the exact request of a step stands: in its view, where that shows all of it, else in a blob of its own."""

from __future__ import annotations

from surefoot.core.canonical import digest
from surefoot.store.port import StepRow, Store


async def request_of(store: Store, tenant_id: str, row: StepRow) -> bytes:
    """The exact bytes that a step sends. Raises Unreadable where they are missing or do not fit their hash."""
    ref = row.step.input_ref
    if ref is not None and row.safe_input is not None and digest(row.safe_input) == ref:
        return row.safe_input
    return await store.blob(tenant_id, ref or "")


async def request(store: Store, tenant_id: str, step_id: str) -> bytes:
    """The same for a step of which only the id is known. Raises NotFound and Unreadable."""
    return await request_of(store, tenant_id, await store.step(tenant_id, step_id))
