"""Deliveries of GitHub's about what a simulated story has made there, as a server takes them."""

from __future__ import annotations

import msgspec

from surefoot import Surefoot
from surefoot.server.webhooks import take_delivery
from surefoot.testing.github_state import stamp
from surefoot.testing.reports import Told, report
from surefoot.testing.wire import Applied
from surefoot.testing.world import BOT


async def deliver(sf: Surefoot, told: Told) -> bool:
    """A comment by its delivery; everything else, and what is not seen, by a report."""
    if told.entry is None or told.entry.kind != "comment":
        return await report(sf, told)
    return await take_delivery([sf], "issue_comment", delivery_of(told.entry)) in ("settled", "known", "repeated")


def delivery_of(entry: Applied) -> bytes:
    """The body, which is the same each time that it is sent."""
    repo, _, number = entry.place.partition("#")
    comment = {
        "id": entry.resource_id,
        "body": entry.text,
        "user": {"id": BOT.id, "login": BOT.login},
        "created_at": stamp(entry.at),
        "html_url": f"https://github.com/{repo}/pull/{number}#issuecomment-{entry.resource_id}",
    }
    made = {
        "action": "created",
        "issue": {"number": int(number)},
        "comment": comment,
        "repository": {"full_name": repo},
        "sender": comment["user"],
    }
    return msgspec.json.encode(made)
