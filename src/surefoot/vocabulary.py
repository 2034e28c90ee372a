"""The product vocabulary: stable display codes with their texts, English and Simplified Chinese. One table.

While an outcome is being found out, no text says that something is posted or sent again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from surefoot.core.state import Run, RunStatus, WaitsFor

LANGUAGES = ("en", "zh-CN")

TEXTS: dict[str, dict[str, str]] = {
    "run_running": {"en": "Working", "zh-CN": "进行中"},
    "run_waiting_for_user": {"en": "Waiting for your confirmation", "zh-CN": "等待您的确认"},
    "run_waiting_for_signal": {"en": "Waiting for a signal", "zh-CN": "正在等待信号"},
    "run_waiting_for_answer": {"en": "Waiting for an answer", "zh-CN": "等待答复"},
    "run_reconciling": {"en": "Checking what happened", "zh-CN": "正在核对结果"},
    "run_completed": {"en": "Completed", "zh-CN": "已完成"},
    "run_failed": {"en": "Failed", "zh-CN": "失败"},
    "run_cancelled": {"en": "Cancelled", "zh-CN": "已取消"},
    "model_call": {"en": "the model", "zh-CN": "模型"},
    "model_running": {"en": "Thinking", "zh-CN": "正在思考"},
    "model_waiting": {"en": "The model cannot be called: waiting for you", "zh-CN": "无法调用模型：等待您处理"},
    "model_succeeded": {"en": "Answered", "zh-CN": "已回答"},
    "model_compacted": {"en": "Summarised the conversation so far", "zh-CN": "已总结此前的对话"},
    "model_failed": {"en": "The model call failed", "zh-CN": "模型调用失败"},
    "model_pending": {"en": "Waiting for the model", "zh-CN": "等待模型"},
    "tool_pending": {"en": "About to start: {tool}", "zh-CN": "即将开始：{tool}"},
    "tool_deferred": {"en": "Waiting before the next try: {tool}", "zh-CN": "等待再次尝试：{tool}"},
    "tool_running": {"en": "Calling {tool}", "zh-CN": "正在调用 {tool}"},
    "tool_waiting_for_approval": {"en": "Waiting for your confirmation", "zh-CN": "等待您的确认"},
    "tool_waiting_for_signal": {"en": "Waiting for a signal", "zh-CN": "正在等待信号"},
    "tool_waiting_for_run": {"en": "{tool} is at work", "zh-CN": "{tool} 正在处理"},
    "tool_outcome_unknown": {"en": "Checking what became of {tool}", "zh-CN": "正在核对 {tool} 的结果"},
    "tool_asked": {
        "en": "Nobody knows yet whether {tool} was applied: please say",
        "zh-CN": "尚不清楚 {tool} 是否已执行：请告知",
    },
    "tool_given_up": {"en": "The outcome of {tool} is not known", "zh-CN": "{tool} 的结果未知"},
    "tool_succeeded": {"en": "Done: {tool}", "zh-CN": "已完成：{tool}"},
    "tool_failed": {"en": "Not executed: {tool}", "zh-CN": "未执行：{tool}"},
    "question_approve": {"en": "May {tool} be called?", "zh-CN": "是否允许调用 {tool}？"},
    "question_resolve": {"en": "What became of {tool}?", "zh-CN": "{tool} 的结果如何？"},
    "question_ask": {"en": "A question for you", "zh-CN": "有问题请您回答"},
    "question_model": {"en": "The model cannot be called: what now?", "zh-CN": "无法调用模型：如何处理？"},
    "question_duplicate": {"en": "{tool} had an effect too many", "zh-CN": "{tool} 多出了一个结果"},
    "decided_approve": {"en": "Approved", "zh-CN": "已批准"},
    "decided_reject": {"en": "Rejected", "zh-CN": "已拒绝"},
    "decided_happened": {"en": "It happened", "zh-CN": "已执行"},
    "decided_did_not_happen": {"en": "It did not happen", "zh-CN": "未执行"},
    "decided_give_up": {"en": "Given up: the outcome stays unknown", "zh-CN": "已放弃：结果仍未知"},
    "decided_answer": {"en": "Answered", "zh-CN": "已回答"},
    "expired_time": {"en": "Gone: nobody decided in time", "zh-CN": "已失效：超时未决定"},
    "expired_cancelled": {"en": "Gone: the run was cancelled", "zh-CN": "已失效：运行已取消"},
    "expired_superseded": {"en": "Gone: a newer question stands in its place", "zh-CN": "已失效：已由新的问题取代"},
    "expired_settled": {"en": "Gone: it was settled without an answer", "zh-CN": "已失效：无需回答即已解决"},
    "verdict_found": {"en": "Found", "zh-CN": "已找到"},
    "verdict_absent": {"en": "Not there", "zh-CN": "不存在"},
    "verdict_undetermined": {"en": "Cannot be told yet", "zh-CN": "尚无法确定"},
}

NEXT: dict[str, dict[str, str]] = {
    "look": {"en": "looks again", "zh-CN": "再次核对"},
    "start": {"en": "starts", "zh-CN": "开始"},
    "person": {"en": "waits for a person", "zh-CN": "等待人工处理"},
    "signal": {"en": "waits for a signal", "zh-CN": "等待信号"},
    "run": {"en": "waits for another run", "zh-CN": "等待另一个运行"},
    "worker": {"en": "under way", "zh-CN": "处理中"},
}


EVENTS: dict[str, dict[str, str]] = {
    "run_started": {"en": "The run began", "zh-CN": "运行开始"},
    "run_status_changed": {"en": "Run: {to_text}", "zh-CN": "运行状态：{to_text}"},
    "run_completed": {"en": "The run is completed", "zh-CN": "运行已完成"},
    "run_failed": {"en": "The run failed: {error_code}", "zh-CN": "运行失败：{error_code}"},
    "run_cancelled": {"en": "The run was cancelled by {by}", "zh-CN": "运行已被 {by} 取消"},
    "step_waiting_for_approval": {"en": "{tool}: waits for an answer", "zh-CN": "{tool}：等待答复"},
    "step_released": {"en": "{tool}: may start", "zh-CN": "{tool}：可以开始"},
    "step_started": {"en": "{doing} (attempt {attempt})", "zh-CN": "{doing}（第 {attempt} 次）"},
    "step_deferred": {"en": "{tool}: waits for {delay_s} s ({code})", "zh-CN": "{tool}：等待 {delay_s} 秒（{code}）"},
    "step_outcome_unknown": {
        "en": "{tool}: nobody wrote down an end ({code}). {checking}",
        "zh-CN": "{tool}：没有记录到结果（{code}）。{checking}",
    },
    "step_succeeded": {"en": "{tool}: done {external_resource_id}", "zh-CN": "{tool}：已完成 {external_resource_id}"},
    "step_failed": {"en": "{tool}: not executed ({error_code})", "zh-CN": "{tool}：未执行（{error_code}）"},
    "step_given_up": {
        "en": "{tool}: the question was closed, its outcome is not known",
        "zh-CN": "{tool}：问题已关闭，结果未知",
    },
    "lookup_answered": {
        "en": "{tool}: looked at the target: {verdict} {resource_id}{reason}",
        "zh-CN": "{tool}：已核对目标：{verdict} {resource_id}{reason}",
    },
    "evidence_recorded": {
        "en": "{tool}: evidence ({source}): {verdict} {resource_id}",
        "zh-CN": "{tool}：证据（{source}）：{verdict} {resource_id}",
    },
    "receipt_recorded": {
        "en": "{tool}: a receipt came later: {resource_id}",
        "zh-CN": "{tool}：回执后到：{resource_id}",
    },
    "duplicate_detected": {
        "en": "{tool}: more than one effect: {resource_ids}",
        "zh-CN": "{tool}：发现多个结果：{resource_ids}",
    },
    "signal_received": {"en": "The signal {name} came from {by}", "zh-CN": "收到 {by} 的信号 {name}"},
    "action_requested": {
        "en": "{tool}: a person is asked ({kind}, {action_id})",
        "zh-CN": "{tool}：请求人工处理（{kind}，{action_id}）",
    },
    "action_decided": {"en": "{tool}: {by} decided: {decision}", "zh-CN": "{tool}：{by} 的决定：{decision}"},
    "action_expired": {"en": "{tool}: the question is gone ({why})", "zh-CN": "{tool}：问题已失效（{why}）"},
}
"""Events as lines for people; an event that is not listed has none."""


LANGUAGES_MAX = 30
"""Of an Accept-Language header, so many are looked at."""


def language_of(accept: str | None) -> str:
    """The display language for an Accept-Language header, a locale or None: "zh-CN" for Chinese, else "en"."""
    best, most = "en", 0.0
    for part in (accept or "").split(",")[:LANGUAGES_MAX]:
        name, _, rest = part.strip().lower().partition(";")
        language = {"zh": "zh-CN", "en": "en", "*": "en"}.get(name.strip().replace("_", "-").partition("-")[0])
        if language is not None and (weight := _weight(rest)) > most:
            best, most = language, weight
    return best


def _weight(parameters: str) -> float:
    found = re.fullmatch(r"\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*", parameters)
    return float(found[1]) if found else 1.0


def run_code(run: Run) -> str:
    """The display code of a run."""
    waits = {run.steps[action.step_id].rules.waits_for for action in run.waiting_actions if action.step_id in run.steps}
    if run.status is RunStatus.waiting_for_user and waits == {WaitsFor.signal}:
        return "run_waiting_for_signal"
    return f"run_{run.status.value}"


def text_of(code: str, language: str, *, tool: str = "", texts: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The text of a display code. A tool's own texts (`doing`, `checking`) stand before the general ones."""
    own = {"tool_running": "doing", "tool_outcome_unknown": "checking"}.get(code)
    if own is not None and texts is not None and own in texts:
        of_tool = texts[own]
        if language in of_tool or "en" in of_tool:
            return of_tool.get(language) or of_tool["en"]
    general = TEXTS[code]
    return general.get(language, general["en"]).format(tool=tool)


