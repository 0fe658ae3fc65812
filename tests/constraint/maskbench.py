"""A pass over MaskBench: ``python -m tests.constraint.maskbench DATA [COUNT]``.

Tells how many schemas are built, refused (by which keyword) or crash; how many valid and invalid
instances are accepted in the one form that answers have; whether samples of each language are
valid to the ``jsonschema`` library; and how long building takes.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import jsonschema

from app.core.constraint import JsonSchema
from app.core.errors import ConstraintError, UnsupportedSchema
from tests.constraint.walks import Walker

SAMPLES = 5


def judge(case: dict[str, Any]) -> dict[str, Any]:
    """What happens to one schema; ``problems`` must be empty."""
    outcome: dict[str, Any] = {"id": case["id"], "problems": [], "missed": []}
    start = time.process_time()
    try:
        walker = Walker.of(JsonSchema(case["schema"]))
        empty = walker.is_empty
    except ConstraintError as error:
        keyword = error.keyword if isinstance(error, UnsupportedSchema) else ""
        return {**outcome, "result": error.code, "keyword": keyword, "message": str(error)}
    except Exception as error:  # what the pass is there to find
        return {**outcome, "result": "crash", "keyword": "", "message": repr(error)}
    outcome["seconds"] = time.process_time() - start
    outcome["result"] = "unsatisfiable" if empty else "built"
    counts = Counter[str]()
    for test in case["tests"]:
        accepted = walker.accepts_value(test["data"])
        if test["valid"] and not accepted:
            accepted = walker.accepts_in_some_order(test["data"])
        counts[f"{'valid' if test['valid'] else 'invalid'} {accepted}"] += 1
        if accepted and not test["valid"]:
            outcome["problems"].append(("accepts", test["data"]))
        if test["valid"] and not accepted:
            outcome["missed"].append(test["data"])
    outcome["counts"] = counts
    if not empty:
        outcome["problems"] += _invalid_samples(case["schema"], walker)
    return outcome


def _invalid_samples(schema: Any, walker: Walker) -> list[tuple[str, str]]:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    rng = random.Random(0)
    problems = []
    for _ in range(SAMPLES):
        text = walker.sample(rng, steps=rng.choice([0, 20, 200])).decode()
        try:
            if not validator.is_valid(json.loads(text)):
                problems.append(("sample", text))
        except json.JSONDecodeError as error:
            problems.append(("not JSON", f"{text}: {error}"))
        except Exception:  # the library itself cannot use the schema
            return problems
    return problems


def load(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def main(path: str, count: str = "100000") -> None:
    cases = load(Path(path))[: int(count)]
    with Pool(2) as workers:
        outcomes = workers.map(judge, cases, chunksize=16)
    print(Counter(outcome["result"] for outcome in outcomes))
    print("refused by", Counter(o["keyword"] for o in outcomes if o.get("keyword")).most_common())
    print(sum((outcome.get("counts", Counter()) for outcome in outcomes), Counter[str]()))
    seconds = sorted(outcome["seconds"] for outcome in outcomes if "seconds" in outcome)
    for share in (0.5, 0.99, 1):
        print(f"{share:.0%} built within {seconds[round(share * (len(seconds) - 1))] * 1e3:.1f} ms")
    for outcome in outcomes:
        for problem in outcome["problems"]:
            print("PROBLEM", outcome["id"], *problem)
        if outcome["result"] in ("crash", "unsatisfiable", "schema_too_complex"):
            print(outcome["result"], outcome["id"], outcome.get("message", ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
