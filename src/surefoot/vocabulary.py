"""The product vocabulary: stable display codes with their texts, English and Simplified Chinese. One table.

While an outcome is being found out, no text says that something is posted or sent again.
"""

from __future__ import annotations

from collections.abc import Mapping

LANGUAGES = ("en", "zh-CN")

TEXTS: dict[str, dict[str, str]] = {
    "run_running": {"en": "Working", "zh-CN": "进行中"},
    "run_waiting_for_user": {"en": "Waiting for your confirmation", "zh-CN": "等待您的确认"},
    "run_reconciling": {"en": "Checking what happened", "zh-CN": "正在核对结果"},
    "run_completed": {"en": "Completed", "zh-CN": "已完成"},
    "run_failed": {"en": "Failed", "zh-CN": "失败"},
    "run_cancelled": {"en": "Cancelled", "zh-CN": "已取消"},
    "model_running": {"en": "Thinking", "zh-CN": "正在思考"},
    "model_waiting": {"en": "The model cannot be called: waiting for you", "zh-CN": "无法调用模型：等待您处理"},
    "model_succeeded": {"en": "Answered", "zh-CN": "已回答"},
    "model_failed": {"en": "The model call failed", "zh-CN": "模型调用失败"},
    "model_pending": {"en": "Waiting for the model", "zh-CN": "等待模型"},
    "tool_pending": {"en": "About to start: {tool}", "zh-CN": "即将开始：{tool}"},
    "tool_deferred": {"en": "Waiting before the next try: {tool}", "zh-CN": "等待再次尝试：{tool}"},
    "tool_running": {"en": "Calling {tool}", "zh-CN": "正在调用 {tool}"},
    "tool_waiting_for_approval": {"en": "Waiting for your confirmation", "zh-CN": "等待您的确认"},
    "tool_outcome_unknown": {"en": "Checking what became of {tool}", "zh-CN": "正在核对 {tool} 的结果"},
    "tool_asked": {
        "en": "Nobody knows yet whether {tool} was applied: please say",
        "zh-CN": "尚不清楚 {tool} 是否已执行：请告知",
    },
    "tool_given_up": {"en": "The outcome of {tool} is not known", "zh-CN": "{tool} 的结果未知"},
    "tool_succeeded": {"en": "Done: {tool}", "zh-CN": "已完成：{tool}"},
    "tool_failed": {"en": "Not executed: {tool}", "zh-CN": "未执行：{tool}"},
}

NEXT: dict[str, dict[str, str]] = {
    "look": {"en": "looks again", "zh-CN": "再次核对"},
    "start": {"en": "starts", "zh-CN": "开始"},
    "person": {"en": "waits for a person", "zh-CN": "等待人工处理"},
    "worker": {"en": "under way", "zh-CN": "处理中"},
}


def language_of(accept: str | None) -> str:
    """The display language for an Accept-Language header, a locale or None: "zh-CN" for Chinese, else "en"."""
    first = (accept or "").split(",")[0].strip().lower().replace("_", "-")
    return "zh-CN" if first.startswith("zh") else "en"


def text_of(code: str, language: str, *, tool: str = "", texts: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The text of a display code. A tool's own texts (`doing`, `checking`) stand before the general ones."""
    own = {"tool_running": "doing", "tool_outcome_unknown": "checking"}.get(code)
    if own is not None and texts is not None and own in texts:
        of_tool = texts[own]
        if language in of_tool or "en" in of_tool:
            return of_tool.get(language) or of_tool["en"]
    general = TEXTS[code]
    return general.get(language, general["en"]).format(tool=tool)
