"""What all GitHub calls share: the client with its headers, the account behind the credential, pages, places.

The account is asked for once for a credential: GET /user; for an app that is configured here (`github_app`), GET /app
and GET /users/<its name>[bot]. A bare token of an app may not ask: for it SUREFOOT_GITHUB_ACCOUNT names the account as
"login:id"; a token that may ask is asked all the same, and has to be that account's. While it is unknown, comments can
be made but absence cannot be earned: nobody could tell our comments from others'.
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
    """A successful reply that is not what GitHub documents. `reason` is what a lookup says of it."""

    def __init__(self, message: str, *, reason: str = "bad_json") -> None:
        super().__init__(message)
        self.reason = reason


class TooManyPages(Exception):
    """A listing longer than PAGES_MAX pages."""


_accounts: dict[tuple[str, str, str], Account] = {}


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
        self._kept_token = False

    async def __aenter__(self) -> Self:
        if self._app is not None:
            self._token, self._kept_token = await github_app.installation_token(self._op, self._api_url, self._app)
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
        if self._kept_token and not self._op.looking and isinstance(exc, Refused) and exc.status == 401:
            # Revoked before its time: a new one may be taken. A new one that is refused as well ends the call.
            raise Refused(str(exc), retry_after=0.0, status=401) from None

    async def account(self) -> Account | None:
        """The account of the credential, or None where GitHub does not tell and no setting does."""
        setting = os.environ.get(ACCOUNT_SETTING, "")
        known = _accounts.get((*self._known_as, setting))
        if known is None:
            named = _account_of_setting(setting) if setting else None
            known = await self._asked_account() or named
            if known is None:
                return None
            if named is not None and named.id != known.id:
                # Believed, it would hide our own comments from every lookup: they would be a stranger's.
                raise Refused(f"{ACCOUNT_SETTING} is {named.login}:{named.id}, the token is that of {known.login}")
            _accounts[(*self._known_as, setting)] = known
        return known

    async def _asked_account(self) -> Account | None:
        """Whose the credential is by GitHub's own word, or None where it does not tell."""
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
        return Account(text_in(user, "login"), number_in(user, "id"))

    async def account_id(self) -> str:
        """The account's id, "" where it is not known: what a marker is signed for."""
        try:
            found = await self.account()
        except BadAnswer as bad:
            raise Refused(f"GitHub does not say whose the token is: {bad}", retry_after=60.0) from None
        return "" if found is None else str(found.id)

    async def read(self, path: str) -> Mapping[str, object]:
        """A JSON object. Raises BadAnswer for anything else."""
        value = self._whole(await self.http.get(path, reading=True)).json()
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
            items = _items(self._whole(reply))
            yield items
            if len(items) < PER_PAGE and not _NEXT.search(reply.headers.get("link", "")):
                return
        raise TooManyPages

    def _whole(self, reply: Response) -> Response:
        """`reply`, if it is GitHub's own full answer of now. Raises BadAnswer.

        202 is for what is not there yet, 203 for what somebody on the way has changed, 206 for a part. A lookup takes
        no answer that was kept somewhere for a while either, which it had asked not to get.
        """
        if reply.status != 200:
            raise BadAnswer(f"status {reply.status} and not 200", reason="not_whole")
        if self._op.looking and reply.headers.get("age", "0").strip() != "0":
            raise BadAnswer("an answer from a cache", reason="cached")
        return reply


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
