"""The rows of the failure matrix: what goes wrong, prepared on a Play."""

from __future__ import annotations

from collections.abc import Callable

from surefoot.testing import faults as f
from surefoot.testing.story import NUMBER, REPO
from surefoot.testing.virtual import Trip
from surefoot.testing.world import BOT
from tests.docs.matrix import FROZEN_SECONDS, Play, frozen, killed

HOUR_SECONDS = 3_600.0

Row = Callable[[Play], None]


def nothing(play: Play) -> None:
    """Two workers want the run, and nothing goes wrong."""


def unreachable(play: Play) -> None:
    play.first_trip = Trip(refused=True)


def refused_for_now(play: Play) -> None:
    play.fault(f.StatusBefore(429, {"Retry-After": "30"}))


def lost_request(play: Play) -> None:
    play.fault(f.LostRequest())


def lost_reply(play: Play) -> None:
    play.fault(f.LostReply())


def error_before(play: Play) -> None:
    play.fault(f.StatusBefore(502))


def error_after(play: Play) -> None:
    play.fault(f.StatusAfter(502))


def hang(play: Play) -> None:
    play.fault(f.Hang(applied=True))


def cut_reply(play: Play) -> None:
    play.fault(f.ResetMidBody())


def late_within_settle(play: Play) -> None:
    play.fault(f.Late(40.0, answer="reset"))


def late_past_settle(play: Play) -> None:
    play.fault(f.Late(300.0, answer="reset"))


def killed_before_intent(play: Play) -> None:
    play.at["commit", "before"] = killed


def killed_before_first_byte(play: Play) -> None:
    play.at["http.connect", "before"] = killed


def killed_in_flight(play: Play) -> None:
    play.at["http.send", "after"] = killed


def killed_before_commit(play: Play) -> None:
    play.at["http.reply", "after"] = killed


def killed_while_looking(play: Play) -> None:
    play.fault(f.LostReply())
    play.at["lookup", "before"] = killed


def frozen_before_intent(play: Play) -> None:
    play.workers = 1
    play.on_approval = play.freeze_workers


def frozen_before_check(play: Play) -> None:
    play.at["http.connect", "before"] = frozen


def frozen_before_write(play: Play) -> None:
    play.first_trip = Trip(stopped=FROZEN_SECONDS)


def frozen_after_write(play: Play) -> None:
    play.at["http.send", "after"] = frozen


def clock_jumps(play: Play) -> None:
    play.fault(f.LostRequest())
    play.at["http.send", "after"] = lambda process: play.machine.clock.jump_wall(HOUR_SECONDS)


def lookup_down(play: Play) -> None:
    play.fault(f.LostReply())
    play.looks(f.StatusBefore(403))


def deleted_with_trace(play: Play) -> None:
    _deleted(play)
    play.world.deletion_events = True


def deleted_without_trace(play: Play) -> None:
    _deleted(play)


def restored_from_before(play: Play) -> None:
    """The copy was made when the call was approved and not yet begun."""
    play.on_approval = play.backup
    play.story = lambda: _and_restored(play)


def restored_from_between(play: Play) -> None:
    """The copy was made while the call was under way."""
    play.at["http.send", "after"] = lambda process: play.backup()
    play.story = lambda: _and_restored(play)


def _and_restored(play: Play) -> None:
    play.to_the_end()
    play.restore()
    play.settle()


def _deleted(play: Play) -> None:
    play.fault(f.LostReply())
    play.looks(f.Change("delete_newest_comment", {"repo": REPO, "number": NUMBER, "author": BOT.login}), times=1)


ROWS: dict[str, Row] = {
    row.__name__: row
    for row in (
        nothing,
        unreachable,
        refused_for_now,
        lost_request,
        lost_reply,
        error_before,
        error_after,
        hang,
        cut_reply,
        late_within_settle,
        late_past_settle,
        killed_before_intent,
        killed_before_first_byte,
        killed_in_flight,
        killed_before_commit,
        killed_while_looking,
        frozen_before_intent,
        frozen_before_check,
        frozen_before_write,
        frozen_after_write,
        clock_jumps,
        lookup_down,
        deleted_with_trace,
        deleted_without_trace,
        restored_from_between,
        restored_from_before,
    )
}
