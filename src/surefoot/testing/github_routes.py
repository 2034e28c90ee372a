"""The World's endpoints: one function for each, from a call to a reply.

Two endpoints that are not GitHub's stand for the other two kinds of target: `/mail/messages` can neither drop repeats
nor be searched, and `/billing/charges` drops repeats of an Idempotency-Key.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from surefoot.testing import github_state as gh
from surefoot.testing.github_call import Call, HttpError, fail, invalid
from surefoot.testing.github_hub import Charge, Hub, Made
from surefoot.testing.wire import Reply, json_reply


def dispatch(call: Call) -> Reply:
    """The reply to a call; errors included. HEAD is answered like GET; the server leaves the body out."""
    method = "GET" if call.request.method == "HEAD" else call.request.method
    path = _by_name(call.hub, call.request.path)
    for wanted, pattern, function in ROUTES:
        match = pattern.fullmatch(path)
        if match is not None and wanted == method:
            call.parts = match.groups()
            try:
                return function(call)
            except HttpError as error:
                return error.reply
    return fail(404, "Not Found").reply


def _by_name(hub: Hub, path: str) -> str:
    match = re.fullmatch(r"/repositories/(\d+)(/.*)?", path)
    if match is None:
        return path
    names = [repo.full_name for repo in hub.repos.values() if repo.id == int(match[1])]
    return f"/repos/{names[0]}{match[2] or ''}" if names else path


def get_user(call: Call) -> Reply:
    """GET /user: the account of the token."""
    return json_reply(200, gh.account_view(call.account))


def get_repo(call: Call) -> Reply:
    """GET /repos/{o}/{r}."""
    return json_reply(200, gh.repo_view(call.repo(), call.base))


def get_pull(call: Call) -> Reply:
    """GET /repos/{o}/{r}/pulls/{n}: JSON, or the diff if Accept asks for it."""
    repo, issue, pull = call.pull()
    if re.search(r"application/vnd\.github\.(v3\.)?diff", call.request.headers.get("accept", "")):
        return Reply(200, {"content-type": "application/vnd.github.diff; charset=utf-8"}, pull.diff.encode())
    return json_reply(200, gh.pull_view(repo, issue, pull, call.base, _count(call, issue)))


def list_files(call: Call) -> Reply:
    """GET /repos/{o}/{r}/pulls/{n}/files."""
    pull = call.pull()[2]
    return call.page([(index, gh.file_view(file)) for index, file in enumerate(pull.files, 1)])


def list_reviews(call: Call) -> Reply:
    """GET /repos/{o}/{r}/pulls/{n}/reviews."""
    repo, issue, pull = call.pull()
    shown = [review for review in pull.reviews if _listed(call, review.submitted_at)]
    return call.page([(review.id, gh.review_view(repo, issue, review)) for review in shown])


def create_review(call: Call) -> Reply:
    """POST /repos/{o}/{r}/pulls/{n}/reviews: answers 200, as GitHub does."""
    repo, issue, pull = call.pull(write=True)
    states = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
    state = states.get(str(call.json().get("event", "")), "PENDING")
    review = gh.Review(call.hub.new_id(), call.account, call.text("body", "PullRequestReview"), state, call.now)
    pull.reviews.append(review)
    call.made = Made("review", review.id, f"{repo.full_name}#{issue.number}", review.body)
    return json_reply(200, gh.review_view(repo, issue, review))


def get_review(call: Call) -> Reply:
    """GET /repos/{o}/{r}/pulls/{n}/reviews/{id}."""
    repo, issue, review = _review(call)
    return json_reply(200, gh.review_view(repo, issue, review))


def dismiss_review(call: Call) -> Reply:
    """PUT /repos/{o}/{r}/pulls/{n}/reviews/{id}/dismissals: of reviews that approve or ask for changes, once."""
    repo, issue, review = _review(call, write=True)
    call.text("message", "PullRequestReview")
    if review.state not in ("APPROVED", "CHANGES_REQUESTED"):
        raise fail(422, f"Can not dismiss a {review.state.lower()} pull request review")
    review.state = "DISMISSED"
    call.made = Made("review_dismissed", review.id, f"{repo.full_name}#{issue.number}", "")
    return json_reply(200, gh.review_view(repo, issue, review))


def merge_pull(call: Call) -> Reply:
    """PUT /repos/{o}/{r}/pulls/{n}/merge: once; 409 for another head than `sha`, 405 where it is merged or closed."""
    repo, issue, pull = call.pull(write=True)
    if issue.state != "open":
        raise fail(405, "Pull Request is not mergeable")
    if call.json().get("sha") not in (None, pull.head_sha):
        raise fail(409, "Head branch was modified. Review and try the merge again.")
    number = call.hub.new_id()
    pull.merge_commit_sha, pull.merged_by, issue.state = f"{number:040x}", call.account, "closed"
    issue.events.append(gh.IssueEvent(call.hub.new_id(), "merged", call.account, call.now))
    call.made = Made("merge", number, f"{repo.full_name}#{issue.number}", pull.head_sha)
    body = {"sha": pull.merge_commit_sha, "merged": True, "message": "Pull Request successfully merged"}
    return json_reply(200, body)


def get_issue(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues/{n}."""
    repo, issue = call.issue()
    return json_reply(200, gh.issue_view(repo, issue, call.base, _count(call, issue)))


