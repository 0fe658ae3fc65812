"""Cost of images for the clients that send them, and for other clients.

``python -m tools.bench.images`` starts one server of a vision model (``demo-vision``) and prints
three tables: the time to first token by the size of an image, sent for the first time, again, and
again after other words; the gaps between the chunks of 16 streams of text, alone and, in turn,
while 8 clients send large images, each a different one; and the memory of the server and of its
image workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

from loadtest.faults.watch import image_workers, resident
from loadtest.server import running_server
from loadtest.server_metrics import difference, read_counts
from loadtest.tables import table
from tools.bench.costs.asking import CHAT, Client
from tools.bench.pictures import Size, body, picture, question
from tools.bench.streams import MODEL, Outcome, gaps_table, measure, prepared

LARGE = Size(4000, 3000, "JPEG")
SIZES = (Size(200, 200, "PNG"), Size(1024, 1024, "PNG"), LARGE)
QUICK_SIZES = (Size(200, 200, "PNG"), Size(400, 300, "JPEG"))
TOKENS = 8
"""Tokens of each answer about a picture."""
_TEXT_BEFORE = "Here is something else to look at, with many words before it."
"""Text before a known image, so that the prefix cache has nothing of what follows."""

FIRST_COLUMNS = (
    "image", "KB", "sent", "first token ms", "longest", "reading ms", "tower ms",
    "tower's share", "seen by the tower", "found in the cache", "cached tokens",
)  # fmt: skip


def first_tokens_table(client: Client, sizes: Sequence[Size], number: int) -> str:
    """Times of one client, one request after another; ``number`` pictures of each size."""
    with httpx.Client(base_url=client.url, timeout=60) as metrics:
        client.first_tokens(CHAT, [question(picture(sizes[0], 0), sizes[0], TOKENS)])  # compiles
        rows = []
        for size in sizes:
            files = [picture(size, 1 + each) for each in range(number)]
            kilobytes = f"{statistics.mean(map(len, files)) / 1e3:.0f}"
            for sent, words in (
                ("first", ""), ("again", ""), ("behind other words", _TEXT_BEFORE),
            ):  # fmt: skip
                before = read_counts(metrics)
                requests = [question(file, size, TOKENS, words) for file in files]
                seconds = client.first_tokens(CHAT, requests)
                counts = difference(before, read_counts(metrics))
                rows.append((size.name, kilobytes, sent, *first_cells(seconds, counts)))
    return table(FIRST_COLUMNS, rows)


def first_cells(seconds: Sequence[float], counts: Mapping[str, float]) -> Sequence[str]:
    """Times of requests with one image each, and the server's counts over all of them."""
    number = len(seconds)
    sums = [f"leapjson_image_prepare_seconds_sum{{result={each}}}" for each in ("ok", "kept")]
    reading = sum(counts.get(each, 0.0) for each in sums) / number
    tower = counts.get("leapjson_image_tower_seconds_total", 0.0) / number
    return (
        f"{1e3 * statistics.median(seconds):.1f}",
        f"{1e3 * max(seconds):.1f}",
        f"{1e3 * reading:.1f}",
        f"{1e3 * tower:.1f}",
        f"{tower / statistics.mean(seconds):.0%}",
        f"{counts.get('leapjson_images_seen_total', 0.0):.0f} of {number}",
        f"{counts.get('leapjson_image_cache_hits_total', 0.0):.0f}",
        f"{counts.get('leapjson_tokens_total{source=cached}', 0.0):.0f}",
    )


def prepare(size: Size, count: int) -> int:
    """Build the clients' requests in this process; returns their total bytes."""
    os.nice(10)  # real clients do not use the server's processors
    for number in range(count):
        fields = question(picture(size, 1_000_000 + number), size, TOKENS)
        prepared.append((size.name, body(MODEL, fields)))
    return sum(len(each) for _, each in prepared)


@dataclass(slots=True)
class Memory:
    """Memory of a server and of its image workers, in MiB, at named moments."""

    pid: int
    rows: list[Sequence[object]] = field(default_factory=list)

    def note(self, moment: str) -> None:
        workers = [resident(worker) for worker in image_workers(self.pid)]
        of_workers = " ".join(f"{each:.0f}" for each in workers)
        self.rows.append((moment, f"{resident(self.pid):.0f}", of_workers))

    def table(self) -> str:
        return table(("", "server MiB", "image workers MiB"), self.rows)


