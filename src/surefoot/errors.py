"""The errors of surefoot, one tree, a stable `code` for each class.

    SurefootError
    ├── InvalidInput            invalid_input          the caller's value cannot be used
    ├── NotFound                not_found              no such run, step, action or agent in this tenant
    ├── NotAllowed              not_allowed            the record's present state refuses the command
    │   ├── AlreadyDecided      already_decided        carries what was decided
    │   ├── RunEnded            run_ended              the run is terminal
    │   └── KeyReused           key_reused             the same key came with other content
    ├── Conflict                conflict               somebody appended first; reload and decide again
    │   └── KeyHeld             conflict               another step took the business key first
    ├── LeaseLost               lease_lost             the lease is over or belongs to another
    ├── ApprovalPending         approval_pending       perform(): a person has to approve first
    ├── OutcomeUnknown          outcome_unknown        perform(): the call may have been sent, nobody knows yet
    ├── PerformFailed           perform_failed         perform(): the call failed with proof that nothing happened
    ├── StoreError              store_error
    │   ├── StoreUnavailable    store_unavailable      cannot be opened, reached or written just now
    │   │   └── StoreClosed     store_closed           this object was closed: nothing can be written by it any more
    │   ├── StoreUnsupported    store_unsupported      newer schema, network file system, foreign file
    │   ├── CommitUnknown       commit_unknown         whether it committed is not known: nothing may be sent
    │   └── Unreadable          unreadable             a stored value cannot be read; nothing is executed on it
    └── WaitTimeout             wait_timeout           wait() gave up waiting; the run goes on

Expected refusals are these classes. A broken assumption of our own is an AssertionError and never caught.
"""

from __future__ import annotations

from collections.abc import Mapping


class SurefootError(Exception):
    """Base of every error that surefoot raises; `code` is stable, `details` is JSON-ready and holds no secret."""

    code: str = "error"

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.details: dict[str, object] = dict(details or {})


class InvalidInput(SurefootError):
    """The caller's value cannot be used. Nothing was written."""

    code = "invalid_input"


class NotFound(SurefootError):
    """No such record in this tenant (a record of another tenant answers the same)."""

    code = "not_found"


class NotAllowed(SurefootError):
    """The record's present state refuses the command. Nothing was written."""

    code = "not_allowed"


class AlreadyDecided(NotAllowed):
    """The action has its one decision; `details` carries it."""

    code = "already_decided"


class RunEnded(NotAllowed):
    """The run is terminal; its end is final."""

    code = "run_ended"


class KeyReused(NotAllowed):
    """The key was used before with other content."""

    code = "key_reused"


class Conflict(SurefootError):
    """The guard of an append did not hold: another append came first. Reload and decide again."""

    code = "conflict"


class KeyHeld(Conflict):
    """Another step took the business key first: what was to be written has to be prepared anew."""


class LeaseLost(SurefootError):
    """The lease is over or another worker has it; a result becomes evidence."""

    code = "lease_lost"


class ApprovalPending(SurefootError):
    """`perform()` of a gated tool: a person must decide; `details` has run_id, step_id and action_id."""

    code = "approval_pending"


class OutcomeUnknown(SurefootError):
    """`perform()`: the call may have been sent and its outcome is not known yet; `details` has run_id and step_id."""

    code = "outcome_unknown"


class PerformFailed(SurefootError):
    """`perform()`: the call failed, with proof that nothing happened; `details` has the step's error_code."""

    code = "perform_failed"


class StoreError(SurefootError):
    """Base of what can go wrong with a store."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store cannot be opened, reached or written just now; the transaction was certainly not committed."""

    code = "store_unavailable"


class StoreClosed(StoreUnavailable):
    """The store was closed by this process: trying again is of no use."""

    code = "store_closed"


class StoreUnsupported(StoreError):
    """The store must not be used: a newer schema, a network file system, a file that is not ours."""

    code = "store_unsupported"


class CommitUnknown(StoreError):
    """Whether the commit happened is not known. Nothing may be sent on it; read the row back."""

    code = "commit_unknown"


class Unreadable(StoreError):
    """A stored value cannot be read. The run is not executed, not failed, and listed by doctor."""

    code = "unreadable"


class WaitTimeout(SurefootError):
    """`wait()` reached its time-out before the run reached what was waited for. The run goes on."""

    code = "wait_timeout"
