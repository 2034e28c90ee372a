"""What the World holds, and how GitHub's REST API shows it. Plain records and pure functions of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

JsonObject = dict[str, object]


class Account(msgspec.Struct, frozen=True):
    """Who acts. `kind` is GitHub's "User" or "Bot"."""

    login: str
    id: int
    kind: str = "User"


class Comment(msgspec.Struct):
    """One issue comment. A deleted one is kept, so that a stale view can still show it."""

    id: int
    author: Account
    body: str
    created_at: float
    updated_at: float
    deleted_at: float | None = None

    def visible(self, at: float) -> bool:
        """Whether it existed at `at`."""
        return self.created_at <= at and (self.deleted_at is None or self.deleted_at > at)


class IssueEvent(msgspec.Struct, frozen=True):
    """One line of the issue's history, such as "labeled" or "head_ref_force_pushed"."""

    id: int
    event: str
    actor: Account
    created_at: float


class PullFile(msgspec.Struct, frozen=True):
    """One changed file of a pull request."""

    filename: str
    status: str = "modified"
    additions: int = 1
    deletions: int = 0
    patch: str = "@@ -1 +1,2 @@\n line\n+new line"


class Review(msgspec.Struct):
    """One review of a pull request."""

    id: int
    author: Account
    body: str
    state: str
    submitted_at: float


class Pull(msgspec.Struct):
    """What a pull request has beyond its issue."""

    diff: str
    head_sha: str
    base_sha: str
    files: list[PullFile] = []
    reviews: list[Review] = []
    merged_by: Account | None = None
    merge_commit_sha: str | None = None
    """Set once it is merged."""


class Issue(msgspec.Struct):
    """An issue, or the issue side of a pull request."""

    id: int
    number: int
    title: str
    body: str
    author: Account
    created_at: float
    labels: list[str] = []
    comments: list[Comment] = []
    events: list[IssueEvent] = []
    locked: bool = False
    state: str = "open"
    state_reason: str | None = None
    deleted: bool = False
    moved_to: tuple[str, int] | None = None
    pull: Pull | None = None

    def count(self, at: float) -> int:
        """How many comments there were at `at`."""
        return sum(comment.visible(at) for comment in self.comments)


class Repo(msgspec.Struct):
    """A repository. `readers` None means everybody; others get 404, as GitHub masks what may not be seen."""

    id: int
    full_name: str
    readers: set[str] | None = None
    writers: set[str] | None = None
    issues: dict[int, Issue] = {}
    created_at: float = 0.0

    def next_number(self) -> int:
        """The number that the next issue gets."""
        return max(self.issues, default=0) + 1


