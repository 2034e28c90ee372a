"""Deliveries of GitHub's as they are read: what each kind says was made, and what it shows of a place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from surefoot.connectors.github_api import place_of
from surefoot.connectors.github_lookup import receipt_of
from surefoot.effects import Receipt

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """Who did it."""

    id: int
    login: str = ""


class Repository(msgspec.Struct, frozen=True):
    """Where it is."""

    full_name: str


class Comment(msgspec.Struct, frozen=True):
    """What counts of a comment."""

    id: int
    body: str | None
    user: User | None
    created_at: str
    html_url: str = ""


class Review(msgspec.Struct, frozen=True):
    """What counts of a review."""

    id: int
    body: str | None
    user: User | None
    submitted_at: str | None = None
    html_url: str = ""


class Label(msgspec.Struct, frozen=True):
    """A label that an issue has."""

    name: str


class Issue(msgspec.Struct, frozen=True):
    """An issue, or the place of a comment."""

    number: int
    body: str | None = None
    user: User | None = None
    state: str = ""
    labels: list[Label] = []
    created_at: str = ""
    updated_at: str = ""
    html_url: str = ""


class Head(msgspec.Struct, frozen=True):
    """The newest commit of a pull request."""

    sha: str


class PullRequest(msgspec.Struct, frozen=True):
    """A pull request, or the place of a review."""

    number: int
    state: str = ""
    merged: bool | None = None
    merge_commit_sha: str | None = None
    head: Head | None = None
    labels: list[Label] = []
    updated_at: str = ""
    html_url: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """What is read of a delivery; the rest of it is not. Which members there are depends on the event."""

    action: str = ""
    repository: Repository | None = None
    sender: User | None = None
    comment: Comment | None = None
    review: Review | None = None
    issue: Issue | None = None
    pull_request: PullRequest | None = None


class Made(msgspec.Struct, frozen=True):
    """Something that was written on GitHub, and its text, which may hold a marker of ours."""

    event: str
    text: str
    author: User
    place: str
    """What the marker of such a text covers."""
    at: float
    """wall"""
    receipt: Receipt


class Shown(msgspec.Struct, frozen=True):
    """How an issue or a pull request stands after somebody did something to it."""

    event: str
    place: str
    by: User
    at: float
    """wall"""
    number: int
    url: str
    closed: bool
    labels: tuple[str, ...]
    merged_head: str | None = None
    """The head with which a pull request was merged."""
    merge_sha: str | None = None


def made_by(event: str, told: Delivery) -> Made | None:
    """What was written, where it tells of a new text. Raises msgspec.ValidationError where it does not fit."""
    match event, told.action:
        case "issue_comment", "created":
            comment, issue = _there(told.comment, "comment"), _there(told.issue, "issue")
            place = place_of(_repo(told), issue.number)
            return _made(event, comment.body, comment.user, place, comment.created_at, comment.id, comment.html_url)
        case "pull_request_review", "submitted":
            review, pull = _there(told.review, "review"), _there(told.pull_request, "pull_request")
            place = place_of(_repo(told), pull.number)
            return _made(event, review.body, review.user, place, review.submitted_at, review.id, review.html_url)
        case "issues", "opened":
            issue = _there(told.issue, "issue")
            return _made(event, issue.body, issue.user, _repo(told), issue.created_at, issue.number, issue.html_url)
        case _:
            return None


def shown_by(event: str, told: Delivery) -> Shown | None:
    """How a place stands now, where the delivery tells of it. Raises msgspec.ValidationError where it does not fit."""
    if event not in ("issues", "pull_request") or told.action not in ("closed", "labeled"):
        return None
    thing = _there(told.issue, "issue") if event == "issues" else _there(told.pull_request, "pull_request")
    merged = isinstance(thing, PullRequest) and thing.merged is True
    return Shown(
        event,
        place_of(_repo(told), thing.number),
        _there(told.sender, "sender"),
        _seconds(thing.updated_at),
        thing.number,
        thing.html_url,
        thing.state == "closed",
        tuple(label.name for label in thing.labels),
        merged_head=thing.head.sha if isinstance(thing, PullRequest) and merged and thing.head else None,
        merge_sha=thing.merge_commit_sha if isinstance(thing, PullRequest) and merged else None,
    )


def _made(
    event: str, text: str | None, author: User | None, place: str, at: str | None, number: int, url: str
) -> Made | None:
    if author is None or not text:
        return None
    return Made(event, text, author, place, _seconds(at or ""), receipt_of(number, url))


def _there(found: T | None, name: str) -> T:
    if found is None:
        raise msgspec.ValidationError(f"Object missing required field `{name}`")
    return found


def _repo(told: Delivery) -> str:
    return _there(told.repository, "repository").full_name


def _seconds(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
