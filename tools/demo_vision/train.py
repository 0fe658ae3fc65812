"""Trains the model in three stages: the tower on reading, the language model on answers, then all.

*Reading*: for every patch the tower predicts the characters in it, the character before them, the
field of the text around them, and whether it ends here. These labels are known of a rendered
picture, and teach hundreds of times more per picture than an answer does.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional
from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

from tools.demo_model.train import fuse_norms
from tools.demo_vision.answers import IGNORED, Row, Rows, padded, row
from tools.demo_vision.corpus import NOTHING, UNASKED
from tools.demo_vision.model import PLAIN, Reader, coloured, export, new_model, new_projector
from tools.demo_vision.pool import Drawn, batches, both
from tools.demo_vision.tokenizer import new_tokenizer

_GUIDED: Final = ((1, 0), (1, 2), (2, 0))
"""Layers and heads of the language model whose attention is trained on the patch to copy."""
_GUIDANCE: Final = 0.3
_READING: Final = 0.3
"""Weight of the reading loss in the third stage."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a stage."""

    seed: int
    steps: int
    minutes: float
    """Wall-clock minutes after which the schedule ends, at any step."""
    pool: Path
    """Folder of rendered pictures."""
    chunks: int
    """Chunks of 1024 scenes each; half as many of pages."""
    out: Path
    batch: int
    learning_rate: float
    begin: Path | None = None
    """Folder of a stage to continue; None starts a new one."""
    save_every: int = 200
    level: float = 0.4
    """Share of the schedule after which the learning rate falls, in a straight line to zero."""
    warm_up: float = 0.03

    def rate(self, progress: float) -> float:
        """The learning rate: up, level, and down to zero."""
        if progress < self.warm_up:
            return self.learning_rate * (progress / self.warm_up + 1e-3)
        return self.learning_rate * min(1.0, max(0.0, (1 - progress) / (1 - self.level)))


