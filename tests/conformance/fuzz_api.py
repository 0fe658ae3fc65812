"""schemathesis over ``/openapi.json``: no 5xx, and no undocumented status or answer.

    python -m tests.conformance.fuzz_api --examples 2000

starts a server with the demo model, sends that many requests and prints the counts of statuses.
Half of the requests with a body are valid by the document; in the others one part is wrong. Most
valid ones are cut to few fields and a usual prompt, as one with many fields can hardly ever be
answered. Exit status: 0 if every answer was as documented.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
WITH_A_BODY = 12
"""Examples of an operation with a body per example of one without, which varies little."""
FEW = 4
"""Maximum fields of a small request, besides the usual ones."""
USUAL: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Extract: Ada, 36"}]},
    "/v1/completions": {"prompt": "Ada is"},
    "/v1/responses": {"input": "Extract: Ada, 36"},
    "/v1/responses/input_tokens": {"input": "Extract: Ada, 36"},
    "/v1/messages": {
        "messages": [{"role": "user", "content": "Extract: Ada, 36"}],
        "max_tokens": 99,
    },
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "Ada"}]},
    "/v1/schemas": {"schema": {"type": "array", "items": {"enum": [1, "a"]}, "maxItems": 3}},
    "/v1/schemas/{schema_id}/walk": {"text": '[1, "a"'},
    "/v1/load_lora_adapter": {"lora_name": "ada", "lora_path": "ada"},
    "/v1/unload_lora_adapter": {"lora_name": "ada"},
    "/tokenize": {"prompt": "Ada"},
    "/detokenize": {"tokens": [65, 66]},
}
"""By path: a body that the server answers, without the model."""


@dataclass
class Findings:
    """Counts of answers by operation and status, and the answers that were not as documented."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def examples(self) -> int:
        return self.answers.total()


def fuzz(url: str, document: dict[str, Any], *, examples: int, number: int = 0) -> Findings:
    """Send ``examples`` random requests, seeded by ``number``, to the server at ``url``."""
    schema = schemathesis.openapi.from_dict(document)
    results: Iterable[Any] = schema.get_all_operations()
    operations = [result.ok() for result in results]
    shares = [WITH_A_BODY if operation.body else 1 for operation in operations]
    findings = Findings()
    with requests.Session() as session:
        kept = session.post(f"{url}/v1/schemas", json=USUAL["/v1/schemas"]).json()
        for operation, share in zip(operations, shares, strict=True):
            count = math.ceil(examples * share / sum(shares))
            modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
            if not operation.body:
                modes = modes[:1]
            for mode in modes:
                strategy = _cases(operation, mode, kept["id"])
                _ask(strategy, url, session, math.ceil(count / len(modes)), number, findings)
    return findings


def _cases(operation: Any, mode: GenerationMode, schema_id: str) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)
    if mode is GenerationMode.NEGATIVE:
        return strategy
    kept = st.lists(st.integers(0, 99), max_size=FEW)
    whole = st.sampled_from([False, False, True])
    return st.tuples(whole, kept, strategy).map(lambda drawn: _thinned(*drawn, schema_id))


def _thinned(whole: bool, kept: list[int], case: Any, schema_id: str) -> Any:
    """``case``; unless ``whole``, with few fields, the usual ones, and an existing schema id."""
    usual = USUAL.get(case.operation.path)
    if whole or usual is None or not isinstance(case.body, dict):
        return case
    others = sorted(case.body.keys() - {"model", "messages", *usual})
    chosen = {others[place % len(others)] for place in kept} if others else set()
    if "schema_id" in case.path_parameters:
        case.path_parameters["schema_id"] = schema_id
    model = {"model": case.body["model"]} if case.body.get("model") is not None else {}
    case.body = {name: case.body[name] for name in case.body if name in chosen} | model | usual
    return case


def _ask(
    cases: st.SearchStrategy[Any],
    url: str,
    session: requests.Session,
    count: int,
    number: int,
    findings: Findings,
) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        response = case.call(base_url=url, session=session, timeout=300)
        label = f"{case.method} {case.operation.path}"
        findings.answers[label, response.status_code] += 1
        if response.status_code == 504 and isinstance(case.body, dict) and "timeout" in case.body:
            return  # the request's own time-out has passed
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            problems = "\n".join(str(each) for each in group.exceptions)
            findings.failures.append(
                f"{label} -> {response.status_code}: {problems}\n{case.body!r:.2000}"
            )

    ask()


def report(findings: Findings) -> str:
    rows = [
        f"{times:>6}  {status}  {label}"
        for (label, status), times in sorted(findings.answers.items())
    ]
    total = f"{findings.examples} examples, {len(findings.failures)} not as documented"
    return "\n".join([*findings.failures[:20], *rows, total])


async def _fuzz_demo(examples: int, number: int) -> Findings:
    """Fuzz a server of the demo model in this process."""
    from app.server.backend import load_backend
    from app.server.composition import assemble
    from app.server.settings import Settings
    from app.telemetry.metrics import Metrics
    from tests.http.harness import listening

    own, metrics = Settings(default_max_tokens=64), Metrics()
    app = assemble(own, load_backend(own, metrics), metrics).app
    async with listening(app) as url:
        return await asyncio.to_thread(fuzz, url, app.openapi(), examples=examples, number=number)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    findings = asyncio.run(_fuzz_demo(options.examples, options.seed))
    print(report(findings))
    return 1 if findings.failures else 0


if __name__ == "__main__":
    sys.exit(main())
