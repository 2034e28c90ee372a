"""Links to one question, to be sent to a person: signed by the keyring, with an end, for exactly what was asked.

    https://agents.example/links/<what it is about>.<k>.<mac>

A link is bound to the action and its input_hash. One that names a person is their authority to decide, whoever may read
it: send it where only they read. One that names nobody shows nothing and decides nothing without logging in.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from surefoot.core.marker import Keyring
from surefoot.core.state import Action
from surefoot.core.values import clean_text
from surefoot.errors import InvalidInput, NotAllowed

PATH = "/links/"
LINK_SECONDS_DEFAULT = 86_400.0
LINK_SECONDS_MAX = 365 * 86_400.0
CHARACTERS_MAX = 2_000
_LABEL = b"surefoot link 1"


class Link(msgspec.Struct, frozen=True, array_like=True):
    """What a link says."""

    tenant: str
    action_id: str
    input_hash: str
    expires_at: int
    """wall, whole seconds"""
    person: str | None = None
    """Whoever holds the link decides as this person."""
    permission: str | None = None
    """Who has logged in needs this permission besides what the action needs: `billing`."""


def link_to(
    action: Action,
    tenant: str,
    wall: float,
    *,
    person: str | None = None,
    permission: str | None = None,
    seconds: float = LINK_SECONDS_DEFAULT,
) -> Link:
    """A link to this action, which ends after `seconds` or with the action. Raises InvalidInput."""
    if not 0 < seconds <= LINK_SECONDS_MAX or (person is not None and not person.strip()):
        raise InvalidInput(
            f"a link lasts more than 0 and at most {LINK_SECONDS_MAX:.0f} seconds, and names a person or nobody"
        )
    ends = wall + seconds if action.expires_wall is None else min(wall + seconds, action.expires_wall)
    who = None if person is None else clean_text(person.strip())
    return Link(tenant, action.id, action.input_hash, int(ends), who, permission)


def write_link(keyring: Keyring, link: Link) -> str:
    """The link's path."""
    data = msgspec.json.encode(link)
    mac = keyring.mac(_LABEL, (data.decode(),))
    return f"{PATH}{base64.urlsafe_b64encode(data).decode().rstrip('=')}.{keyring.key_id}.{mac}"


def read_link(keyring: Keyring, text: str, wall: float) -> Link:
    """The link behind PATH. Raises NotAllowed: `link_forged` (also cut, or of another server), `link_expired`."""
    forged = NotAllowed("this link is not one of this server's, or was cut on its way", code="link_forged")
    parts = text.split(".")
    if len(text) > CHARACTERS_MAX or len(parts) != 3:
        raise forged
    try:
        data = base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4))
        signed = data.decode()
    except (binascii.Error, ValueError):
        raise forged from None
    # Every bit of the text is checked: another spelling of the same bytes is another link.
    spelled = base64.urlsafe_b64encode(data).decode().rstrip("=") == parts[0]
    if not keyring.verifies(_LABEL, (signed,), parts[2], key_id=parts[1]) or not spelled:
        raise forged
    link = msgspec.json.decode(data, type=Link)
    if wall >= link.expires_at:
        raise NotAllowed("this link is over; look at the inbox, or ask for another", code="link_expired")
    return link
