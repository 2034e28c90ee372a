"""The page behind a link, as HTML: nothing is loaded from anywhere, and no script runs on it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

import msgspec

from surefoot.core.visible import visible_value
from surefoot.snapshot import ActionView

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    # Not no-referrer: under it a browser says `Origin: null` of the page's own form.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}
_PLACED = ("text", "tool", "target", "arguments", "warnings")
TEXTS: Mapping[str, Mapping[str, str]] = {
    "approve": {"en": "Approve", "zh-CN": "批准"},
    "reject": {"en": "Reject", "zh-CN": "拒绝"},
    "reason": {"en": "Reason (optional)", "zh-CN": "理由（可选）"},
    "tool": {"en": "What", "zh-CN": "操作"},
    "target": {"en": "Where", "zh-CN": "目标"},
    "arguments": {"en": "Exactly this", "zh-CN": "确切内容"},
    "more": {"en": "More", "zh-CN": "更多"},
    "warnings": {"en": "Warnings", "zh-CN": "警告"},
    "hash": {"en": "Hash of the request", "zh-CN": "请求的哈希"},
    "expires": {"en": "Open until", "zh-CN": "有效期至"},
    "run": {"en": "Run", "zh-CN": "运行"},
    "as": {"en": "You decide as {name}.", "zh-CN": "您将以 {name} 的身份做出决定。"},
    "elsewhere": {
        "en": "This question takes another answer than yes or no: answer it in the inbox.",
        "zh-CN": "该问题不能只用是或否回答：请在收件箱中回答。",
    },
    "inbox": {"en": "To the inbox", "zh-CN": "前往收件箱"},
    "log_in": {"en": "Log in to see this question", "zh-CN": "请登录以查看该问题"},
    "token": {"en": "Your token", "zh-CN": "您的令牌"},
    "enter": {"en": "Log in", "zh-CN": "登录"},
    "recorded": {"en": "Recorded", "zh-CN": "已记录"},
    "decided": {
        "en": "{decision}, by {name}, {at}.",
        "zh-CN": "{decision}，决定人 {name}，时间 {at}。",
    },
    "refused": {"en": "That cannot be done", "zh-CN": "无法完成"},
    "link_forged": {
        "en": "This link is not one of this server's, or was cut on its way.",
        "zh-CN": "该链接不是本服务器签发的，或在传递中被截断。",
    },
    "link_expired": {"en": "This link is over.", "zh-CN": "该链接已过期。"},
}
_STYLE = (
    ":root{color-scheme:light dark;background:Canvas;color:CanvasText}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}"
    "dt{font-weight:600;margin-top:.75rem}dd{margin:0}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid;padding:.5rem;margin:0}"
    "button,input,textarea{font:inherit;padding:.5rem;box-sizing:border-box}"
    "button{min-width:8rem;margin:.5rem .5rem 0 0}textarea,input{width:100%}"
    ".warning{border-left:.25rem solid;padding-left:.5rem}"
)


def text(code: str, language: str, **values: str) -> str:
    """A text of the page."""
    found = TEXTS[code]
    return found.get(language, found["en"]).format(**values)


def page(language: str, title: str, *parts: str, refresh: str | None = None) -> str:
    """A whole page. `parts` are HTML; `refresh` is a path of this server to go to at once."""
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="0;url={html.escape(refresh)}">'
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{again}'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1>{''.join(parts)}</main></body></html>"
    )


def paragraph(words: str) -> str:
    """A paragraph of text."""
    return f"<p>{html.escape(words)}</p>"


def link(path: str, words: str) -> str:
    """A link to a path of this server."""
    return f'<p><a href="{html.escape(path)}">{html.escape(words)}</a></p>'


def action_part(action: ActionView, language: str) -> str:
    """The exact action: what, where, with which arguments, its warnings, its hash."""
    preview = action.preview if isinstance(action.preview, dict) else {}
    rows: list[tuple[str, str]] = []
    rows.append((text("tool", language), _plain(str(preview.get("tool") or action.tool_name or ""))))
    if preview.get("target"):
        rows.append((text("target", language), _plain(str(visible_value(preview["target"])[0]))))
    # The arguments of a preview are escaped already; once more would show the escapes as fakes.
    rows.append((text("arguments", language), _values(preview.get("arguments"))))
    more = {name: value for name, value in preview.items() if name not in _PLACED and value}
    if more:
        rows.append((text("more", language), _values(visible_value(more)[0])))
    rows.append((text("hash", language), f"<code>{html.escape(action.input_hash)}</code>"))
    if action.expires_at is not None:
        rows.append((text("expires", language), _plain(action.expires_at)))
    rows.append((text("run", language), _plain(action.run_id)))
    listed = "".join(f"<dt>{html.escape(name)}</dt><dd>{value}</dd>" for name, value in rows)
    return _warnings(preview.get("warnings"), language) + f"<dl>{listed}</dl>"


def _warnings(found: object, language: str) -> str:
    warnings = [str(item) for item in found] if isinstance(found, list) else []
    if not warnings:
        return ""
    items = "".join(f"<li>{html.escape(item)}</li>" for item in warnings)
    return f'<div class="warning" role="alert"><strong>{text("warnings", language)}</strong><ul>{items}</ul></div>'


def _values(value: object) -> str:
    if isinstance(value, dict):
        return "".join(f"<div>{html.escape(str(name))}</div>{_values(item)}" for name, item in value.items())
    words = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
    return f"<pre>{html.escape(words)}</pre>"


def _plain(words: str) -> str:
    return html.escape(words)


def form(path: str, hidden: Mapping[str, str], fields: str, buttons: Iterable[tuple[str, str, str]]) -> str:
    """A form that is sent by POST. `buttons`: (name, value, text)."""
    kept = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in hidden.items()
    )
    pressed = "".join(
        f'<button name="{html.escape(name)}" value="{html.escape(value)}">{html.escape(words)}</button>'
        for name, value, words in buttons
    )
    return f'<form method="post" action="{html.escape(path)}">{kept}{fields}{pressed}</form>'


def reason_field(language: str) -> str:
    """Where a reason may be written."""
    return (
        f'<p><label>{text("reason", language)}<textarea name="reason" rows="2" maxlength="2000"></textarea></label></p>'
    )


def token_field(language: str) -> str:
    """Where a token is entered; the browser shows dots."""
    return (
        f"<p><label>{text('token', language)}"
        '<input type="password" name="token" autocomplete="current-password" required></label></p>'
    )