def stamp(at: float) -> str:
    """A time as GitHub writes it: whole seconds, rounded down."""
    return datetime.fromtimestamp(int(at // 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def error_body(status: int, message: str, errors: list[Mapping[str, object]] | None = None) -> JsonObject:
    """GitHub's shape of an error."""
    body: JsonObject = {"message": message}
    if errors is not None:
        body["errors"] = errors
    return body | {"documentation_url": "https://docs.github.com/rest", "status": str(status)}


def account_view(account: Account) -> JsonObject:
    """A user as it appears inside other resources and under /user."""
    return {
        "login": account.login,
        "id": account.id,
        "node_id": f"U_{account.id}",
        "type": account.kind,
        "html_url": f"https://github.com/{account.login}",
        "site_admin": False,
    }


def repo_view(repo: Repo, base: str) -> JsonObject:
    """A repository."""
    owner, name = repo.full_name.split("/")
    return {
        "id": repo.id,
        "name": name,
        "full_name": repo.full_name,
        "private": repo.readers is not None,
        "owner": account_view(Account(owner, repo.id + 1, "Organization")),
        "url": f"{base}/repos/{repo.full_name}",
        "html_url": f"https://github.com/{repo.full_name}",
        "created_at": stamp(repo.created_at),
        "default_branch": "main",
        "has_issues": True,
    }


def comment_view(repo: Repo, issue: Issue, comment: Comment, base: str) -> JsonObject:
    """An issue comment."""
    kind = "issues" if issue.pull is None else "pull"
    return {
        "id": comment.id,
        "node_id": f"IC_{comment.id}",
        "url": f"{base}/repos/{repo.full_name}/issues/comments/{comment.id}",
        "html_url": f"https://github.com/{repo.full_name}/{kind}/{issue.number}#issuecomment-{comment.id}",
        "issue_url": f"{base}/repos/{repo.full_name}/issues/{issue.number}",
        "body": comment.body,
        "user": account_view(comment.author),
        "author_association": "CONTRIBUTOR",
        "created_at": stamp(comment.created_at),
        "updated_at": stamp(comment.updated_at),
        "performed_via_github_app": None,
    }


def issue_view(repo: Repo, issue: Issue, base: str, count: int) -> JsonObject:
    """An issue; `count` is its comment count, which may lag."""
    url = f"{base}/repos/{repo.full_name}/issues/{issue.number}"
    kind = "issues" if issue.pull is None else "pull"
    view: JsonObject = {
        "id": issue.id,
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": issue.state,
        "state_reason": issue.state_reason,
        "locked": issue.locked,
        "user": account_view(issue.author),
        "labels": [label_view(name) for name in issue.labels],
        "comments": count,
        "created_at": stamp(issue.created_at),
        "updated_at": stamp(max([issue.created_at, *(c.updated_at for c in issue.comments)])),
        "url": url,
        "comments_url": f"{url}/comments",
        "html_url": f"https://github.com/{repo.full_name}/{kind}/{issue.number}",
        "repository_url": f"{base}/repos/{repo.full_name}",
    }
    if issue.pull is not None:
        view["pull_request"] = {"url": f"{base}/repos/{repo.full_name}/pulls/{issue.number}"}
    return view


def pull_view(repo: Repo, issue: Issue, pull: Pull, base: str, count: int) -> JsonObject:
    """A pull request."""
    view = issue_view(repo, issue, base, count)
    del view["pull_request"]
    return view | {
        "url": f"{base}/repos/{repo.full_name}/pulls/{issue.number}",
        "diff_url": f"https://github.com/{repo.full_name}/pull/{issue.number}.diff",
        "issue_url": f"{base}/repos/{repo.full_name}/issues/{issue.number}",
        "head": {"ref": "feature", "sha": pull.head_sha, "repo": repo_view(repo, base)},
        "base": {"ref": "main", "sha": pull.base_sha, "repo": repo_view(repo, base)},
        "draft": False,
        "merged": pull.merge_commit_sha is not None,
        "merged_by": None if pull.merged_by is None else account_view(pull.merged_by),
        "merge_commit_sha": pull.merge_commit_sha,
        "changed_files": len(pull.files),
        "additions": sum(file.additions for file in pull.files),
        "deletions": sum(file.deletions for file in pull.files),
        "commits": 1,
    }


def file_view(file: PullFile) -> JsonObject:
    """A changed file."""
    return msgspec.structs.asdict(file) | {"changes": file.additions + file.deletions, "sha": "0" * 40}


def review_view(repo: Repo, issue: Issue, review: Review) -> JsonObject:
    """A review."""
    return {
        "id": review.id,
        "user": account_view(review.author),
        "body": review.body,
        "state": review.state,
        "html_url": f"https://github.com/{repo.full_name}/pull/{issue.number}#pullrequestreview-{review.id}",
        "submitted_at": stamp(review.submitted_at),
    }


def label_view(name: str) -> JsonObject:
    """A label."""
    return {"name": name, "color": "ededed", "default": False, "description": None}


def event_view(event: IssueEvent) -> JsonObject:
    """An issue event."""
    return {
        "id": event.id,
        "event": event.event,
        "actor": account_view(event.actor),
        "created_at": stamp(event.created_at),
        "commit_id": None,
    }
