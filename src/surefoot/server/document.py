"""docs/api.md, made from the OpenAPI document and a file with an exchange for each operation.

python -m surefoot.server.document docs/api-examples.json > docs/api.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from surefoot.app import Surefoot
from surefoot.server.callers import Loopback
from surefoot.server.factory import create_app
from surefoot.server.openapi import ALWAYS, BODY_BYTES_MAX
from surefoot.server.protocol import HEAD_BYTES_MAX

HEAD = """\
# The HTTP API

Made from the OpenAPI document, which a server has at `/openapi.json`, and from what a server answered to a request
of each kind. Do not edit it by hand: `make docs`.

`surefoot serve reviewer.py` gives it on http://127.0.0.1:8100. Bodies and answers are JSON in UTF-8; a body comes with
`Content-Type: application/json` and has at most {body:,} bytes unless its endpoint says less; the line and the headers
of a request have at most {head:,} bytes together. Times are ISO 8601 in UTC. Integers are exact to any size: a client
that reads numbers as doubles has to take care (`client.js` does). `Accept-Language` chooses the display texts, `en` or
`zh-CN`; codes, statuses and types do not change with it.

**Who.** A server with tokens wants `Authorization: Bearer TOKEN`, or the cookie of a session that a page of its own
began ([operate.md](operate.md#tokens)); each endpoint says what it takes. A server without tokens serves the user of
its machine and asks for nothing.

**Errors** are `application/problem+json` with a stable `code` ([errors.md](errors.md)). Any request may also be
answered {always}.

**Pages** have `items` and `next_cursor`; ask again with `cursor=` until it is null. Cursors are opaque.

**Idempotency-Key** goes with requests that must not count twice. It is a text of your own, quoted as the IETF draft
has it or bare, at most 255 ASCII characters, scoped by tenant. `POST /v1/runs` needs one: the same key with the same
body is answered 200 with the run that was made first, as it stands now; with another body 422; while the first request
is under way 409; a missing or malformed one 400. A key holds as long as its run is kept. It does not begin with
`retry:`, `schedule:`, `perform:`, nor like an operation key: surefoot makes such keys itself (422, `key_reserved`).

The `metadata` of a run are at most 65,536 bytes as JSON, for every listed run carries them (422, `too_large`).

Said again after a lost answer,

- `POST /v1/runs` under the same key is the run that was made first;
- `POST …/messages` and `POST …/signals` under the same key are one message, one signal to this run, answered as the
  first time; other content is 422. Without a key it is another one;
- `POST …/decision` under the same key by the same person is answered as the first time; anything else is 409 with what
  was decided;
- `POST …/retry` is the same new run. It needs no key;
- `POST …/cancel` is 409 (`run_ended`): the snapshot has the calls that may have been sent, and what became of them;
- `POST /v1/evidence` changes nothing more: `new` is false, or the first answer comes again for the same `webhook-id`;
- `POST /v1/webhooks/github` changes nothing more: `repeated`;
- `POST /v1/session` is another session.

**What is said twice** within one request (a header, a parameter, a member of the body) is refused with 400: two readers
must not read two things in it. `HEAD` answers as `GET` does, without the body.

**A record of another tenant** does not exist: the answer is the one for an id that nobody has.

## Following a run

1. `GET /v1/runs/{{id}}` is the snapshot, with `last_event_sequence`.
2. `GET /v1/runs/{{id}}/events?after=N` with `Accept: text/event-stream` gives each event above N once and in order. The
   id of an event is its sequence in the run, 1, 2, 3, … without a gap. There are no other ids.
3. After a lost connection send the last id as `Last-Event-ID`, to this server or to another one on the same store.
4. The stream ends behind the terminal event. Asked again from there, it is 204. The terminal event can always be had
   again with a lower cursor. What is settled after a run's end (a receipt that came late) can be read by asking again.

Frames without `id` are control frames, and never move a cursor:

| frame | means |
|---|---|
| `event: text` | what the model writes now: `step_id`, `attempt`, `text`, `over`, `missed` (frames were lost) |
| `event: end` | the run is over and everything is told: `last_event_sequence` |
| a comment, `: alive` | every 15 seconds without anything else |

Text frames are stored nowhere and come only from the process that drives the run; the message of the step replaces
them. A client that takes nothing for 30 seconds is let go; what it missed comes from the store, not from memory.
Events, their types and data: [events.md](events.md).

`/page/client.js` is a client for browsers and Node 18 or newer, without a build step:

```js
import {{ Client }} from "./client.js";
const client = new Client({{ url: "http://127.0.0.1:8100", token: process.env.SUREFOOT_TOKEN }});
const run = await client.start({{ agent: "reviewer", input: "Review acme/app#128" }});
const watch = client.watch(run.id, {{ onEvent: (event) => console.log(event.sequence, event.type) }});
console.log((await watch.done).status);
```

`examples/` has whole programs, which need no key with `surefoot serve examples/notes.py`: `curl.sh` starts, watches,
approves, resolves and cancels with curl; `javascript/node.mjs` does it in Node, and `javascript/page.html` is a page of
your own, behind a small proxy (`javascript/serve.mjs`) that puts it under the server's origin.

## Endpoints
"""

Json = Mapping[str, object]


def document(examples: Mapping[str, str]) -> str:
    """The page, from the app as it is, with a request and its answer by operation: `POST /v1/runs`."""
    app = create_app(Surefoot("sqlite:///none.db"), Loopback("default", "somebody"))
    made = _object(app.openapi())
    always = ", ".join(f"{status} ({HTTPStatus(status).phrase})" for status in ALWAYS)
    parts = [HEAD.format(always=always, body=BODY_BYTES_MAX, head=HEAD_BYTES_MAX)]
    for path, methods in _object(made["paths"]).items():
        for method, operation in _object(methods).items():
            parts.append("\n".join(_operation(method.upper(), path, _object(operation))))
            parts.append(f"```http\n{examples[f'{method.upper()} {path}']}\n```\n")
    parts.append("## Shapes\n")
    for name, shape in sorted(_object(_object(made["components"])["schemas"]).items()):
        parts.append("\n".join(_shape(name, _object(shape))))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield f"{str(operation.get('description') or operation.get('summary')).strip()}\n"
    parameters = [_object(each) for each in _list(operation.get("parameters", []))]
    if parameters:
        yield "| parameter | in | type | |"
        yield "|---|---|---|---|"
        for each in parameters:
            needed = "needed" if each.get("required") else ""
            text = " ".join(filter(None, (needed and f"{needed}.", str(each.get("description", "")))))
            yield f"| `{each['name']}` | {each['in']} | {_type(_object(each['schema']))} | {_cell(text)} |"
        yield ""
    body = operation.get("requestBody")
    if body is not None:
        content = _object(_object(body)["content"])
        shapes = "Body: " + ", ".join(f"{_type(_object(_object(c)['schema']))}" for c in content.values())
        yield f"{shapes}. {_object(body)['description']}\n"
    yield f"Who: {_who(_list(operation['security']))}.\n"
    answers = {int(status): _object(answer) for status, answer in _object(operation["responses"]).items()}
    for status in sorted(status for status in answers if status < HTTPStatus.BAD_REQUEST):
        yield f"- {status} {_answer(answers[status])}"
    problems = [str(status) for status in sorted(answers) if status >= HTTPStatus.BAD_REQUEST and status not in ALWAYS]
    if problems:
        yield f"- problems: {', '.join(problems)}"
    yield ""


WHO = {
    "bearer": "a token",
    "session": "a session",
    "csrf": "its `X-CSRF-Token`",
    "github_signature": "`X-Hub-Signature-256`",
    "webhook_id": "`webhook-id`",
    "webhook_timestamp": "`webhook-timestamp`",
    "webhook_signature": "`webhook-signature`",
}


def _who(security: list[object]) -> str:
    ways = [", ".join(WHO[name] for name in _object(way)) for way in security]
    return "; or ".join(ways) or "anybody"


def _answer(answer: Json) -> str:
    contents = _object(answer.get("content", {}))
    kinds = []
    for media, content in contents.items():
        shape = _type(_object(_object(content).get("schema", {})))
        kinds.append(shape if media in ("application/json", "application/problem+json") else f"`{media}`")
    text = str(answer["description"])
    return f"{text}: {' or '.join(kinds)}" if kinds else text


def _shape(name: str, shape: Json) -> Iterator[str]:
    yield f"### {name}\n"
    if shape.get("description"):
        yield f"{str(shape['description']).strip()}\n"
    if "properties" not in shape:
        yield f"One of {_type(shape)}.\n"
        return
    needed = set(map(str, _list(shape.get("required", []))))
    yield "| member | type | |"
    yield "|---|---|---|"
    for member, kind in _object(shape["properties"]).items():
        yield f"| `{member}` | {_type(_object(kind))} | {'' if member in needed else 'may be left out'} |"
    yield ""


def _type(schema: Json) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(_object(each)) for each in _list(schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in _list(schema["enum"]))
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        return f"list of {_type(_object(schema.get('items', {})))}"
    return str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict), value
    return value


def _list(value: object) -> list[object]:
    assert isinstance(value, list), value
    return value


if __name__ == "__main__":
    sys.stdout.write(document(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).rstrip() + "\n")
