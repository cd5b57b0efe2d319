"""Whatever the evidence holds, MLflow takes its numbers, and the texts around them stay whole."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from metaclaw_langgraph.tracing.figures import figures, name_of, numbers
from metaclaw_langgraph.tracing.readable import fenced, fitting, table

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(anything, anything)
@example({"x" * 90: {"y" * 90: {"z" * 90: {"n": 1}}}}, None)
@example({"a/../b": 1, "": 2, ".": 3, "x@2": {"//": 4}}, [{"skill": "../x", "p": 10**400}])
def test_mlflow_takes_every_name_and_number(gate: Any, probation: Any) -> None:
    from mlflow.utils.validation import _validate_metric, _validate_param_name

    for name, value in figures({"gate": gate, "probation": probation}).items():
        _validate_metric(name, value, 0, 0)  # type: ignore[no-untyped-call]
        _validate_param_name(name)  # type: ignore[no-untyped-call]
        assert math.isfinite(value)


def test_names() -> None:
    found = dict(numbers("gate", {"greet@2": [{"id": "a:b", "n": True}, {"n": 2}, 7], "p": "0.5"}))
    assert found == {"gate/greet v2/a_b/n": 1.0, "gate/greet v2/1/n": 2.0}
    assert name_of("..") == "_"


@given(st.text(st.sampled_from("`\n~x"), max_size=40))
def test_a_text_does_not_end_its_block(text: str) -> None:
    first, *inside, last = fenced(text, "diff").split("\n")
    fence = first.removesuffix("diff")
    assert last == fence
    assert not any(line.strip().startswith(fence) for line in inside)


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1, max_size=9), max_size=9))
def test_parts_are_shown_whole_or_counted(parts: dict[str, str]) -> None:
    shown = fitting(parts, 20)
    if shown != "".join(parts.values()):
        left = int(shown.rpartition("# ")[2].split()[0])
        kept = "".join([*parts.values()][: len(parts) - left])
        assert 0 < left < len(parts)
        assert shown == f"{kept}# {left} more skills changed\n"
        assert len(kept) <= 20 or len(parts) - left == 1


def test_a_table_keeps_its_cells() -> None:
    assert table(["a", "b"], [["1|2", "x\ny"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | x y |"
    assert table(["a"], []) == ""
