"""8B in batch-invariant mode: whether bits are the same alone and in a batch, and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken, Span
from app.model.runner import TorchRunner
from tools.bench.gpu_report.device import device_of
from tools.bench.gpu_report.forward import forward_pass
from tools.bench.gpu_report.model import answers_plan, loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B

COMPARED = SamplingParams(temperature=0.0, logprobs=20)
"""Logits are compared by their reported log probabilities: exactly, to the last bit."""


def run(record: Record, options: Options) -> None:
    with loaded(record, options, LLAMA_8B, batch_invariant=True) as (runner, _):
        try:
            compare(record, runner, options.tiny, required=True)
        except Exception as error:
            record.failed("alone and in company", error)
        for batch in (2,) if options.tiny else (1, 8, 32, 64, 256):
            if record.seconds_left < 4:
                record.left_out(f"{batch} answers", "no time left")
                continue
            plan = answers_plan(runner, batch, 20 if options.tiny else 512)
            try:
                way, found, _ = forward_pass(runner, plan, device_of(options), options.tiny)
            except Exception as error:
                record.failed(f"{batch} answers", error)
                continue
            record.row(
                "decode: the pass alone, context 512", answers=batch, ms=found.ms,
                spread=found.spread, way=way,
            )  # fmt: skip


def compare(record: Record, runner: TorchRunner, tiny: bool, *, required: bool) -> None:
    """Compare the first answer's logits alone and in growing batches, some with long spans."""
    context = 20 if tiny else 512
    most = 4 if tiny else 200
    whole = answers_plan(runner, most, context)
    alone = _drawn(runner, whole[:1])
    seen = {}
    for company in (3,) if tiny else (2, 7, 31, 64, 129, 200):
        seen[str(company)] = _drawn(runner, whole[:company]) == alone
    spans = [
        replace(span, tokens=[*range(1, 6)], start=span.start - 4, rows=(4,)) if index % 2 else span
        for index, span in enumerate(whole[: 3 if tiny else 40])
    ]
    seen["leaps"] = _drawn(runner, spans) == alone
    cells = {name: "yes" if same else "no" for name, same in seen.items()}
    record.row("the same bits as alone, with so many", **cells)
    if required and not all(seen.values()):
        record.failed("batch-invariant mode", "logits depend on the other rows of their step")


def _drawn(runner: TorchRunner, plan: Sequence[Span]) -> SampledToken:
    """Token and log probabilities of the first row."""
    runner.launch(plan)
    draws = [Draw(COMPARED, key=0), *[None] * (len(plan) - 1)]
    return runner.sample(draws).wait().tokens[0]
