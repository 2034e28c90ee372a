"""Announcements of surefoot as messages in Slack: a small receiver that checks the signature and drops repeats.

    SUREFOOT_ANNOUNCE_SECRET=… SLACK_WEBHOOK_URL=https://hooks.slack.com/… python slack_announcer.py 8200
    SUREFOOT_ANNOUNCE_SECRET=… SUREFOOT_ANNOUNCE_URL=http://127.0.0.1:8200/ surefoot serve reviewer.py

The message links to the question. Nobody decides in Slack: what was asked is shown on surefoot's own page, and only its
form decides. Slack follows links to make previews; that shows the page and changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS_OFF_MAX = 300
TEXT_CHARACTERS_MAX = 2_000
SECTION_CHARACTERS_MAX = 3_000
"""Slack refuses a message with a longer section, whole: a question would never arrive."""


def is_signed(secret: str, headers: Mapping[str, str] | Message, body: bytes, now: float) -> bool:
    """Whether surefoot has signed this body within the last minutes (standardwebhooks.com)."""
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdigit() or abs(int(stamp) - now) > SECONDS_OFF_MAX:
        return False
    signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, given) for given in headers.get("webhook-signature", "").split())


def slack_message(told: Mapping[str, object]) -> dict[str, object]:
    """The announcement as a message of Slack's: what is asked, and a button that opens the page."""
    data = told["data"]
    assert isinstance(data, dict)
    action = data["action"]
    preview = action["preview"]
    what = f"*{_escaped(preview['text'])}*\n{_escaped(preview['tool'])} → {_escaped(preview.get('target') or '')}"
    what = what[:SECTION_CHARACTERS_MAX]
    arguments = json.dumps(preview["arguments"], ensure_ascii=False, indent=1)[:TEXT_CHARACTERS_MAX]
    return {
        "text": f"{preview['text']} {data['url']}",
        "unfurl_links": False,
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": what}},
            {"type": "section", "text": {"type": "plain_text", "text": arguments}},
            {
                "type": "actions",
                "elements": [
                    {"type": "button", "text": {"type": "plain_text", "text": "Look and decide"}, "url": data["url"]}
                ],
            },
        ],
    }


def _escaped(text: object) -> str:
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def post_to_slack(message: Mapping[str, object]) -> None:
    """Send it. Raises OSError: surefoot announces again."""
    body = json.dumps(message).encode()
    request = urllib.request.Request(os.environ["SLACK_WEBHOOK_URL"], body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=8):
        pass


def server(port: int, secret: str, send: Callable[[Mapping[str, object]], None]) -> ThreadingHTTPServer:
    """The receiver; `send` is called once for each question."""
    told: set[str] = set()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), 1_000_000))
            name = self.headers.get("webhook-id", "")
            if not is_signed(secret, self.headers, body, time.time()):
                return self._end(401)
            if name not in told:
                try:
                    send(slack_message(json.loads(body)))
                except OSError:
                    return self._end(502)
                told.add(name)
            return self._end(204)

        def _end(self, status: int) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Receiver)


if __name__ == "__main__":
    server(int(sys.argv[1]), os.environ["SUREFOOT_ANNOUNCE_SECRET"], post_to_slack).serve_forever()
