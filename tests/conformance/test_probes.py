from __future__ import annotations

import json
from typing import Any

from app.core.errors import ConstraintError, UnsatisfiableSchema, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.conformance.verdicts import Verdict, accepts, judge
from tests.constraint.walks import Walker
from tools import datasets


def wrong_texts(probe: dict[str, Any]) -> list[str]:
    """Instances with a wrong result. Raises what compiling raises."""
    try:
        walker = Walker.of(JsonSchema(probe["schema"]))
    except UnsatisfiableSchema:
        return list(probe["valid"])
    wrong = []
    for text in probe["valid"]:
        verdict = judge(probe["schema"], json.loads(text), valid=True, walker=walker)
        if verdict is Verdict.WRONG:
            wrong.append(text)
    for text in probe["invalid"]:
        in_other_form = not _repeats_a_key(text) and accepts(walker, json.loads(text))
        if in_other_form or walker.accepts(text):
            wrong.append(text)
    return wrong


def _repeats_a_key(text: str) -> bool:
    """Whether an object in the text has a key twice."""
    repeated = []

    def note(members: list[tuple[str, Any]]) -> None:
        repeated.append(len(dict(members)) < len(members))

    json.loads(text, object_pairs_hook=note)
    return any(repeated)


def test_every_probed_keyword_is_right_or_refused_by_name() -> None:
    wrong, refused = {}, {}
    for probe in datasets.keyword_probes():
        try:
            texts = wrong_texts(probe)
        except UnsupportedSchema as error:
            refused[probe["name"]] = error.keyword
        except ConstraintError as error:
            wrong[probe["name"]] = str(error)
        else:
            if texts:
                wrong[probe["name"]] = str(texts)
    assert wrong == {}
    assert len(refused) < 20, refused
