"""One request on its way through the World: who asks for what, and the shapes of pages and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from surefoot.testing import github_state as gh
from surefoot.testing.github_hub import Hub, Made
from surefoot.testing.wire import Reply, WireRequest, json_reply

BODY_CHARACTERS_MAX = 65_536
PER_PAGE_MAX = 100
PER_PAGE_DEFAULT = 30


class HttpError(Exception):
    """Ends a call with an error reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class View(msgspec.Struct, frozen=True):
    """How far behind and how disordered the listings are."""

    listing_age_seconds: float = 0.0
    count_age_seconds: float = 0.0
    shift: int = 0
    newest_first: bool = False


class Call:
    """One request on its way through the hub: who asks, when, and what it did."""

    def __init__(self, hub: Hub, request: WireRequest, account: gh.Account, now: float, view: View) -> None:
        self.hub = hub
        self.request = request
        self.account = account
        self.now = now
        self.view = view
        self.base = _base(request)
        self.query = request.query
        self.parts: tuple[str, ...] = ()
        self.made: Made | None = None
        self.listed: tuple[int, ...] | None = None

    def repo(self, *, write: bool = False) -> gh.Repo:
        """The repository that the path names. Raises HttpError: 404 if it may not be seen, 301 or 307 if it moved."""
        name = f"{self.parts[0]}/{self.parts[1]}"
        repo = self.hub.repos.get(name)
        if repo is None and name in self.hub.old_names:
            raise self.moved(f"/repositories/{self.hub.repos[self.hub.old_names[name]].id}", f"/repos/{name}")
        if repo is None or (repo.readers is not None and self.account.login not in repo.readers):
            raise fail(404, "Not Found")
        if write and repo.writers is not None and self.account.login not in repo.writers:
            raise fail(403, "Resource not accessible by personal access token")
        return repo

    def issue(self, *, write: bool = False) -> tuple[gh.Repo, gh.Issue]:
        """The issue that the path names. Raises HttpError as `repo` does, 410 if it was deleted."""
        repo = self.repo(write=write)
        issue = repo.issues.get(int(self.parts[2]))
        if issue is None:
            raise fail(404, "Not Found")
        if issue.deleted:
            raise fail(410, "This issue was deleted")
        if issue.moved_to is not None:
            target, number = issue.moved_to
            raise self.moved(f"/repos/{target}/issues/{number}", f"/repos/{repo.full_name}/issues/{issue.number}")
        return repo, issue

    def pull(self, *, write: bool = False) -> tuple[gh.Repo, gh.Issue, gh.Pull]:
        """The pull request that the path names."""
        repo, issue = self.issue(write=write)
        if issue.pull is None:
            raise fail(404, "Not Found")
        return repo, issue, issue.pull

    def json(self) -> Mapping[str, object]:
        """The body. Raises HttpError 400 if it is no JSON object."""
        try:
            return msgspec.json.decode(self.request.body, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise fail(400, "Problems parsing JSON") from None

    def text(self, name: str, resource: str) -> str:
        """A text of the body. Raises HttpError 422 if it is missing or too long."""
        value = self.json().get(name)
        if not isinstance(value, str) or not value.strip():
            raise invalid(resource, name, "missing_field", f"{name} can't be blank")
        if len(value) > BODY_CHARACTERS_MAX:
            message = f"{name} is too long (maximum is {BODY_CHARACTERS_MAX} characters)"
            raise invalid(resource, name, "unprocessable", message)
        return value

    def page(self, items: Sequence[tuple[int, object]]) -> Reply:
        """One page of `items` (id and view), with GitHub's Link header."""
        per_page = min(max(_number(self.query, "per_page", PER_PAGE_DEFAULT), 1), PER_PAGE_MAX)
        page = max(_number(self.query, "page", 1), 1)
        turned = _turn(items, self.view, page)
        shown = turned[(page - 1) * per_page : page * per_page]
        self.listed = tuple(number for number, _ in shown)
        last = max(-(-len(items) // per_page), 1)
        links = [(last, "last"), (page + 1, "next")] if page < last else []
        links += [(page - 1, "prev"), (1, "first")] if page > 1 else []
        header = ", ".join(f'<{self._page_url(number)}>; rel="{rel}"' for number, rel in sorted(links))
        return json_reply(200, [view for _, view in shown], {"link": header} if header else {})

    def moved(self, new: str, old: str) -> HttpError:
        """The redirect from a resource's old path: 301 for reads, 307 for writes, as GitHub answers."""
        status = 301 if self.request.method in ("GET", "HEAD") else 307
        location = self.base + self.request.target.replace(old, new, 1)
        body = {"message": "Moved Permanently", "url": location, "documentation_url": "https://docs.github.com/rest"}
        return HttpError(json_reply(status, body, {"location": location}))

    def _page_url(self, number: int) -> str:
        return f"{self.base}{self.request.path}?{urlencode({**self.query, 'page': str(number)})}"


def fail(status: int, message: str, headers: Mapping[str, str] | None = None) -> HttpError:
    """An error in GitHub's shape."""
    return HttpError(json_reply(status, gh.error_body(status, message), headers))


def invalid(resource: str, field: str, code: str, message: str) -> HttpError:
    """GitHub's 422."""
    errors: list[Mapping[str, object]] = [{"resource": resource, "field": field, "code": code, "message": message}]
    return HttpError(json_reply(422, gh.error_body(422, "Validation Failed", errors)))


def _base(request: WireRequest) -> str:
    host = request.headers.get("host")
    return "https://api.github.com" if host in (None, "api.github.com") else f"http://{host}"


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    return int(text) if text.isdecimal() else default


def _turn(items: Sequence[tuple[int, object]], view: View, page: int) -> list[tuple[int, object]]:
    ordered = list(reversed(items)) if view.newest_first else list(items)
    places = view.shift * (page - 1) % len(ordered) if ordered else 0
    return ordered[len(ordered) - places :] + ordered[: len(ordered) - places]
