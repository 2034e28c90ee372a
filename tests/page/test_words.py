"""The page's words: one table in two languages, the server's words for everything else, and hidden characters."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping

import pytest

from surefoot.core.visible import visible
from surefoot.vocabulary import event_text
from tests.page.browsing import Visitors
from tests.page.stage import ROOT, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = ROOT / "src/surefoot/server/page"
WORDS = (PAGE / "words.js").read_text(encoding="utf-8")
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
TABLE = {
    key: (english, chinese)
    for key, english, chinese in re.findall(
        r'^  "([a-z_.]+)": \[\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)",?\s*\],$', WORDS, re.M
    )
}
EVENT_LINES = "lines => lines.map(line => [Number(line.dataset.sequence), line.querySelector('.event-text').innerText])"
ODD = "ab Z9é中\n\t⟦⟧\u200b\u202e\u2066\ufeff\u00ad\u3164\u2800\ufe0f\u200d❤👩🚀#1\x07\ue000\U000e0041\U000e0101\u0378"


async def test_every_text_has_two_languages_and_the_same_facts() -> None:
    assert len(TABLE) > 150
    assert len(TABLE) == len(re.findall(r'^  "[a-z_.]+": \[', WORDS, re.M)), "an entry was not read"
    for key, (english, chinese) in TABLE.items():
        assert english.strip() and chinese.strip(), key
        facts = [set(re.findall(r"\{(\w+)\}", text)) for text in (english, chinese)]
        assert facts[0] == facts[1], key
        assert "%" not in english + chinese, f"{key}: no percentages"
        assert not re.search(r"(post|send|sent)\w* again", english.lower()), key
        assert key == "page.language_label" or key == "page.language" or re.search(r"[\u4e00-\u9fff]", chinese), key


async def test_every_text_is_used_and_no_view_has_texts_of_its_own() -> None:
    code = "\n".join(text for name, text in SCRIPTS.items() if name != "client.js")
    used = set(re.findall(r'"([a-z_]+\.[a-z_]+)"', code.replace(WORDS, "")))
    built = [re.escape(made) for made in re.findall(r"`([a-z_]+\.[a-z_]*)\$\{", code)]
    groups = [re.escape(f"{name}.") for name in re.findall(r'word\("([a-z_]+)"', code)]
    unused = [k for k in TABLE if k not in used and not re.match("|".join([*built, *groups]), k)]
    assert unused == []
    missing = {key for key in re.findall(r'\bt\(\s*"([a-z_.]+)"', code) if key not in TABLE}
    assert missing == set()
    for name, text in SCRIPTS.items():
        if name not in ("words.js", "client.js"):
            assert not re.search(r"[\u4e00-\u9fff]", text), f"{name} has texts of its own"


async def test_no_script_makes_markup_of_a_text() -> None:
    for name, text in SCRIPTS.items():
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            ".style",
        ):
            assert word not in text, f"{name}: {word}"


async def test_the_library_beside_the_page_is_the_one_of_the_decision() -> None:
    held = hashlib.sha256((PAGE / "vendor/markdown-it.js").read_bytes()).hexdigest()
    assert held in (ROOT / "docs/decisions/0016-a-page-of-plain-modules.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "zh-CN"])
async def test_events_have_the_servers_words(stage: Stage, visitors: Visitors, language: str) -> None:
    run_id, action_id = stage.asked("mailer")
    approved, question = stage.asked("reviewer")
    for action in (action_id, question):
        assert stage.served.decide(action, "reject").status == 200
    stage.served.until(approved, "completed")
    context = await visitors.context(language=language)
    asked = stage.served.get("/v1/vocabulary", Accept_Language=language).record()
    tools = asked["tools"]
    assert isinstance(tools, dict)
    for each in (run_id, approved):
        page = await visitors.page(stage, f"#/runs/{each}", context=context)
        await page.locator(f".events li:nth-child({len(stage.stored_events(each))})").wait_for(state="attached")
        await page.get_by_role("checkbox").check()
        shown = await page.eval_on_selector_all(".events li", EVENT_LINES)
        assert shown == _lines(stage, each, language, tools)


def _lines(stage: Stage, run_id: str, language: str, tools: Mapping[str, Mapping[str, str]]) -> list[list[object]]:
    """What the server's own vocabulary says of each event, or its type."""
    steps = stage.run(run_id)["steps"]
    assert isinstance(steps, list)
    names = {step["id"]: step["tool_name"] for step in steps}
    lines: list[list[object]] = []
    for event in stage.served.get(f"/v1/runs/{run_id}/events").items():
        data, kind = event["data"], str(event["type"])
        assert isinstance(data, dict)
        tool = names.get(event["step_id"] or data.get("step_id"))
        texts = {what: {language: text, "en": text} for what, text in tools.get(str(tool), {}).items()}
        text = event_text(kind, data, language, tool=tool, texts=texts)
        lines.append([event["sequence"], kind if text is None else visible(text)[0]])
    return lines


async def test_hidden_characters_are_shown_as_the_server_shows_them(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage)
    chance = random.Random(7)
    texts = ["".join(chance.choice(ODD) for _ in range(chance.randint(1, 12))) for _ in range(2_000)]
    texts += ["❤️ 👩‍🚀", "1️⃣", "⟦U+202E⟧", "a\u200d\u200db", "©️", "\r\n"]
    script = "async (texts) => { const page = await import('/page/visible.js'); return texts.map(page.visible); }"
    shown = await page.evaluate(script, texts)
    wrong = [
        (text, mine, visible(text)[0]) for text, mine in zip(texts, shown, strict=True) if mine != visible(text)[0]
    ]
    assert wrong == []
