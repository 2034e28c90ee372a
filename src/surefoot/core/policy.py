"""Arithmetic of time: back-off, settle, key lifetime, sweep. Seconds everywhere; jitter is an argument in [0, 1)."""

from __future__ import annotations

from zlib import crc32

from msgspec.structs import replace

from surefoot.core.state import Attempt, AttemptEnd, EffectClass, Instant, Rules, Step

LEASE_SECONDS_DEFAULT = 30.0
LEASE_SECONDS_MIN = 1.0
LEASE_MARGIN_FRACTION = 0.1
"""Share of a lease that a worker keeps as distance: it calls itself over that much earlier."""
KEY_LIFETIME_MARGIN_FRACTION = 0.1
KEY_LIFETIME_MARGIN_SECONDS_MAX = 3_600.0
RETRY_SECONDS_MAX = 300.0
LOST = ("worker_died", "lease_over")
"""How an attempt ends whose worker is gone."""
LOOK_SECONDS_MAX = 900.0
SWEEP_SECONDS = (60.0, 600.0, 86_400.0)
CLOCK_DRIFT_SECONDS_MAX = 300.0
NOT_SENT_MAX = 20
"""How often a call that certainly did nothing is begun again before the model is told."""
NO_RESEND = "not_sent_again"
"""Code of a doubt in which the same request was refused meanwhile: the key alone is no reason to send it once more."""
ATTEMPT_SECONDS_MIN = 2.0
"""How long an attempt may be under way at least, by its intent: a time-out below it counts from when the call begins,
for what an intent takes to be written on a busy machine would be most of it, and nothing would ever be sent."""
OWNER_SECONDS_MIN = 1.0
OWNER_SECONDS_MAX = 60.0
OWNER_SHARE = 0.125
"""Who waits for another call under the same key looks at it again after that share of the time that it has waited."""
MODEL_TIMEOUT_SECONDS = 600.0
SEARCH_WINDOW_SECONDS = 900.0
SECONDS_MAX = 3_155_760_000.0
"""A hundred years: what is meant to have no end fits, and every sum with it is still a time that JSON can hold."""


def is_seconds(value: object, *, or_none: bool = False) -> bool:
    """Whether `value` is a length of time: seconds above 0 and at most SECONDS_MAX; with `or_none` also 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= SECONDS_MAX or (or_none and value == 0)


def careful_rules(now: Rules, then: Rules) -> Rules:
    """`now`, but never bolder about an attempt that was made under `then`.

    A tool that has become a read does not turn an earlier effect into one, and a key that the target honours now was
    not sent before. A lookup that was added or mended counts.
    """
    if now == then:
        return now
    if now.effect is then.effect:
        return _with_its_doubt(now, then)
    if now.effect is EffectClass.read:
        # The code of now has no lookup to run, whatever the old one had.
        effect = EffectClass.opaque if then.effect is EffectClass.lookup and not now.has_lookup else then.effect
        return replace(then, effect=effect, has_lookup=now.has_lookup)
    if now.effect is EffectClass.idempotent:
        now = replace(now, effect=EffectClass.lookup if now.has_lookup else EffectClass.opaque)
    return now if then.effect is EffectClass.read else _with_its_doubt(now, then)


def _with_its_doubt(now: Rules, then: Rules) -> Rules:
    """What was declared of the target when it was sent to, where that is the more careful."""
    lifetimes = [one.key_lifetime_s for one in (now, then) if one.key_lifetime_s is not None]
    return replace(
        now,
        settle_s=max(now.settle_s, then.settle_s),
        key_lifetime_s=min(lifetimes, default=None),
        starts_programs=now.starts_programs or then.starts_programs,
    )


def backoff(count: int, jitter: float, *, base_s: float = 1.0, max_s: float = RETRY_SECONDS_MAX) -> float:
    """Exponential, at least half of the full delay, at most `max_s`."""
    full = min(base_s * 2.0 ** min(count, 20), max_s)
    return full * (0.5 + jitter / 2)


def pause_of_lost(step: Step) -> float:
    """Seconds until a call whose worker is gone goes on: none the first time, then a back-off.

    What kills its workers takes with it the calls that they make besides, and those are counted too. Were all of them
    begun again at once, one run would use up the attempts of every run beside it; so each waits a time of its own.
    """
    lost = sum(1 for a in step.attempts[:-1] if a.code in LOST)
    if not lost:
        return 0.0
    spread = crc32(f"{step.id}:{step.attempt}".encode()) / 2**32
    return backoff(lost - 1, spread)


def look_delay(step: Step, rules: Rules, at: Instant, jitter: float) -> float:
    """Until the next look: back-off, but one look exactly when the settle time is over."""
    delay = backoff(step.looks, jitter, max_s=LOOK_SECONDS_MAX)
    left = settle_left(step, rules, at)
    return min(delay, left) if left > 0 else delay


def settle_left(step: Step, rules: Rules, at: Instant) -> float:
    """Seconds until an absent may be believed, as far as time goes: every doubtful attempt is over and has settled.

    What lost its worker again waits longer, or the calls that one death has left would begin together.
    """
    again_s = pause_of_lost(step) if step.attempts and step.attempts[-1].code in LOST else 0.0
    return max((_settled_at(a, rules) + again_s - at.mono for a in step.doubtful_attempts), default=0.0)


def _settled_at(attempt: Attempt, rules: Rules) -> float:
    end = attempt.last_byte_before if attempt.ended is None else attempt.ended
    if rules.starts_programs:
        # What a tool started may go on sending after the tool itself.
        end = max(end, attempt.last_byte_before)
    return end + rules.settle_s


def attempts_over(step: Step, at: Instant) -> bool:
    """True once every doubtful attempt was seen to end, or its last possible byte has passed."""
    return all(a.ended is not None or at.mono > a.last_byte_before for a in step.doubtful_attempts)


def over_in(step: Step, at: Instant) -> float:
    """Seconds until `attempts_over`, if nobody sees an attempt end before; 0 where nothing is waited for."""
    left = (a.last_byte_before - at.mono for a in step.doubtful_attempts if a.ended is None)
    return max([0.0, *left])


def clocks_drifted(step: Step, at: Instant) -> bool:
    """Wall and boot clock moved apart since a doubtful send: absence cannot be trusted then."""
    return any(
        abs((at.wall - a.started.wall) - (at.mono - a.started.mono)) > CLOCK_DRIFT_SECONDS_MAX
        for a in step.doubtful_attempts
        if a.started.mono > -1e17  # an earlier boot: its settle began anew, there is no boot time to compare with
    )


def key_usable(step: Step, rules: Rules, at: Instant) -> bool:
    """Inside the key's lifetime less a margin, counted from the first send that may have reached the target.

    One that was refused or is proven absent counts too: the target keeps the key since it saw it first.
    """
    if rules.key_lifetime_s is None:
        return True
    margin = min(rules.key_lifetime_s * KEY_LIFETIME_MARGIN_FRACTION, KEY_LIFETIME_MARGIN_SECONDS_MAX)
    seen = (a.started.mono for a in step.attempts if a.end is not AttemptEnd.not_sent)
    first = min(seen, default=at.mono)
    return at.mono + rules.timeout_s < first + rules.key_lifetime_s - margin


def search_from(first_sent_at: float | None, at: Instant) -> float:
    """The wall time from which a lookup searches: the earliest send, else now, less 15 minutes."""
    return (at.wall if first_sent_at is None else first_sent_at) - SEARCH_WINDOW_SECONDS
