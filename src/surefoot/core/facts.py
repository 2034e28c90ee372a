"""Ids and links of what calls made, and names of who did it: refused where a person or a program gives a bad one,
mended where a tool does.

An effect has happened, whatever its id looks like: so what comes out of a tool or a lookup is never refused.
"""

from __future__ import annotations

import re

from surefoot.core.text import clean_text
from surefoot.errors import InvalidInput

ID_CHARACTERS_MAX = 1_000
NAME_CHARACTERS_MAX = 500
LINK_CHARACTERS_MAX = 2_000
REASON_CHARACTERS_MAX = 10_000
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LINK = re.compile(r"(?i:https?)://(?:[^\s/?#\\@:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#][^\s\\]*)?")


def check_id(text: str | None, name: str) -> str | None:
    """The id as it is kept. Raises InvalidInput for one that is blank, too long, or holds control characters."""
    if text is None:
        return None
    plain = text.strip() if isinstance(text, str) else ""
    if not plain or len(plain) > ID_CHARACTERS_MAX or _CONTROL.search(plain):
        raise InvalidInput(
            f"{name} is the id of what was made: 1 to {ID_CHARACTERS_MAX} characters on one line, not blank"
        )
    return plain


def check_link(text: str | None, name: str) -> str | None:
    """The link as it is kept. Raises InvalidInput for what nobody may follow."""
    if text is None:
        return None
    plain = text.strip() if isinstance(text, str) else ""
    if not is_link(plain):
        raise InvalidInput(
            f"{name} is a link to what was made: http:// or https:// and a host, at most {LINK_CHARACTERS_MAX} "
            "characters, without blanks"
        )
    return plain


def check_name(value: object, name: str) -> str:
    """Whose act something is, or from where it came, as it is kept: under the value rule.

    Raises InvalidInput for what is no text, blank, or too long. An event that held it could not be read again.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > NAME_CHARACTERS_MAX:
        raise InvalidInput(f"{name} is a text of 1 to {NAME_CHARACTERS_MAX} characters, and not blank")
    return clean_text(value)


def is_one_line(text: str) -> bool:
    """Whether it holds no control character, and nothing that no store can keep."""
    return _CONTROL.search(text) is None


def check_reason(text: str | None) -> None:
    """Raises InvalidInput for a reason that is no text, or that nobody would read."""
    if text is not None and not isinstance(text, str):
        raise InvalidInput(f"a reason is a text, not {type(text).__name__}")
    if text is not None and len(text) > REASON_CHARACTERS_MAX:
        raise InvalidInput(f"a reason has at most {REASON_CHARACTERS_MAX} characters, this one has {len(text)}")


def is_link(text: str) -> bool:
    """Whether people may follow it from a page."""
    return len(text) <= LINK_CHARACTERS_MAX and _LINK.fullmatch(text) is not None and not _CONTROL.search(text)


def mended(resource_id: str | None, url: str | None) -> tuple[str | None, str | None]:
    """The id and the link of a receipt as they are kept: none that is blank, and no link that nobody may follow.

    What was given as a link and is none becomes the id where there is no other.
    """
    own = None if resource_id is None else _CONTROL.sub("\ufffd", resource_id.strip())[:ID_CHARACTERS_MAX] or None
    given = None if url is None else url.strip() or None
    if given is None or is_link(given):
        return own, given
    return own or _CONTROL.sub("\ufffd", given)[:ID_CHARACTERS_MAX], None
