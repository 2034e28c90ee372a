"""Where settings come from: a flag, else the environment, else the nearest pyproject.toml, else the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.cli.settings import Settings, read_settings
from surefoot.errors import InvalidInput
from tests.cli.rig import Cli

TABLE = '[tool.surefoot]\nstore = "sqlite:///file.db"\ntenant = "of-file"\nlease_seconds = 12\n'


def _write(folder: Path, text: str = TABLE) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_the_defaults(tmp_path: Path) -> None:
    found = read_settings({}, {}, tmp_path)
    assert found == Settings("sqlite:///surefoot.db", "default", 30.0, None, None, {}, "en")


def test_a_flag_stands_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    _write(tmp_path)
    environ = {"SUREFOOT_TENANT": "of-environment", "SUREFOOT_LEASE_SECONDS": "7", "SUREFOOT_STORE": "sqlite:///e.db"}
    assert read_settings({}, {}, tmp_path).tenant == "of-file"
    assert read_settings({}, environ, tmp_path).tenant == "of-environment"
    flags = {"tenant": "of-flag", "lease_seconds": 5.0, "store": "sqlite:///f.db"}
    found = read_settings(flags, environ, tmp_path)
    assert (found.tenant, found.lease_seconds, found.store) == ("of-flag", 5.0, "sqlite:///f.db")
    found = read_settings({}, environ, tmp_path)
    assert (found.lease_seconds, found.store) == (7.0, "sqlite:///e.db")
    assert read_settings({}, {}, tmp_path).lease_seconds == 12.0


def test_a_relative_store_of_the_file_is_beside_the_file(tmp_path: Path) -> None:
    below = _write(tmp_path) / "a" / "b"
    below.mkdir(parents=True)
    assert read_settings({}, {}, below).store == f"sqlite:///{tmp_path}/file.db"
    absolute = _write(tmp_path, '[tool.surefoot]\nstore = "sqlite:////var/x.db"\n')
    assert read_settings({}, {}, absolute).store == "sqlite:////var/x.db"


def test_the_nearest_file_counts_alone(tmp_path: Path) -> None:
    below = _write(tmp_path) / "inner"
    below.mkdir()
    _write(below, '[project]\nname = "inner"\n')
    assert read_settings({}, {}, below).tenant == "default"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.surefoot]\nstor = 'x'\n", "has stor; it takes store"),
        ("[tool.surefoot]\nlease_seconds = 'soon'\n", "lease_seconds in"),
        ("[tool.surefoot]\nlease_seconds = 0.5\n", "at least 1"),
        ("[tool.surefoot]\ntenant = 7\n", "tenant in"),
        ("[tool.surefoot\n", "is not TOML"),
    ],
)
def test_a_bad_value_names_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        read_settings({}, {}, _write(tmp_path, text))
    assert caught.value.code == "bad_setting" and "pyproject.toml" in str(caught.value)


def test_a_bad_variable_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="SUREFOOT_LEASE_SECONDS is 'inf'"):
        read_settings({}, {"SUREFOOT_LEASE_SECONDS": "inf"}, tmp_path)


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LC_ALL": "C", "SUREFOOT_LANG": "zh-CN"}, "zh-CN"),
        ({"SUREFOOT_LANG": ""}, "en"),
    ],
)
def test_the_language(tmp_path: Path, environ: dict[str, str], language: str) -> None:
    assert read_settings({}, environ, tmp_path).language == language


def test_the_secret_is_not_printed(tmp_path: Path) -> None:
    assert "s" * 32 not in repr(read_settings({}, {"SUREFOOT_SECRET": "s" * 32}, tmp_path))


@pytest.mark.sqlite_only("the settings name another file")
@pytest.mark.real_process
def test_settings_reach_a_command(cli: Cli) -> None:
    _write(cli.folder)
    run_id = cli.start("talker")
    assert (cli.folder / "file.db").exists() and not (cli.folder / "surefoot.db").exists()
    assert cli.json("runs", "list", "--tenant", "of-file").records()[0]["id"] == run_id
    assert cli.process("runs", "list", "--json", more={"SUREFOOT_TENANT": "x"}).records() == []
    assert cli.run("--tenant", "x", "runs", "list", "--json").records() == []
    short = cli.run("runs", "list", "--json", more={"SUREFOOT_SECRET": "short"})
    assert short.code == 2 and "short" not in str(short.record()).replace("too short", "").replace("shorter", "")