def answers_table(outcomes: Sequence[Outcome]) -> str:
    """Responses to the clients that send images, with their times."""
    rows = []
    for (status, code), count in Counter((each.status, each.code) for each in outcomes).items():
        seconds = [each.seconds for each in outcomes if (each.status, each.code) == (status, code)]
        median, longest = statistics.median(seconds), max(seconds)
        rows.append((f"{status} {code}", count, f"{median:.2f}", f"{longest:.2f}"))
    return table(("answer", "images", "median s", "longest s"), rows)


def engine_table(counts: Mapping[str, float]) -> str:
    """The server's counts while images were sent."""
    seen = counts.get("leapjson_images_seen_total", 0.0)
    tower = counts.get("leapjson_image_tower_seconds_total", 0.0)
    read = counts.get("leapjson_image_prepare_seconds_count{result=ok}", 0.0)
    waited = counts.get("leapjson_image_prepare_seconds_sum{result=ok}", 0.0)
    rows = [
        ("images read", f"{read:.0f}"),
        ("ms from an image's arrival until it was read", f"{1e3 * waited / max(read, 1):.0f}"),
        ("images seen by the tower", f"{seen:.0f}"),
        ("ms of the tower for one, beside the streams", f"{1e3 * tower / max(seen, 1):.1f}"),
    ]
    return table(("while images were sent", ""), rows)


@dataclass(frozen=True, slots=True)
class _Extent:
    sizes: Sequence[Size]
    number: int
    streams: int
    clients: int
    images: int
    seconds: float
    rounds: int
    kv_cache_bytes: int = 64 << 20
    """Small enough that the streams alone fill it: later growth has another cause."""


def run(model: Path, extent: _Extent) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        executor = stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        settings = {"SERVED_MODEL_NAME": MODEL, "KV_CACHE_BYTES": str(extent.kv_cache_bytes)}
        log = Path(folder) / "server.log"
        server = stack.enter_context(running_server(model, log, settings))
        metrics = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        memory = Memory(server.process.pid)
        memory.note("started")
        first = first_tokens_table(Client(server.url, MODEL), extent.sizes, extent.number)
        show("Time to the first token", first)
        memory.note("after these")
        size = extent.sizes[-1]
        sent = executor.submit(prepare, size, extent.images).result()
        print(f"\n{extent.images} images of {size.name} in {sent / 1e6:.1f} MB", flush=True)
        before = read_counts(metrics)
        measured = asyncio.run(
            measure(
                server.url,
                executor,
                extent.streams,
                extent.clients,
                extent.seconds,
                extent.rounds,
                lambda rounds: memory.note(
                    f"streams, {rounds} of {extent.rounds} rounds of images"
                ),
            )
        )
        show("Streams of text", gaps_table(measured, f"{extent.clients} clients send images"))
        show("The images meanwhile", answers_table(measured.outcomes))
        show("The server meanwhile", engine_table(difference(before, read_counts(metrics))))
        show("Memory", memory.table())


def show(title: str, text: str) -> None:
    print(f"\n## {title}\n\n{text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # for the server
    options = parse(arguments)
    extent = _Extent(
        sizes=SIZES,
        number=options.number,
        streams=options.streams,
        clients=options.clients,
        images=options.images,
        seconds=options.seconds,
        rounds=options.rounds,
        kv_cache_bytes=options.kv_cache_mib << 20,
    )
    if options.quick:
        extent = _Extent(QUICK_SIZES, 2, streams=2, clients=2, images=4, seconds=0.5, rounds=2)
    run(options.model, extent)


def parse(arguments: Sequence[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.images", description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, default=Path("demo-vision"), help="demo-vision, or a model folder")
    add("--number", type=int, default=8, help="pictures of each size for times to first token")
    add("--streams", type=int, default=16)
    add("--clients", type=int, default=8, help="clients that send large images, one at a time each")
    add("--images", type=int, default=48, help="images that all clients send together")
    add("--seconds", type=float, default=10.0, help="streams alone, before and after each round")
    add("--rounds", type=int, default=3, help="number of rounds of images")
    add(
        "--kv-cache-mib", type=int, default=64, help="small, so that it fills up; more for a folder"
    )
    add("--quick", action="store_true", help="smoke run; the figures mean nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
