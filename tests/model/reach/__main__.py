"""Try kinds of models and report which of them run.

``python -m tests.model.reach`` tries all and writes ``docs/models.md``. With names it tries those
and only prints; with ``--check`` it tries the popular ones and fails if the page is out of date.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from transformers.utils import logging

from tests.model.reach.kinds import POPULAR, every_kind
from tests.model.reach.page import PAGE, TOKENIZERS, promises, row, rows_of, written
from tests.model.reach.trial import Outcome, attempt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model.reach", description=__doc__)
    parser.add_argument("kinds", nargs="*", help="kinds to try and print; by default all")
    parser.add_argument("--check", action="store_true", help="try popular kinds and check the page")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    kinds = arguments.kinds or (POPULAR if arguments.check else every_kind())
    outcomes, failed = _try_all(kinds)
    if arguments.check:
        on_page = rows_of(PAGE.read_text())
        stale = [o for o in outcomes if o.kind not in on_page or not promises(on_page[o.kind], o)]
        for outcome in stale:
            print(f"{PAGE.name} is out of date: {on_page.get(outcome.kind)} must be {row(outcome)}")
        return bool(failed or stale)
    if not arguments.kinds and not failed:
        tokenizers = "".join(PAGE.read_text().partition(TOKENIZERS)[1:])
        PAGE.write_text(f"{written(outcomes)}\n{tokenizers}")
    runs = sum(outcome.refusal is None for outcome in outcomes)
    others = sum(outcome.is_encoder_decoder for outcome in outcomes)
    print(f"{runs} of {len(kinds) - others} run; {failed} failed with an error")
    return bool(failed)


def _try_all(kinds: tuple[str, ...] | list[str]) -> tuple[list[Outcome], int]:
    outcomes, failed = [], 0
    for kind in kinds:
        start = time.perf_counter()
        try:
            outcome = attempt(kind)
        except Exception as error:  # go on with the other kinds
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())
            print(f"FAILED {kind} {place.filename}:{place.lineno} {type(error).__name__} {text}")
            continue
        outcomes.append(outcome)
        seconds = time.perf_counter() - start
        print(f"{row(outcome)} {outcome.error:.1e} {seconds:.2f} s", flush=True)
    return outcomes, failed


if __name__ == "__main__":
    sys.exit(main())
