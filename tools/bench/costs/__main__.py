"""Costs of a step, a schema and a context, as Markdown tables.

    python -m tools.bench.costs                      # batch, schema and context: some 6 minutes
    python -m tools.bench.costs batch --model-folder MODEL
    python -m tools.bench.costs sampler weights --threads 1

    batch    step time by the number of answers in it, with leaps and drafts and without
    schema   compile time, cache look-up, masks and time to first token by the size of the schema
    context  prefill, first token and decoding by the length of the prompt
    sampler  time to draw tokens, without a model
    weights  step time and bytes read with weights of 16, 8 and 4 bits; random models
    hybrid   step time of Qwen 3.5's shape, most layers recurrent, and of Qwen 3's; random models
    accuracy effect of weights of 8 and 4 bits on the predictions of the demo or another model
    calls    longest single calls on hostile constraints
    longest  the twelve longest calls on those, MaskBench, the official suite and the probes

Steps run in an engine in this process; times to first token come from a server that it starts.
The model has 160M random parameters, unless a folder is given.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the server does

import argparse
import gc
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.server.interpreter import settle_collector
from loadtest.server import running_server
from tools import datasets
from tools.bench.costs import batch, context, schema_size
from tools.bench.costs.accuracy import accuracy_table
from tools.bench.costs.asking import Client
from tools.bench.costs.calls import calls_table, longest_table
from tools.bench.costs.hybrid import hybrid_table
from tools.bench.costs.sampler import sampler_table
from tools.bench.costs.stepping import Stepper, Words, has_weights, model_config
from tools.bench.costs.weights import SHAPES, weights_table
from tools.bench.model_folder import write_llama_160m

DEFAULT_TABLES = ("batch", "schema", "context")
INDEPENDENT = frozenset({"sampler", "calls", "longest", "weights", "accuracy", "hybrid"})
"""Tables that load all that they need themselves."""
TABLES = (*DEFAULT_TABLES, *sorted(INDEPENDENT))


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    wanted: frozenset[str] = frozenset(options.table or DEFAULT_TABLES)
    if "sampler" in wanted:
        show("Sampler", sampler_table(3 if options.quick else 40, options.threads))
    if "calls" in wanted:
        tokens, answers = (3, 1) if options.quick else (60, 6)
        show("Longest calls", calls_table(options.vocabulary, tokens, answers))
    if "longest" in wanted:
        tokens, answers, count = (3, 1, 3) if options.quick else (40, 2, options.count)
        show("Longest of all", longest_table(options.vocabulary, tokens, answers, count))
    if "accuracy" in wanted:
        show("Accuracy", accuracy_table(options.model_folder, 1 if options.quick else 20))
    if "weights" in wanted:
        with tempfile.TemporaryDirectory() as name:
            show("Weights of 16, 8 and 4 bits", weights_of(options, Path(name)))
    if "hybrid" in wanted:
        with tempfile.TemporaryDirectory() as name:
            show("Recurrent layers", hybrid_of(options, Path(name)))
    if wanted <= INDEPENDENT:
        return
    with tempfile.TemporaryDirectory() as name:
        folder: Path = options.model_folder or Path(name) / "llama-160m"
        if options.model_folder is None:
            write_llama_160m(folder, options.tokenizer)
        words = Words.of(folder)
        steps_of = in_process(wanted, folder, words, options)
        gc.unfreeze()
        gc.collect()  # free the model of this process before the server loads its own
        if wanted & {"schema", "context"}:
            through_server(wanted, folder, words, steps_of, options, Path(name) / "server.log")


def in_process(
    wanted: frozenset[str], folder: Path, words: Words, options: argparse.Namespace
) -> Mapping[int, context.StepCost]:
    """Print the table of batches; return the costs of steps by context length."""
    if not wanted & {"batch", "context"}:
        return {}
    extent = batch_extent(options)
    config = model_config(folder, words, threads=options.threads)
    stepper = Stepper(config, words, max(*extent.batches, context.TOGETHER))
    print(stepper.description, flush=True)
    settle_collector()  # as the server does before it listens
    if "batch" in wanted:
        show("Batch", batch.batch_table(stepper, extent))
    if "context" not in wanted:
        return {}
    steps = 2 if options.quick else 20
    lengths = (16, 32) if options.quick else options.context
    within = context.lengths_within(lengths, stepper.max_model_len, steps)
    return context.step_costs(stepper, within, steps)


def through_server(
    wanted: frozenset[str],
    folder: Path,
    words: Words,
    steps: Mapping[int, context.StepCost],
    options: argparse.Namespace,
    log: Path,
) -> None:
    settings = {} if has_weights(folder) else {"RANDOM_WEIGHTS": "true"}
    if options.threads is not None:
        settings["CPU_THREADS"] = str(options.threads)
    with running_server(folder, log, settings) as server:
        client = Client.of(server.url)
        if "schema" in wanted:
            show("Schema size", schema_size.schema_table(client, words, schema_extent(options)))
        if "context" in wanted:
            number = 2 if options.quick else 5
            firsts = context.first_tokens(client, list(steps), number, words.vocabulary.size)
            show("Context length", context.context_table(steps, firsts))


def batch_extent(options: argparse.Namespace) -> batch.Extent:
    if options.quick:
        return batch.Extent(batches=(1, 2), seconds=0.0, steps=2, answers=2)
    return batch.Extent(batches=options.batch, seconds=2.5, steps=10, answers=16)


def schema_extent(options: argparse.Namespace) -> schema_size.Extent:
    if options.quick:
        return schema_size.Extent(properties=(1, 10), values=(100,), repeats=1)
    return schema_size.Extent(options.properties, values=(100, 1_000, 10_000), repeats=5)


def weights_of(options: argparse.Namespace, folder: Path) -> str:
    return weights_table(
        folder,
        options.size,
        options.tokenizer,
        steps=2 if options.quick else 20,
        threads=options.threads,
        processor_time=options.cpu_time,
    )


def hybrid_of(options: argparse.Namespace, folder: Path) -> str:
    steps = 2 if options.quick else 20
    return hybrid_table(folder, steps, options.threads, processor_time=options.cpu_time)


def show(title: str, text: str) -> None:
    print(f"\n## {title}\n\n{text}", flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("table", nargs="*", metavar="TABLE", help="tables (default: batch schema context)")
    add("--model-folder", type=Path, help="folder of the model to measure and serve")
    add("--tokenizer", type=Path, default=datasets.GPT2, help="tokenizer of the random models")
    add("--vocabulary", type=Path, default=datasets.QWEN2_5, help="tokenizer for calls and longest")
    add("--batch", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128])
    add("--properties", type=int, nargs="+", default=[1, 10, 100, 1_000, 5_000])
    add("--context", type=int, nargs="+", default=[128, 512, 1_024, 1_900])
    add("--count", type=int, help="longest: number of schemas of each source (default: all)")
    add("--threads", type=int, help="threads of the model (default: torch's)")
    add(
        "--size",
        nargs="+",
        default=["160M", *SHAPES],
        choices=["160M", *SHAPES],
        help="weights: sizes of the models",
    )
    add("--cpu-time", action="store_true", help="weights, hybrid: processor time of one thread")
    add("--quick", action="store_true", help="smoke run; the figures mean nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.table) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    return options


if __name__ == "__main__":
    main()