class _Facts(dict[str, object]):
    """What a template may name; what an event does not carry is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def event_text(
    kind: str,
    data: Mapping[str, object],
    language: str,
    *,
    tool: str | None,
    texts: Mapping[str, Mapping[str, str]] | None = None,
) -> str | None:
    """An event as a line for people, or None where it is of no interest. `tool` is None for a model call."""
    if kind not in EVENTS or (kind == "step_deferred" and data.get("delay_s") == 0):
        return None  # what waits for no time goes on in the next line
    subject = "model" if tool is None else "tool"
    name = text_of("model_call", language) if tool is None else tool
    facts = _Facts({k: v for k, v in data.items() if v is not None}, tool=name)
    facts["doing"] = text_of(f"{subject}_running", language, tool=name, texts=texts)
    facts["checking"] = text_of("tool_outcome_unknown", language, tool=name, texts=texts)
    # An event does not say whether it is a person or a program that is waited for.
    to = "waiting_for_answer" if data.get("to") == "waiting_for_user" else data.get("to")
    facts["to_text"] = "" if to is None else text_of(f"run_{to}", language)
    delay, resources = data.get("delay_s"), data.get("resource_ids")
    facts["delay_s"] = f"{delay:.1f}" if isinstance(delay, float | int) else ""
    facts["resource_ids"] = ", ".join(map(str, resources)) if isinstance(resources, Sequence) else ""
    facts["reason"] = f"({data['reason']})" if data.get("reason") else ""
    template = EVENTS[kind]
    text = template.get(language, template["en"]).format_map(facts)
    return text.replace(" ()", "").replace("（）", "").replace("  ", " ").rstrip()
