"""What all GitHub calls share: the client with its headers, the account behind the credential, pages, places.

The account is asked for once for a credential: GET /user; for an app that is configured here (`github_app`), GET /app
and GET /users/<its name>[bot]. A bare token of an app may not ask: for it SUREFOOT_GITHUB_ACCOUNT names the account as
"login:id". While it is unknown, comments can be made but absence cannot be earned: nobody could tell our comments from
others'.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec

from surefoot.connectors import github_app
from surefoot.effects import Operation, Refused
from surefoot.errors import InvalidInput
from surefoot.http import Client, Response, client

API_URL = "https://api.github.com"
CREDENTIAL = "GITHUB_TOKEN"
ACCOUNT_SETTING = "SUREFOOT_GITHUB_ACCOUNT"

PER_PAGE = 100
PAGES_MAX = 1_000
NUMBER_MAX = 2**53

_REPO = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_NEXT = re.compile(r"""rel="?next"?""")
_NO_PARAMS: Mapping[str, str] = MappingProxyType({})
_HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "Cache-Control": "no-cache",
}


class Account(msgspec.Struct, frozen=True):
    """A GitHub account. Its id is what counts; a login can be given up and taken by somebody else."""

    login: str
    id: int


class BadAnswer(Exception):
    """A successful reply that is not what GitHub documents."""


class TooManyPages(Exception):
    """A listing longer than PAGES_MAX pages."""


_accounts: dict[tuple[str, str], Account] = {}


class GitHub:
    """GitHub for one call, within `async with`. Methods raise what `surefoot.http` raises, and BadAnswer."""

    http: Client

    def __init__(self, op: Operation) -> None:
        """Raises Refused where the credential is missing."""
        self._op = op
        self._app = github_app.configured_app(op)
        self._token = "" if self._app else (op.secret(CREDENTIAL) or "").strip()
        if not (self._token or self._app):
            raise Refused(f"{CREDENTIAL} is not set: give the worker a GitHub token")
        self._api_url = (os.environ.get("GITHUB_API_URL") or API_URL).rstrip("/")
        name = self._app.name if self._app else hashlib.sha256(self._token.encode()).hexdigest()
        self._known_as = (self._api_url, name)

    async def __aenter__(self) -> Self:
        if self._app is not None:
            self._token = await github_app.installation_token(self._op, self._api_url, self._app)
        headers = {**_HEADERS, "Authorization": f"Bearer {self._token}"}
        self.http = client(self._op, base_url=self._api_url, headers=headers)
        await self.http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._app is not None and isinstance(exc, Refused) and exc.status == 401:
            github_app.forget(self._api_url, self._app)
        await self.http.__aexit__(kind, exc, trace)

    async def account(self) -> Account | None:
        """The account of the credential, or None where GitHub does not tell and no setting does."""
        setting = os.environ.get(ACCOUNT_SETTING)
        if setting:
            return _account_of_setting(setting)
        known = _accounts.get(self._known_as)
        if known is not None:
            return known
        path = "/user"
        if self._app is not None:
            path = f"/users/{await github_app.app_slug(self._op, self._api_url, self._app)}[bot]"
        try:
            user = await self.read(path)
        except Refused as refused:
            # 403: the bare token of an app. 404: an app whose account GitHub does not show.
            if refused.retry_after is None and refused.status == (404 if self._app else 403):
                return None
            raise
        account = Account(text_in(user, "login"), number_in(user, "id"))
        _accounts[self._known_as] = account
        return account

    async def account_id(self) -> str:
        """The account's id, "" where it is not known: what a marker is signed for."""
        try:
            found = await self.account()
        except BadAnswer as bad:
            raise Refused(f"GitHub does not say whose the token is: {bad}", retry_after=60.0) from None
        return "" if found is None else str(found.id)

    async def read(self, path: str) -> Mapping[str, object]:
        """A JSON object. Raises BadAnswer for anything else."""
        value = (await self.http.get(path, reading=True)).json()
        if not isinstance(value, dict):
            raise BadAnswer("not a JSON object")
        return value

    async def pages(
        self, path: str, *, pages_max: int = PAGES_MAX, params: Mapping[str, str] = _NO_PARAMS
    ) -> AsyncGenerator[list[Mapping[str, object]], None]:
        """The pages of a listing, by number, until no next one is announced and the last one was not full.

        Both are asked for: a proxy may drop the Link header, and GitHub may leave an entry out of a page. Raises
        BadAnswer, TooManyPages.
        """
        for page in range(1, pages_max + 1):
            reply = await self.http.get(path, params={**params, "per_page": PER_PAGE, "page": page}, reading=True)
            items = _items(reply)
            yield items
            if len(items) < PER_PAGE and not _NEXT.search(reply.headers.get("link", "")):
                return
        raise TooManyPages


def check_place(repo: str, number: int) -> None:
    """Raises InvalidInput unless `repo` is "owner/name" and `number` a positive number."""
    parts = repo.split("/")
    if not _REPO.fullmatch(repo) or any(part in (".", "..") for part in parts):
        raise InvalidInput('repo has the form "owner/name", with letters, digits, ".", "_" and "-" only')
    if isinstance(number, bool) or not 1 <= number <= NUMBER_MAX:
        raise InvalidInput("the number of an issue or pull request is positive")


def place_of(repo: str, number: int) -> str:
    """Where a comment stands, as people write it: "acme/app#128"."""
    return f"{repo}#{number}"


def number_in(value: Mapping[str, object], name: str) -> int:
    """An integer of a reply. Raises BadAnswer."""
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadAnswer(f"{name} is no number")
    return number


def text_in(value: Mapping[str, object], name: str) -> str:
    """A text of a reply; null counts as empty, as GitHub's bodies do. Raises BadAnswer."""
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadAnswer(f"{name} is no text")
    return text


def object_in(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    """An object of a reply; null counts as empty: GitHub has no user for deleted accounts. Raises BadAnswer."""
    inner = value.get(name)
    if inner is None:
        return {}
    if not isinstance(inner, dict):
        raise BadAnswer(f"{name} is no object")
    return inner


def _items(reply: Response) -> list[Mapping[str, object]]:
    items = reply.json()
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswer("not a JSON list of objects")
    return items


def _account_of_setting(setting: str) -> Account:
    login, _, number = setting.rpartition(":")
    if not login or not number.isdecimal():
        raise Refused(f'{ACCOUNT_SETTING} has the form "login:id", for example "my-app[bot]:41898282"')
    return Account(login, int(number))
