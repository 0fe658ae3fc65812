"""The official JSON-Schema-Test-Suite: ``python -m tests.conformance.suite [--write FILE]``.

Compiles every case (``JsonSchema``, the specification's open objects) and tries each of its
instances; ``verdicts`` defines the verdicts. A schema without ``$schema`` gets that of its draft.
Random texts of each language are validated by the ``jsonschema`` library as well.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.errors import ConstraintError, UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.conformance import suite_report
from tests.conformance.trials import validator_of
from tests.conformance.verdicts import Verdict, judge, refusal
from tests.constraint.walks import Walker
from tools import datasets

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@dataclass
class Record:
    """The results of one file of the suite, which holds the cases of one keyword."""

    draft: str
    keyword: str
    counts: Counter[Verdict] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Refused cases: (keyword at fault, description of the case)."""
    exceptions: list[tuple[Verdict, str]] = field(default_factory=list)
    """Instances that are neither right nor refused: (verdict, case and instance)."""


def run(
    drafts: Iterable[str], *, optional: bool = False, archive: Path = datasets.SUITE
) -> list[Record]:
    """The records of all files, in order."""
    suite = datasets.official_suite(archive)
    return [
        _judge_file(draft, name, cases)
        for draft in drafts
        for name, cases in suite[draft].items()
        if name.startswith("optional/") == optional
    ]


def _judge_file(draft: str, name: str, cases: list[dict[str, Any]]) -> Record:
    record = Record(draft, name)
    for case in cases:
        _judge_case(record, case)
    return record


def _judge_case(record: Record, case: dict[str, Any]) -> None:
    schema = case["schema"]
    if isinstance(schema, dict):
        schema = {"$schema": DRAFTS[record.draft], **schema}
    walker = None
    try:
        walker = Walker.of(JsonSchema(schema))
        if walker.is_empty:
            walker = None
    except UnsatisfiableSchema:
        pass
    except Exception as error:  # a crash is wrong as well
        keyword = refusal(error) if isinstance(error, ConstraintError) else None
        if keyword is None:
            record.exceptions.append((Verdict.WRONG, f"{case['description']}: {error!r}"))
            record.counts[Verdict.WRONG] += len(case["tests"])
        else:
            record.refused.append((keyword, case["description"]))
            record.counts[Verdict.REFUSED] += len(case["tests"])
        return
    for test in case["tests"]:
        verdict = judge(schema, test["data"], valid=test["valid"], walker=walker)
        record.counts[verdict] += 1
        if verdict is not Verdict.RIGHT:
            record.exceptions.append((verdict, f"{case['description']}: {test['description']}"))
    for text in _wrong_samples(schema, walker) if walker else []:
        record.counts[Verdict.WRONG] += 1
        record.exceptions.append((Verdict.WRONG, f"{case['description']}: our answer {text}"))


def _wrong_samples(schema: Any, walker: Walker) -> list[str]:
    """Texts of the language that the ``jsonschema`` library rejects, or that are not JSON."""
    rng = random.Random(0)
    texts = [walker.sample(rng, steps).decode() for steps in (0, 8, 30)]
    try:
        validator = validator_of(schema)
        return [text for text in texts if not validator.is_valid(json.loads(text))]
    except json.JSONDecodeError:
        return texts
    except Exception:  # the library cannot use the schema: a remote reference
        return []


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.suite")
    parser.add_argument("--data", type=Path, default=datasets.SUITE, help="an archive of tests/")
    parser.add_argument("--write", type=Path, help="write the table of keywords here")
    parser.add_argument("--optional", action="store_true", help="list the optional part's cases")
    options = parser.parse_args(arguments)
    drafts = [draft for draft in DRAFTS if draft in datasets.official_suite(options.data)]
    required = run(drafts, archive=options.data)
    optional = run(drafts, optional=True, archive=options.data)
    for record in required + (optional if options.optional else []):
        for keyword, what in record.refused:
            print(f"refused   {record.draft} {record.keyword}: {what} (by {keyword})")
        for verdict, what in record.exceptions:
            print(f"{verdict:9} {record.draft} {record.keyword}: {what}")
    for name, records in (("required", required), ("optional", optional)):
        totals = sum((record.counts for record in records), Counter[Verdict]())
        print(name, {str(verdict): totals[verdict] for verdict in Verdict if totals[verdict]})
    if options.write:
        options.write.write_text(suite_report.markdown(required, optional))
    return 1 if any(record.counts[Verdict.WRONG] for record in required) else 0


if __name__ == "__main__":
    sys.exit(main())