def list_issues(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues: pull requests too, newest first; `creator` and `state` filter."""
    repo = call.repo()
    creator, state = call.query.get("creator"), call.query.get("state", "open")
    issues = [i for i in repo.issues.values() if not i.deleted and i.moved_to is None]
    issues = [i for i in issues if creator in (None, i.author.login) and state in ("all", i.state)]
    shown = sorted((i for i in issues if _listed(call, i.created_at)), key=lambda i: (-i.created_at, -i.number))
    return call.page([(i.id, gh.issue_view(repo, i, call.base, _count(call, i))) for i in shown])


def create_issue(call: Call) -> Reply:
    """POST /repos/{o}/{r}/issues."""
    repo = call.repo(write=True)
    title, body = call.text("title", "Issue"), str(call.json().get("body") or "")
    issue = gh.Issue(call.hub.new_id(), repo.next_number(), title, body, call.account, call.now)
    repo.issues[issue.number] = issue
    call.made = Made("issue", issue.number, f"{repo.full_name}#{issue.number}", body)
    return json_reply(201, gh.issue_view(repo, issue, call.base, 0))


def edit_issue(call: Call) -> Reply:
    """PATCH /repos/{o}/{r}/issues/{n}: its state alone; a repeat changes nothing."""
    repo, issue = call.issue(write=True)
    wanted = call.json()
    state, reason = str(wanted.get("state", issue.state)), wanted.get("state_reason")
    if state not in ("open", "closed"):
        raise invalid("Issue", "state", "invalid", "state must be one of open, closed")
    if state != issue.state:
        issue.state, issue.state_reason = state, None if reason is None else str(reason)
        kind = "closed" if state == "closed" else "reopened"
        issue.events.append(gh.IssueEvent(call.hub.new_id(), kind, call.account, call.now))
        call.made = Made(f"issue_{kind}", issue.number, f"{repo.full_name}#{issue.number}", "")
    return json_reply(200, gh.issue_view(repo, issue, call.base, _count(call, issue)))


def list_comments(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues/{n}/comments: ascending id."""
    repo, issue = call.issue()
    shown = [c for c in issue.comments if c.visible(call.now - call.view.listing_age_seconds)]
    return call.page([(c.id, gh.comment_view(repo, issue, c, call.base)) for c in shown])


def create_comment(call: Call) -> Reply:
    """POST /repos/{o}/{r}/issues/{n}/comments."""
    repo, issue = call.issue(write=True)
    body = call.text("body", "IssueComment")
    if issue.locked:
        raise fail(403, "Unable to create comment because issue is locked.")
    comment = gh.Comment(call.hub.new_id(), call.account, body, call.now, call.now)
    issue.comments.append(comment)
    call.made = Made("comment", comment.id, f"{repo.full_name}#{issue.number}", body)
    view = gh.comment_view(repo, issue, comment, call.base)
    return json_reply(201, view, {"location": str(view["url"])})


def get_comment(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues/comments/{id}."""
    repo, issue, comment = _comment(call)
    return json_reply(200, gh.comment_view(repo, issue, comment, call.base))


def edit_comment(call: Call) -> Reply:
    """PATCH /repos/{o}/{r}/issues/comments/{id}: by its author only."""
    repo, issue, comment = _comment(call, write=True)
    comment.body, comment.updated_at = call.text("body", "IssueComment"), call.now
    call.made = Made("comment_edited", comment.id, f"{repo.full_name}#{issue.number}", comment.body)
    return json_reply(200, gh.comment_view(repo, issue, comment, call.base))


def delete_comment(call: Call) -> Reply:
    """DELETE /repos/{o}/{r}/issues/comments/{id}: by its author only."""
    repo, issue, comment = _comment(call, write=True)
    call.hub.mark_deleted(issue, comment, call.account, call.now)
    call.made = Made("comment_deleted", comment.id, f"{repo.full_name}#{issue.number}", "")
    return Reply(204)


def list_events(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues/{n}/events."""
    events = call.issue()[1].events
    return call.page([(event.id, gh.event_view(event)) for event in events])


def list_labels(call: Call) -> Reply:
    """GET /repos/{o}/{r}/issues/{n}/labels."""
    labels = call.issue()[1].labels
    return call.page([(index, gh.label_view(name)) for index, name in enumerate(labels, 1)])


def add_labels(call: Call) -> Reply:
    """POST /repos/{o}/{r}/issues/{n}/labels: a set union, so a repeat changes nothing."""
    repo, issue = call.issue(write=True)
    wanted = call.json().get("labels")
    if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
        raise invalid("Label", "labels", "invalid", "labels must be a list of names")
    new = [name for name in dict.fromkeys(wanted) if name not in issue.labels]
    issue.labels += new
    issue.events += [gh.IssueEvent(call.hub.new_id(), "labeled", call.account, call.now) for _ in new]
    if new:
        call.made = Made("labels", issue.id, f"{repo.full_name}#{issue.number}", ",".join(new))
    return json_reply(200, [gh.label_view(name) for name in issue.labels])


def search_issues(call: Call) -> Reply:
    """GET /search/issues: an index that lags by `search_lag_seconds`; every word must occur somewhere."""
    words = [word.strip('"') for word in call.query.get("q", "").split() if ":" not in word]
    horizon = call.now - call.hub.search_lag_seconds
    found: list[tuple[int, object]] = []
    for repo in call.hub.repos.values():
        if repo.readers is None or call.account.login in repo.readers:
            shown = [i for i in repo.issues.values() if _indexed(i, words, horizon)]
            found += [(i.id, gh.issue_view(repo, i, call.base, i.count(horizon))) for i in shown]
    page = call.page(found)
    body = {"total_count": len(found), "incomplete_results": False, "items": msgspec.json.decode(page.body)}
    return json_reply(200, body, {name: value for name, value in page.headers.items() if name == "link"})


def send_mail(call: Call) -> Reply:
    """POST /mail/messages: accepts every message, repeats too, and cannot be asked about them."""
    text = call.text("text", "Message")
    number = call.hub.new_id()
    call.made = Made("mail", number, f"mail:{call.json().get('to', '')}", text)
    return json_reply(202, {"id": number, "status": "queued"})


def create_charge(call: Call) -> Reply:
    """POST /billing/charges: the same Idempotency-Key gets the first answer again, with another body 422."""
    key = call.request.headers.get("idempotency-key")
    if not key:
        raise fail(400, "Idempotency-Key is missing")
    known = call.hub.charges.get(key)
    if known is not None and call.now < known.at + call.hub.key_lifetime_seconds:
        if known.body != call.request.body:
            raise fail(422, "Idempotency-Key was used with another body")
        return Reply(known.reply.status, {**known.reply.headers, "idempotent-replayed": "true"}, known.reply.body)
    number = call.hub.new_id()
    reply = json_reply(201, {"id": number, "reference": key, **call.json()})
    call.hub.charges[key] = Charge(call.now, call.request.body, reply)
    call.made = Made("charge", number, "billing", call.request.body.decode())
    return reply


def _count(call: Call, issue: gh.Issue) -> int:
    return issue.count(call.now - call.view.count_age_seconds)


def _listed(call: Call, created_at: float) -> bool:
    return created_at <= call.now - call.view.listing_age_seconds


def _indexed(issue: gh.Issue, words: list[str], horizon: float) -> bool:
    if issue.deleted or issue.created_at > horizon:
        return False
    text = "\n".join([issue.title, issue.body, *(c.body for c in issue.comments if c.visible(horizon))])
    return all(word in text for word in words)


def _comment(call: Call, *, write: bool = False) -> tuple[gh.Repo, gh.Issue, gh.Comment]:
    repo = call.repo(write=write)
    number = int(call.parts[2])
    for issue in repo.issues.values():
        for comment in issue.comments:
            if comment.id == number and comment.deleted_at is None and not issue.deleted:
                if write and comment.author.login != call.account.login:
                    raise fail(403, "Must have admin rights to Repository.")
                return repo, issue, comment
    raise fail(404, "Not Found")


def _review(call: Call, *, write: bool = False) -> tuple[gh.Repo, gh.Issue, gh.Review]:
    repo, issue, pull = call.pull(write=write)
    for review in pull.reviews:
        if review.id == int(call.parts[3]):
            return repo, issue, review
    raise fail(404, "Not Found")


_REPO = r"/repos/([^/]+)/([^/]+)"
_ISSUE = _REPO + r"/issues/(\d+)"
_PULL = _REPO + r"/pulls/(\d+)"
_REVIEW = _PULL + r"/reviews/(\d+)"
_COMMENT = _REPO + r"/issues/comments/(\d+)"

ROUTES: list[tuple[str, re.Pattern[str], Callable[[Call], Reply]]] = [
    (method, re.compile(pattern), function)
    for method, pattern, function in [
        ("GET", r"/user", get_user),
        ("GET", _REPO, get_repo),
        ("GET", _PULL, get_pull),
        ("GET", _PULL + "/files", list_files),
        ("GET", _PULL + "/reviews", list_reviews),
        ("POST", _PULL + "/reviews", create_review),
        ("GET", _REVIEW, get_review),
        ("PUT", _REVIEW + "/dismissals", dismiss_review),
        ("PUT", _PULL + "/merge", merge_pull),
        ("GET", _REPO + "/issues", list_issues),
        ("POST", _REPO + "/issues", create_issue),
        ("GET", _ISSUE, get_issue),
        ("PATCH", _ISSUE, edit_issue),
        ("GET", _ISSUE + "/comments", list_comments),
        ("POST", _ISSUE + "/comments", create_comment),
        ("GET", _COMMENT, get_comment),
        ("PATCH", _COMMENT, edit_comment),
        ("DELETE", _COMMENT, delete_comment),
        ("GET", _ISSUE + "/events", list_events),
        ("GET", _ISSUE + "/labels", list_labels),
        ("POST", _ISSUE + "/labels", add_labels),
        ("GET", r"/search/issues", search_issues),
        ("POST", r"/mail/messages", send_mail),
        ("POST", r"/billing/charges", create_charge),
    ]
]
