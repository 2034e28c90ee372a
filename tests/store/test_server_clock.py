"""Store time and local time on PostgreSQL: no way there and back, no skew and no step lengthens what is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from surefoot.core.state import Instant
from surefoot.doors import SystemClock
from surefoot.store.postgres.server_clock import MARGIN_SECONDS, WINDOW_SECONDS, ServerClock

SKEWS = st.floats(-1e9, 2e9)
TRIPS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 500)), min_size=1, max_size=20)
"""(there, back, pause until the next question), seconds."""


class Local(SystemClock):
    """A boot clock that a test moves; to the store it is the system's."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1_000.0

    def now(self) -> Instant:
        return Instant(self.at, 0.0)


class Both:
    """A local clock and a server's, which run alike save for what a test does to the second."""

    def __init__(self, skew: float) -> None:
        self.local = Local()
        self.skew = skew
        self.rate = 1.0
        self._since = self.local.at
        self.clock = ServerClock(self.local, of_door=False)

    @property
    def server(self) -> float:
        return self.skew + self._since + (self.local.at - self._since) * self.rate

    def ask(self, there: float, back: float) -> None:
        """One statement."""
        sent = self.clock.boot_time()
        self.local.at += there
        reading = self.server
        self.local.at += back
        self.clock.note(reading, sent)


@given(SKEWS, TRIPS, st.sampled_from([1.0, 1.0002, 0.9998]))
def test_both_bounds_hold_whatever_the_way_takes(
    skew: float, trips: list[tuple[float, float, float]], rate: float
) -> None:
    both = Both(skew)
    both.rate = rate
    for there, back, pause in trips:
        both.ask(there, back)
        assert both.clock.now().mono <= both.server + 1e-3
        deadline = both.server + 30.0
        believed = both.clock.local(deadline)
        # At the local time that is believed in, the server's clock has not come to the deadline.
        assert both.server + (believed - both.local.at) * rate <= deadline + 1e-3
        both.local.at += pause
        assert both.clock.now().mono <= both.server + 1e-3


def test_a_quick_answer_is_close_to_the_truth() -> None:
    both = Both(1.7e9)
    both.ask(0.001, 0.001)
    assert both.server - both.clock.now().mono < 0.002
    assert both.local.at + 30.0 - both.clock.local(both.server + 30.0) == pytest.approx(MARGIN_SECONDS, abs=0.01)


@given(st.floats(1, 7_200))
def test_a_clock_that_is_set_back_lengthens_nothing(step: float) -> None:
    both = Both(1.7e9)
    both.ask(0.001, 0.001)
    deadline = both.server + 30.0
    believed = both.clock.local(deadline)
    both.skew -= step
    both.ask(0.001, 0.001)
    # What is asked again soon after is no later than what was believed before.
    assert both.clock.local(deadline) <= believed + 1e-3
    assert both.clock.now().mono <= both.server + 1e-3


@given(st.floats(1, 7_200))
def test_a_clock_that_is_set_forward_shortens_at_once(step: float) -> None:
    both = Both(1.7e9)
    both.ask(0.001, 0.001)
    deadline = both.server + 30.0
    both.skew += step
    both.ask(0.001, 0.001)
    assert both.clock.local(deadline) <= both.local.at + 30.0 - step + 0.01
    assert both.server - both.clock.now().mono < 0.002


def test_a_difference_that_is_long_past_counts_no_more() -> None:
    both = Both(1.7e9)
    both.ask(0.001, 0.001)
    both.skew -= 100.0
    for _ in range(3):
        both.ask(0.001, 0.001)
        both.local.at += WINDOW_SECONDS
    both.ask(0.001, 0.001)
    assert both.local.at + 30.0 - both.clock.local(both.server + 30.0) < 1.0


def test_the_time_of_another_clock_door_is_the_stores() -> None:
    local = Local()
    clock = ServerClock(local)
    assert clock.of_door
    assert (clock.now(), clock.local(7.0)) == (local.now(), 7.0)


@given(SKEWS, TRIPS, st.sampled_from([1.0, 1.0004, 0.9996]))
def test_no_way_and_no_rate_looks_like_a_step(
    skew: float, trips: list[tuple[float, float, float]], rate: float
) -> None:
    both = Both(skew)
    both.rate = rate
    for there, back, pause in trips:
        both.ask(there, back)
        assert not both.clock.stepped(both.clock.now().mono - 1_000.0)
        both.local.at += pause


@given(SKEWS, TRIPS, st.floats(60, 1e6))
def test_a_step_forward_is_seen_with_the_next_answer(
    skew: float, trips: list[tuple[float, float, float]], step: float
) -> None:
    both = Both(skew)
    for there, back, pause in trips:
        both.ask(there, back)
        both.local.at += pause
    before = both.server
    both.skew += step
    both.ask(0.01, 0.01)
    assert both.clock.stepped(before)
    both.local.at += 1.0
    assert not both.clock.stepped(both.server)
