"""What a run has come to: tokens, their price, and the call that gives its result. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from surefoot.core.events import StepSucceeded
from surefoot.core.state import Limits, Run


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What one answer of the model came to; the cost in millionths of a dollar, 0 where no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0


NOTHING_SPENT = Spent()


def add_totals(run: Run, event: StepSucceeded) -> Run:
    """The run with what the success of a step means for it beside the step."""
    if event.input_tokens or event.output_tokens or event.cost_microdollars:
        run = replace(
            run,
            input_tokens=run.input_tokens + event.input_tokens,
            output_tokens=run.output_tokens + event.output_tokens,
            cost_microdollars=run.cost_microdollars + event.cost_microdollars,
        )
    return replace(run, result_step_id=event.step_id) if event.is_result else run


def time_is_up(run: Run, limits: Limits, wall: float) -> bool:
    """Whether the run has lasted as long as it may."""
    return limits.seconds_max is not None and wall - run.started.wall > limits.seconds_max


def used_up(run: Run, limits: Limits, wall: float) -> tuple[str, str] | None:
    """The code and the text of the budget that leaves no room for another model call; None while there is room."""
    tokens, tokens_max = run.input_tokens + run.output_tokens, limits.tokens_max
    cost, cost_max = run.cost_microdollars, limits.cost_microdollars_max
    if run.turns >= limits.turns_max:
        return "turns_used_up", f"the run has used its {limits.turns_max} turns"
    if time_is_up(run, limits, wall):
        return "time_used_up", f"the run has used its {limits.seconds_max:g} seconds"
    if tokens_max is not None and tokens >= tokens_max:
        return "tokens_used_up", f"the run has used {tokens} tokens of its {tokens_max}"
    if cost_max is not None and cost >= cost_max:
        return "cost_used_up", f"the run has used {cost / 1e6:g} dollars of its {cost_max / 1e6:g}"
    return None
