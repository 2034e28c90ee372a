"""Which model an attempt of a model call goes to, and what an attempt that failed means for the next."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.agent.compaction import SummaryStopped
from surefoot.agent.model import Model, ModelNeedsPerson, ModelRefused, ModelRetryable
from surefoot.core import policy
from surefoot.core.attempts import Outcome
from surefoot.core.redact import safe_error
from surefoot.core.state import Step
from surefoot.runtime.context import Context

RETRY_AFTER_SECONDS_MAX = 3_600.0
"""A provider that asks for a longer wait is asked again after this."""
NEEDS_PERSON = "model_needs_person"
REFUSED = "model_refused_request"
SUMMARY_STOPPED = "summary_stopped"
_HELPLESS = frozenset({NEEDS_PERSON, REFUSED})


class Models:
    """The models of an agent, in the order in which they are tried: attempt n goes to number (n - 1) mod their count.

    An attempt that failed goes to the next model at once; after a whole round they back off. A person is asked, or the
    run ends, only where each of the last round said that waiting does not help.
    """

    def __init__(self, ctx: Context, models: Sequence[Model]) -> None:
        self._ctx = ctx
        self._models = tuple(models)
        self._not_before: dict[int, float] = {}
        """What a provider asked for, by the place of its model; on the boot clock, forgotten with this process."""

    def of(self, step: Step) -> Model:
        """The model for the attempt that is under way."""
        return self._models[(step.attempt - 1) % len(self._models)]

    def sort_error(self, step: Step, error: Exception) -> tuple[Outcome, bool]:
        """How the attempt ended, and whether a person is to be asked.

        429, 5xx and time-outs are tried again on the same step; what a person can mend is asked; the rest ends the run.
        """
        if isinstance(error, ModelNeedsPerson | ModelRefused):
            return self._helpless(step, NEEDS_PERSON if isinstance(error, ModelNeedsPerson) else REFUSED, error)
        again = self._again_s(step, error)
        if isinstance(error, SummaryStopped):
            return Outcome("in_doubt", code=SUMMARY_STOPPED, again_s=again), False
        if isinstance(error, ModelRetryable):
            if error.status == 429:
                # Not for the log: it is no fault, and what is waited for stands in the run.
                return Outcome("refused", code="model_rate_limited", again_s=again), False
            self._log(step, error)
            return Outcome("in_doubt", code="model_unavailable", again_s=again), False
        if isinstance(error, TimeoutError):
            self._log(step, error)
            return Outcome("in_doubt", code="model_timeout", again_s=again), False
        self._log(step, error)
        return Outcome("in_doubt", code="model_error", again_s=again), False

    def _helpless(self, step: Step, code: str, error: Exception) -> tuple[Outcome, bool]:
        self._log(step, error)
        codes = [code]
        for attempt in reversed(step.attempts[:-1]):
            if attempt.code not in _HELPLESS:
                break
            codes.append(str(attempt.code))
        count = len(self._models)
        if len(codes) % count:
            return Outcome("refused", code=code, again_s=0.0), False
        ask = NEEDS_PERSON in codes[:count]
        return Outcome("refused", code=NEEDS_PERSON if ask else REFUSED), ask

    def _again_s(self, step: Step, error: Exception) -> float:
        count, now = len(self._models), self._ctx.doors.clock.now().mono
        rounds, place = divmod(step.attempt, count)
        delay = 0.0 if place else policy.backoff(rounds - 1, self._ctx.doors.entropy.fraction())
        if isinstance(error, ModelRetryable) and error.retry_after is not None:
            asked = min(error.retry_after, RETRY_AFTER_SECONDS_MAX)
            self._not_before[(step.attempt - 1) % count] = now + asked
        return max(delay, self._not_before.get(place, now) - now)

    def _log(self, step: Step, error: Exception) -> None:
        why = safe_error(error, self._ctx.redactor)
        if isinstance(error, TimeoutError) and not str(error):
            why = f"no answer within {step.rules.timeout_s:g} s"
        self._ctx.log(f"{step.id}: the call of {self.of(step).name} failed: {why}")
