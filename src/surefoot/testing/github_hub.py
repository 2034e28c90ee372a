"""The World's content and everything that other people may do to it, as plain methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from surefoot.testing.github_state import Account, Comment, Issue, IssueEvent, Pull, PullFile, Repo
from surefoot.testing.wire import Reply

FIRST_ID = 2_400_000_001
"""Larger than 32 bits hold, as GitHub's comment ids are."""

CHANGES = (
    "add_repo", "add_issue", "add_pull", "add_comment", "add_comments", "edit_comment", "delete_comment",
    "delete_newest_comment", "delete_issue", "lock_issue", "transfer_issue", "rename_repo", "set_access", "push",
    "revoke_token",
)  # fmt: skip
"""The methods that `change` may call by name, as a fault or from another process."""


class Made(msgspec.Struct, frozen=True):
    """What a call, or somebody, changed."""

    kind: str
    resource_id: int
    place: str
    text: str


class Charge(msgspec.Struct, frozen=True):
    """The first answer under an Idempotency-Key."""

    at: float
    body: bytes
    reply: Reply


class Hub:
    """Repositories, issues, comments and accounts, without requests, faults or a log.

    `now` is the last time that the hub was told; changes without a time of their own happen then. The methods raise
    KeyError for something that does not exist.
    """

    def __init__(
        self,
        *,
        now: float,
        accounts: Mapping[str, Account],
        search_lag_seconds: float,
        key_lifetime_seconds: float,
        deletion_events: bool,
    ) -> None:
        self.now = now
        self.accounts = dict(accounts)
        """Token to account."""
        self.repos: dict[str, Repo] = {}
        self.old_names: dict[str, str] = {}
        self.charges: dict[str, Charge] = {}
        self.search_lag_seconds = search_lag_seconds
        self.key_lifetime_seconds = key_lifetime_seconds
        self.deletion_events = deletion_events
        self.on_change: Callable[[Made, Account], None] = lambda made, account: None
        self._last_id = FIRST_ID - 1
        self._people = {account.login: account for account in accounts.values()}

    def new_id(self) -> int:
        """The next id of the one ascending row of ids."""
        self._last_id += 1
        return self._last_id

    def person(self, login: str) -> Account:
        """The account called `login`, made if there is none yet."""
        if login not in self._people:
            self._people[login] = Account(login, 9_000_000 + len(self._people))
        return self._people[login]

    def change(self, action: str, arguments: Mapping[str, object]) -> None:
        """Do one of CHANGES by its name. Raises ValueError for another name, TypeError for wrong arguments."""
        if action not in CHANGES:
            raise ValueError(f"{action!r} is no change; use one of {', '.join(CHANGES)}")
        getattr(self, action)(**arguments)

    def add_repo(self, full_name: str, *, age_seconds: float = 365 * 86_400.0) -> Repo:
        """A public repository that everybody may write to."""
        repo = self.repos[full_name] = Repo(self.new_id(), full_name, created_at=self.now - age_seconds)
        return repo

    def add_issue(
        self, repo: str, number: int, *, title: str = "An issue", body: str = "", author: str = "octocat"
    ) -> Issue:
        """An issue; its repository is made if there is none."""
        holder = self.repos.get(repo) or self.add_repo(repo)
        issue = Issue(self.new_id(), number, title, body, self.person(author), self.now)
        holder.issues[number] = issue
        return issue

    def add_pull(
        self,
        repo: str,
        number: int,
        *,
        title: str = "A change",
        body: str = "",
        author: str = "octocat",
        diff: str = "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1 +1,2 @@\n line\n+new line\n",
    ) -> Issue:
        """A pull request; its files are read from the diff."""
        issue = self.add_issue(repo, number, title=title, body=body, author=author)
        issue.pull = Pull(diff, head_sha=f"{issue.id:040x}", base_sha=f"{issue.id - 1:040x}", files=files_of(diff))
        return issue

    def add_comment(self, repo: str, number: int, body: str, *, author: str = "stranger") -> Comment:
        """Somebody comments now."""
        return self._comment(repo, number, body, author, self.now)

    def add_comments(
        self, repo: str, number: int, count: int, *, author: str = "stranger", age_seconds: float = 86_400.0
    ) -> list[Comment]:
        """`count` comments that are `age_seconds` old."""
        at = self.now - age_seconds
        return [self._comment(repo, number, f"Comment {n} of {count}", author, at) for n in range(1, count + 1)]

    def edit_comment(self, comment_id: int, body: str) -> None:
        """A comment gets another text."""
        repo, issue, comment = self.find_comment(comment_id)
        comment.body, comment.updated_at = body, self.now
        self._tell("comment_edited", comment.id, repo, issue, body, comment.author)

    def delete_comment(self, comment_id: int) -> None:
        """A comment is deleted by its author."""
        repo, issue, comment = self.find_comment(comment_id)
        self.mark_deleted(issue, comment, comment.author, self.now)
        self._tell("comment_deleted", comment.id, repo, issue, "", comment.author)

    def delete_newest_comment(self, repo: str, number: int, author: str) -> None:
        """The newest comment of `author` is deleted; nothing happens if there is none."""
        mine = self.comments(repo, number, author=author)
        if mine:
            self.delete_comment(mine[-1].id)

    def delete_issue(self, repo: str, number: int) -> None:
        """The issue answers 410 from now on."""
        self.repos[repo].issues[number].deleted = True

    def lock_issue(self, repo: str, number: int) -> None:
        """New comments are refused with 403 from now on."""
        issue = self.repos[repo].issues[number]
        issue.locked = True
        issue.events.append(IssueEvent(self.new_id(), "locked", issue.author, self.now))

    def transfer_issue(self, repo: str, number: int, to_repo: str, to_number: int) -> None:
        """The issue moves, with the time at which it was opened; its old place answers with a redirect."""
        old = self.repos[repo].issues[number]
        new = self.add_issue(to_repo, to_number, title=old.title, body=old.body, author=old.author.login)
        new.comments, old.comments, old.moved_to = old.comments, [], (to_repo, to_number)
        new.created_at = old.created_at

    def rename_repo(self, repo: str, to_repo: str) -> None:
        """The repository gets another name; its old one answers with a redirect."""
        holder = self.repos[to_repo] = self.repos.pop(repo)
        holder.full_name = to_repo
        self.old_names = {old: to_repo if name == repo else name for old, name in self.old_names.items()}
        self.old_names[repo] = to_repo

    def set_access(
        self, repo: str, *, readers: Iterable[str] | None = None, writers: Iterable[str] | None = None
    ) -> None:
        """Who may see (others get 404) and who may write (others get 403); None is everybody."""
        holder = self.repos[repo]
        holder.readers = None if readers is None else set(readers)
        holder.writers = None if writers is None else set(writers)

    def push(self, repo: str, number: int, head_sha: str) -> None:
        """The pull request gets a new head."""
        issue = self.repos[repo].issues[number]
        if issue.pull is None:
            raise KeyError(f"{repo}#{number} is no pull request")
        issue.pull.head_sha = head_sha
        issue.events.append(IssueEvent(self.new_id(), "head_ref_force_pushed", issue.author, self.now))

    def revoke_token(self, token: str) -> None:
        """The token gets 401 from now on."""
        del self.accounts[token]

    def find_comment(self, comment_id: int) -> tuple[Repo, Issue, Comment]:
        """Where a comment is. Raises KeyError if there is none, or if it was deleted."""
        for repo in self.repos.values():
            for issue in repo.issues.values():
                for comment in issue.comments:
                    if comment.id == comment_id and comment.deleted_at is None:
                        return repo, issue, comment
        raise KeyError(f"no comment {comment_id}")

    def mark_deleted(self, issue: Issue, comment: Comment, actor: Account, at: float) -> None:
        """Delete, and list it among the issue's events if `deletion_events` says so."""
        comment.deleted_at = at
        if self.deletion_events:
            issue.events.append(IssueEvent(self.new_id(), "comment_deleted", actor, at))

    def comments(self, repo: str, number: int, *, author: str | None = None) -> list[Comment]:
        """The comments that exist, in order, for a test to judge by."""
        shown = [c for c in self.repos[repo].issues[number].comments if c.deleted_at is None]
        return [c for c in shown if author in (None, c.author.login)]

    def _comment(self, repo: str, number: int, body: str, author: str, at: float) -> Comment:
        holder = self.repos[repo]
        issue = holder.issues[number]
        comment = Comment(self.new_id(), self.person(author), body, at, at)
        issue.comments.append(comment)
        self._tell("comment", comment.id, holder, issue, body, comment.author)
        return comment

    def _tell(self, kind: str, number: int, repo: Repo, issue: Issue, text: str, account: Account) -> None:
        self.on_change(Made(kind, number, f"{repo.full_name}#{issue.number}", text), account)


def files_of(diff: str) -> list[PullFile]:
    """The changed files of a unified diff as git writes it."""
    return [_file(part) for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]]


def _file(part: str) -> PullFile:
    head, _, hunks = part.partition("\n@@")
    lines = hunks.splitlines()[1:]
    status = "added" if "\nnew file" in head else "removed" if "\ndeleted file" in head else "modified"
    return PullFile(
        filename=head.splitlines()[0].rpartition(" b/")[2],
        status=status,
        additions=sum(line.startswith("+") for line in lines),
        deletions=sum(line.startswith("-") for line in lines),
        patch="@@" + hunks.rstrip("\n") if hunks else "",
    )
