"""The product vocabulary and how texts of others are shown."""

from __future__ import annotations

import re

import pytest

from surefoot.cli.output import aligned, cut, shown, width
from surefoot.core import events as ev
from surefoot.core.people import CHOICES
from surefoot.core.state import ActionKind, RunStatus, StepStatus
from surefoot.vocabulary import EVENTS, LANGUAGES, NEXT, TEXTS, event_text, language_of, text_of
from tests.cli.rig import Cli

TAGS = {str(kind.__struct_config__.tag) for kind in ev.AnyEvent.__args__}


@pytest.mark.parametrize("table", [TEXTS, NEXT, EVENTS])
def test_every_text_has_both_languages_with_the_same_facts(table: dict[str, dict[str, str]]) -> None:
    for code, texts in table.items():
        assert tuple(texts) == LANGUAGES, code
        facts = [sorted(re.findall(r"\{(\w+)\}", texts[language])) for language in LANGUAGES]
        assert facts[0] == facts[1], code
        assert re.search("[\u4e00-\u9fff]", texts["zh-CN"]), code


def test_every_status_has_a_text() -> None:
    assert {f"run_{status.value}" for status in RunStatus} | {f"tool_{status.value}" for status in StepStatus} <= set(
        TEXTS
    )


def test_every_question_and_what_became_of_it_has_a_text() -> None:
    kinds = {f"question_{kind.value}" for kind in ActionKind} | {"question_model"}
    decisions = {f"decided_{decision}" for choices in CHOICES.values() for decision in choices}
    gone = {f"expired_{why}" for why in ("time", "cancelled", "superseded", "settled")}
    assert kinds | decisions | gone == {
        code for code in TEXTS if code.startswith(("question_", "decided_", "expired_"))
    }
    assert {f"verdict_{verdict}" for verdict in ("found", "absent", "undetermined")} <= set(TEXTS)


def test_texts_of_events_are_of_events_that_exist() -> None:
    assert set(EVENTS) <= TAGS
    for kind in TAGS:
        for language in LANGUAGES:
            for tool in (None, "post"):
                text = event_text(kind, {"to": "running"} if kind == "run_status_changed" else {}, language, tool=tool)
                assert (text is None) == (kind not in EVENTS)
                assert text is None or not re.search(r"[{}]|  ", text), text


def test_nothing_about_an_outcome_that_is_not_known_speaks_of_sending_again() -> None:
    shown_then = [TEXTS["run_reconciling"], TEXTS["tool_outcome_unknown"], TEXTS["tool_asked"]]
    shown_then += [EVENTS["step_outcome_unknown"], EVENTS["lookup_answered"], NEXT["look"]]
    for texts in shown_then:
        assert not re.search(r"post|send|sent again|retry|resend", texts["en"].lower())
        assert not re.search("重新|重发|再次发", texts["zh-CN"])


def test_a_tools_own_texts_stand_first() -> None:
    texts = {"doing": {"en": "Ringing", "zh-CN": "响铃"}, "checking": {"en": "Listening"}}
    assert text_of("tool_running", "zh-CN", tool="ring", texts=texts) == "响铃"
    assert text_of("tool_outcome_unknown", "zh-CN", tool="ring", texts=texts) == "Listening"
    assert text_of("tool_succeeded", "en", tool="ring", texts=texts) == "Done: ring"
    line = event_text("step_started", {"attempt": 2}, "en", tool="ring", texts=texts)
    assert line == "Ringing (attempt 2)"


def test_a_wait_of_no_time_is_no_line_and_one_without_a_code_has_no_brackets() -> None:
    assert event_text("step_deferred", {"delay_s": 0.0, "code": "run_ended"}, "en", tool="poet") is None
    assert event_text("step_deferred", {"delay_s": 3.0}, "en", tool="sleep") == "sleep: waits for 3.0 s"
    assert event_text("step_deferred", {"delay_s": 3.0, "code": ""}, "zh-CN", tool="sleep") == "sleep：等待 3.0 秒"
    assert (
        event_text("step_deferred", {"delay_s": 3.0, "code": "x"}, "zh-CN", tool="sleep") == "sleep：等待 3.0 秒（x）"
    )


@pytest.mark.parametrize(
    ("accept", "language"), [(None, "en"), ("zh-CN,en;q=0.5", "zh-CN"), ("zh_TW.UTF-8", "zh-CN"), ("fr", "en")]
)
def test_languages(accept: str | None, language: str) -> None:
    assert language_of(accept) == language


def test_columns_are_aligned_also_with_wide_characters() -> None:
    lines = aligned([("等待", "a"), ("run", "b"), ("", "c")])
    assert [width(line) for line in lines] == [7, 7, 7]
    assert aligned([]) == []


def test_texts_of_others_cannot_move_the_cursor() -> None:
    assert shown("a\x1b[2Jb\u202ec\r") == "a⟦U+001B⟧[2Jb⟦U+202E⟧c⟦U+000D⟧"
    assert cut("one\ntwo " * 30).count("\n") == 0 and cut("x" * 100).endswith("…")


def test_a_tool_that_a_model_invented_moves_no_cursor(cli: Cli) -> None:
    run_id = cli.start("inventor")
    said = cli.work("inventor").err
    for words in (("runs", "show", run_id, "--messages"), ("runs", "watch", run_id), ("runs", "list"), ("doctor",)):
        told = cli.run(*words)
        assert told.code == 0
        said += told.out + told.err
    assert "⟦U+001B⟧[2Jpost" in said
    assert "\x1b" not in said and "\u202e" not in said and "\nnote" not in said
