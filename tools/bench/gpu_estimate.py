"""What a step on a GPU should take: ``python -m tools.bench.gpu_estimate``.

From launches counted and bytes moved: nothing here was measured with this code, which is what
``tools.bench.gpu_report`` is for. It says what to expect, and which item to look at where that does
not come true. Items add up, since kernels run one after the other:

- products: the weights read once, or the multiplications, whichever takes longer;
- attention: keys and values read once;
- small kernels: what they read and write, and never less than the shortest kernel takes;
- gaps: between one kernel's end and the next one's begin in a CUDA graph, for every launch;
- draws: the logits read as often as the sampler goes over them, and its launches;
- host: what of the host's work the device waits for.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.bench.gpu_report.shapes import LLAMA_8B, Shape

MICRO, MILLI = 1e-6, 1e-3


@dataclass(frozen=True, slots=True)
class Machine:
    """A device. The last three are assumptions, the others were measured by somebody."""

    copy: float = 4.3e12
    """Bytes a second, read and written, of a large copy on an H200; its data sheet says 4.8e12."""
    products: float = 790e12
    """bfloat16 operations a second of a product of 8192 x 8192 matrices on an H200."""
    gap: float = 1.3 * MICRO
    """Between two kernels of a graph on an H100: Hazy Research, "Look Ma, No Bubbles!", 2025."""
    shortest: float = 2.0 * MICRO
    """Of the shortest kernel."""
    reading: float = 0.85
    """Share of ``copy`` that a product of few rows reads its weights at."""
    gathering: float = 0.70
    """The same of attention, which reads block by block."""
    multiplying: float = 0.70
    """Share of ``products`` that products of a few hundred rows reach."""


@dataclass(frozen=True, slots=True)
class Code:
    """Launches of the code, as its tests count them."""

    layer: int
    """Of a layer."""
    layer_products: int
    """Those of them that are matrix products."""
    layer_attention: int
    around: int
    """Of a step besides its layers and draws: embedding, angles of the rotation, first norm,
    choosing rows, logits and their copy to where all replays leave theirs."""
    draw: int
    """Of drawing without filters."""
    draw_passes: int
    """How often drawing goes over its row of logits."""


FUSED = Code(layer=11, layer_products=4, layer_attention=3, around=14, draw=5, draw_passes=2)
"""A test counts the launches again. A draw's are one copy of numbers, three kernels, one copy."""


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    answers: int
    tokens: int
    """Computed in the step, as the graph is padded."""
    draws: int
    context: int
    host: float
    """Seconds of the host's work that the device waits for."""
    gained: float
    """Tokens that the answers grow by."""


LOADS = (
    Load("1 answer", 1, 1, 1, 512, 0.1 * MILLI, 1),
    Load("32 answers, free", 32, 32, 32, 512, 0.1 * MILLI, 32),
    Load("32 answers, constrained", 32, 128, 75, 512, 0.3 * MILLI, 117),
    Load("256 answers, free", 256, 256, 256, 512, 0.1 * MILLI, 256),
)
"""The constrained step is that of ``tools.bench.profile_step``: 110 tokens computed, 117 gained."""


def estimate(shape: Shape, machine: Machine, code: Code, load: Load) -> Mapping[str, float]:
    """Seconds of each item of a step."""
    small = code.layer - code.layer_products - code.layer_attention
    # Each small kernel reads and writes some four rows of the hidden state, the activation more.
    moved = 4 * load.tokens * (shape.hidden + shape.intermediate / small) * shape.item
    launches = shape.layers * code.layer + code.around + code.draw
    operations = shape.operations(load.tokens, 0.0, load.draws)
    kept = load.answers * load.context * shape.token_kv_bytes
    logits = load.draws * shape.vocabulary * shape.item * code.draw_passes
    return {
        "products": max(
            shape.weight_bytes / (machine.copy * machine.reading),
            operations / (machine.products * machine.multiplying),
        ),
        "attention": max(
            kept / (machine.copy * machine.gathering),
            shape.layers * code.layer_attention * machine.shortest,
        ),
        "small kernels": shape.layers * small * max(machine.shortest, moved / machine.copy)
        + code.around * machine.shortest,
        "gaps": launches * machine.gap,
        "draws": max(code.draw * machine.shortest, logits / machine.copy),
        "host": load.host,
    }


def floor(shape: Shape, machine: Machine, load: Load) -> float:
    """Seconds in which what a step must read can be read."""
    return shape.step_bytes(load.answers, load.context) / machine.copy


def table(shape: Shape, machine: Machine, code: Code, loads: Sequence[Load]) -> str:
    """Milliseconds, as Markdown."""
    rows = []
    for load in loads:
        items = estimate(shape, machine, code, load)
        whole, least = sum(items.values()), floor(shape, machine, load)
        cells = [f"{seconds / MILLI:.2f}" for seconds in (*items.values(), whole, least)]
        rows.append([load.name, *cells, f"{whole / least:.2f}", f"{load.gained / whole:.0f}"])
    titles = [
        "step", *estimate(shape, machine, code, loads[0]), "whole", "floor", "over it", "tokens/s",
    ]  # fmt: skip
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(titles)}", *lines[1:]])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copy", type=float, default=4300, help="GB/s of a large copy")
    parser.add_argument("--gap", type=float, default=1.3, help="us between two kernels of a graph")
    given = parser.parse_args(arguments)
    machine = Machine(copy=given.copy * 1e9, gap=given.gap * MICRO)
    print(f"estimated ms of a step, {LLAMA_8B.name} in bfloat16, context 512\n")
    print(table(LLAMA_8B, machine, FUSED, LOADS))


if __name__ == "__main__":
    main()
