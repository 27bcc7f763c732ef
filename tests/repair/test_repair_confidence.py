"""Confidence: a probability made of few features, with weights that a script fits."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from codepilot.repair.rank import FEATURES, LEAST, MOST, WEIGHTS, confidence


def _script() -> ModuleType:
    file = Path(__file__).parents[2] / "scripts/fit_confidence.py"
    spec = importlib.util.spec_from_file_location("fit_confidence", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["fit_confidence"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIT = _script()


def test_every_weight_is_of_a_sign_and_pulls_its_own_way() -> None:
    assert set(WEIGHTS) == {"bias", *FEATURES}
    assert all(WEIGHTS[name] >= 0 for name in FIT.FOR)
    assert all(WEIGHTS[name] <= 0 for name in set(FEATURES) - FIT.FOR)


@given(st.fixed_dictionaries({name: st.floats(-20, 20) for name in FEATURES}))
def test_confidence_is_a_probability_that_is_never_certain(features: dict[str, float]) -> None:
    assert LEAST <= confidence(features) <= MOST


def test_a_fit_learns_what_tells_right_from_wrong_and_forgets_what_does_not() -> None:
    chance = random.Random(3)
    rows: list[dict[str, object]] = []
    for number in range(150):
        share, late = chance.random(), chance.random()
        right = chance.random() < share
        features = {**dict.fromkeys(FEATURES, 0.0), "cluster_share": share, "effort": late}
        rows.append({"set": "a", "bug": str(number), "features": features, "correct": [right, True]})
    cases = FIT.seen([*rows, {"set": "a", "bug": "none", "features": {}, "correct": []}])
    assert len(cases) == 150
    weights = FIT.fitted(cases, 0.001)
    assert weights["cluster_share"] > 2 and abs(weights["effort"]) < weights["cluster_share"] / 3
    sure = [case.right for case in cases if FIT.chance(FIT.odds(weights, case.features)) > 0.7]
    assert len(sure) > 20 and sum(sure) / len(sure) > 0.7


def test_a_set_counts_the_same_however_large_it_is() -> None:
    blank = dict.fromkeys(FEATURES, 0.0)
    rows = [{"set": "large", "bug": str(n), "features": blank, "correct": [True]} for n in range(30)]
    rows += [{"set": "small", "bug": str(n), "features": blank, "correct": [False]} for n in range(3)]
    assert abs(FIT.fitted(FIT.seen(rows), 0.01)["bias"]) < 0.05


def test_a_torn_row_and_no_rows_are_borne(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    row = {"set": "a", "bug": "1", "features": dict.fromkeys(FEATURES, 0.5), "correct": [True]}
    file.write_text(json.dumps(row) + '\n[1]\n{"set": "a", "bu', "utf-8")
    assert [case.right for case in FIT.seen(FIT.rows_of(file))] == [True]
    assert set(FIT.fitted([], 0.1)) == set(WEIGHTS)