def read(plan: Plan) -> None:
    """The first stage: writes `reader.pt`."""
    torch.manual_seed(plan.seed)
    reader = Reader(new_projector())
    if plan.begin is not None:
        reader.load_state_dict(torch.load(plan.begin / "reader.pt"))
    print(f"{sum(weight.numel() for weight in reader.parameters()):,} parameters", flush=True)
    optimizers = optimizers_for(reader, plan.learning_rate)
    scenes = batches(plan.pool, "scenes", plan.chunks, plan.batch // 2, plan.seed)
    pages = batches(plan.pool, "pages", plan.chunks // 2, plan.batch // 2, plan.seed)
    plan.out.mkdir(parents=True, exist_ok=True)
    start, step, seen = time.monotonic(), 0, []
    while (progress := share(plan, step, start)) < 1:
        set_rate(optimizers, plan.rate(progress))
        batch = both(next(scenes), next(pages))
        with torch.autocast("cpu", torch.bfloat16):
            scores = reader(batch.pictures)
        loss = reading_loss(scores, batch)
        update(reader, optimizers, loss)
        seen.append((loss.item(), *right(scores, batch)))
        step += 1
        if step % 50 == 0:
            means = torch.tensor(seen).mean(0)
            shown = " ".join(f"{value:.3f}" for value in means[1:])
            took = f"{time.monotonic() - start:.0f}s {time.process_time():.0f}s of CPU"
            print(f"step {step} loss {means[0]:.3f} right {shown} {took}", flush=True)
            seen = []
        if step % plan.save_every == 0:
            torch.save(reader.state_dict(), plan.out / "reader.pt")
    torch.save(reader.state_dict(), plan.out / "reader.pt")
    print(f"done: {step} steps, {time.monotonic() - start:.0f} s", flush=True)


def answer(plan: Plan, reader_folder: Path) -> None:
    """The second stage: the language model learns to answer from the features of a finished reader.

    Some heads are trained to attend to the patch of the next character. These patches are known,
    too, and replace the thousands of answers that it would take to find them.
    """
    torch.manual_seed(plan.seed)
    tokenizer = new_tokenizer()
    model, reader = begin(plan, tokenizer, reader_folder)
    language = model.model.language_model
    optimizers = optimizers_for(language, plan.learning_rate)
    drawn = batches(plan.pool, "scenes", plan.chunks, 2 * plan.batch, plan.seed)
    start, step, seen = time.monotonic(), 0, []
    while (progress := share(plan, step, start)) < 1:
        set_rate(optimizers, plan.rate(progress))
        for features, rows in _answered(reader, tokenizer, next(drawn), f"{plan.seed} {step}"):
            loss, measured = answering_loss(model, features, rows)
            update(language, optimizers, loss)
            seen.append(measured)
            step += 1
        if step % 50 == 0:
            shown = " ".join(f"{value:.3f}" for value in torch.tensor(seen).mean(0))
            took = f"{time.monotonic() - start:.0f}s {time.process_time():.0f}s of CPU"
            print(f"step {step} loss, right, guided: {shown} {took}", flush=True)
            seen = []
        if step % plan.save_every == 0:
            export(model, tokenizer, plan.out)
    export(model, tokenizer, plan.out)
    print(f"done: {step} steps, {time.monotonic() - start:.0f} s", flush=True)


def polish(plan: Plan, reader_folder: Path) -> None:
    """The third stage: the whole model learns together, to read and to answer."""
    torch.manual_seed(plan.seed)
    tokenizer = new_tokenizer()
    model, reader = begin(plan, tokenizer, reader_folder)
    reader.train()
    whole = nn.ModuleList([reader, model.model.language_model])
    optimizers = optimizers_for(whole, plan.learning_rate)
    scenes = batches(plan.pool, "scenes", plan.chunks, plan.batch, plan.seed)
    pages = batches(plan.pool, "pages", plan.chunks // 2, plan.batch // 4, plan.seed)
    start, step, seen = time.monotonic(), 0, []
    while (progress := share(plan, step, start)) < 1:
        set_rate(optimizers, plan.rate(progress))
        scene = next(scenes)
        batch = both(scene, next(pages))
        rows = padded(_rows(tokenizer, scene, f"{plan.seed} {step}"), _pad(tokenizer))
        with torch.autocast("cpu", torch.bfloat16):
            features = reader.features(batch.pictures)
            scores = reader.scores(features)
        answering, measured = answering_loss(model, features[: plan.batch].float(), rows)
        update(whole, optimizers, answering + _READING * reading_loss(scores, batch))
        seen.append((*measured, *right(scores, batch)))
        step += 1
        if step % 25 == 0:
            shown = " ".join(f"{value:.3f}" for value in torch.tensor(seen).mean(0))
            took = f"{time.monotonic() - start:.0f}s {time.process_time():.0f}s of CPU"
            print(f"step {step} loss, right, guided, read: {shown} {took}", flush=True)
            seen = []
        if step % plan.save_every == 0:
            _keep(reader, model, tokenizer, plan.out, reader_folder)
    _keep(reader, model, tokenizer, plan.out, reader_folder)
    print(f"done: {step} steps, {time.monotonic() - start:.0f} s", flush=True)


def _keep(
    reader: Reader,
    model: LlavaForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    reader_folder: Path,
) -> None:
    load_reader(model, reader)
    export(model, tokenizer, out)
    torch.save(reader.state_dict(), reader_folder / "reader.pt")


def begin(
    plan: Plan, tokenizer: PreTrainedTokenizerFast, reader_folder: Path
) -> tuple[LlavaForConditionalGeneration, Reader]:
    """The model with the reader's tower and projector in it, and the reader."""
    if plan.begin is not None:
        model = LlavaForConditionalGeneration.from_pretrained(plan.begin, dtype=torch.float32)
    else:
        model = new_model(tokenizer)
    model.model.language_model.set_attn_implementation(PLAIN)
    fuse_norms(model)
    reader = Reader(new_projector())
    reader.load_state_dict(torch.load(reader_folder / "reader.pt"))
    reader.eval()
    load_reader(model, reader)
    return model, reader


def load_reader(model: LlavaForConditionalGeneration, reader: Reader) -> None:
    """Copy the reader's tower and projector into the model."""
    model.model.vision_tower.load_state_dict(coloured(reader.tower).state_dict())
    model.model.multi_modal_projector.load_state_dict(reader.projector.state_dict())


def _answered(
    reader: Reader, tokenizer: PreTrainedTokenizerFast, drawn: Drawn, seed: str
) -> Iterator[tuple[torch.Tensor, Rows]]:
    """Features and rows in two halves, the shorter rows first."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        features = reader.features(drawn.pictures).float()
    rows = _rows(tokenizer, drawn, seed)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].inputs))
    half = len(order) // 2
    for picked in (order[:half], order[half:]):
        yield features[picked], padded([rows[index] for index in picked], _pad(tokenizer))


def _rows(tokenizer: PreTrainedTokenizerFast, drawn: Drawn, seed: str) -> list[Row]:
    return [
        row(tokenizer, kind, record, labels, f"{seed} {index}")
        for index, (kind, record, labels) in enumerate(
            zip(drawn.kinds, drawn.records, drawn.labels, strict=True)
        )
    ]


def answering_loss(
    model: LlavaForConditionalGeneration, features: torch.Tensor, rows: Rows
) -> tuple[torch.Tensor, tuple[float, float, float]]:
    """The loss; and nats per token, the share of right tokens, the share of right attention."""
    image = model.config.image_token_id
    embedded = model.get_input_embeddings()(rows.inputs)
    embedded = embedded.masked_scatter((rows.inputs == image)[..., None], features)
    with torch.autocast("cpu", torch.bfloat16):
        out = model.model.language_model(
            inputs_embeds=embedded, use_cache=False, output_attentions=True
        )
        told = rows.labels != IGNORED
        logits = model.lm_head(out.last_hidden_state[told]).float()
    labels = rows.labels[told]
    loss = functional.cross_entropy(logits, labels)
    row, place = (rows.sources != IGNORED).nonzero(as_tuple=True)
    source = rows.sources[row, place]
    guided, looks = torch.zeros(()), torch.zeros(())
    for layer, head in _GUIDED:
        looked = out.attentions[layer][row, head, place].float()
        at_source = looked.gather(1, source[:, None])[:, 0]
        guided = guided - (at_source + 1e-4).log().mean() / len(_GUIDED)
        looks = looks + (at_source > 0.5).float().mean() / len(_GUIDED)
    right = (logits.argmax(-1) == labels).float().mean()
    return loss + _GUIDANCE * guided, (loss.item(), right.item(), looks.item())


def reading_loss(scores: tuple[torch.Tensor, ...], batch: Drawn) -> torch.Tensor:
    """Nats per patch; patches without text count a tenth."""
    weights = torch.where(batch.labels[..., 0] == NOTHING, 0.1, 1.0).flatten()
    total = torch.zeros(())
    for number, given in enumerate(scores):
        losses = functional.cross_entropy(
            given.float().flatten(0, 1),
            batch.labels[..., number].flatten(),
            reduction="none",
            ignore_index=UNASKED,
        )
        total = total + (losses * weights).sum() / weights.sum()
    return total


@torch.no_grad()
def right(scores: tuple[torch.Tensor, ...], batch: Drawn) -> list[float]:
    """Share of the patches with text that each head predicts right."""
    text = batch.labels[..., 0] != NOTHING
    return [
        (given.argmax(-1) == labels)[text & (labels != UNASKED)].float().mean().item()
        for given, labels in zip(scores, batch.labels.unbind(-1), strict=True)
    ]


def share(plan: Plan, step: int, start: float) -> float:
    """The share of the schedule that is over, by steps or by the clock, whichever is more."""
    return max(step / plan.steps, (time.monotonic() - start) / (60 * plan.minutes))


def optimizers_for(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of layers, AdamW for the others."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        inner = weight.ndim == 2 and not any(
            part in name for part in ("embed", "heads", "position", "lm_head")
        )
        (matrices if inner else others).append(weight)
    return [
        torch.optim.Muon(
            matrices, lr=rate, weight_decay=0.01, ns_steps=4, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def set_rate(optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """Set the learning rate of the next update."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def update(model: nn.Module, optimizers: list[torch.optim.Optimizer], loss: torch.Tensor) -> None:
    """One update of the weights."""
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def _pad(tokenizer: PreTrainedTokenizerFast) -> int:
    return int(tokenizer.pad_token_id or 0)
