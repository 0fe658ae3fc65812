from __future__ import annotations

import pytest

from tests.conformance import suite
from tests.conformance.verdicts import Verdict


@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_the_official_suite_is_right_or_refused_by_name(draft: str) -> None:
    records = suite.run([draft])
    wrong = [
        f"{record.keyword}: {what}"
        for record in records
        for verdict, what in record.exceptions
        if verdict is Verdict.WRONG
    ]
    assert wrong == []
    assert sum(record.counts[Verdict.RIGHT] for record in records) > 700
