"""The numbers in a generation's evidence, as metrics that MLflow takes and can chart.

Every number is there under its own path. Beside them stand the sums over all skills, under names
that are the same for every generation: only those can be compared from run to run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from metaclaw_langgraph.types import Json

__all__ = ["figures", "name_of", "numbers"]

# What every MLflow, also one on Windows, takes in the name of a metric or a parameter.
_NOT_IN_NAMES = re.compile(r"[^\w.\- ]")
_LONGEST_NAME = 80
_LONGEST_PATH = 250
_LABELS = ("skill", "skill_id", "name", "id")


def figures(details: Mapping[str, Json]) -> dict[str, float]:
    """The gate's and the probation's figures, sums first."""
    gate, probation = details.get("gate"), details.get("probation")
    return {
        **_gate_sums([*_mappings_with(gate, "pairs")]),
        **dict(numbers("gate", gate)),
        **_probation_sums([*_mappings_with(probation, "with_passed")]),
        **dict(numbers("probation", probation)),
    }


def numbers(name: str, value: Json) -> Iterator[tuple[str, float]]:
    """Every number in a JSON value, each with its path as its name: `gate/wins`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from numbers(f"{name}/{name_of(str(key))}", item)
    elif isinstance(value, int | float):
        if math.isfinite(number := _float(value)) and len(name) <= _LONGEST_PATH:
            yield name, number
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from numbers(f"{name}/{_label(item, index)}", item)


def name_of(text: str) -> str:
    """A part of a metric's or parameter's name; `greet@2` becomes `greet v2`."""
    clean = _NOT_IN_NAMES.sub("_", text.replace("@", " v"))[:_LONGEST_NAME].strip()
    return clean if clean.strip(".") else "_"


def _label(item: Mapping[str, Json], index: int) -> str:
    for key in _LABELS:
        found = item.get(key)
        if isinstance(found, str) and found:
            return name_of(found)
    return str(index)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _mappings_with(value: Json, key: str) -> Iterator[Mapping[str, Json]]:
    if isinstance(value, Mapping):
        if key in value:
            yield value
        for item in value.values():
            yield from _mappings_with(item, key)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _mappings_with(item, key)


def _gate_sums(tallies: Sequence[Mapping[str, Json]]) -> dict[str, float]:
    """Over the replays of all drafts: pairs, wins, losses, and how often each side passed."""
    pairs = sum(_of(one, "pairs") for one in tallies)
    if not pairs:
        return {}
    found = {f"gate/{key}": sum(_of(one, key) for one in tallies) for key in ("wins", "losses")}
    for key in ("pass_rate_with", "pass_rate_without"):
        found[f"gate/{key}"] = sum(_of(one, key) * _of(one, "pairs") for one in tallies) / pairs
    return {"gate/pairs": pairs, **found}


def _probation_sums(evidence: Sequence[Mapping[str, Json]]) -> dict[str, float]:
    """Over the runs of all skills on probation: how many, and how often they passed."""
    found: dict[str, float] = {}
    for side in ("with", "without"):
        passed = sum(_of(one, f"{side}_passed") for one in evidence)
        runs = passed + sum(_of(one, f"{side}_failed") for one in evidence)
        if runs:
            found[f"probation/runs_{side}"] = runs
            found[f"probation/pass_rate_{side}"] = passed / runs
    return found


def _of(value: Mapping[str, Json], key: str) -> float:
    found = value.get(key)
    number = _float(found) if isinstance(found, int | float) else 0.0
    return number if math.isfinite(number) else 0.0
