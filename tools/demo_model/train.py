"""Trains the demo model.

A small Llama learns from an endless stream of generated examples, each seen once; only the
answer's tokens count in the loss. Two-dimensional weights are trained with Muon (Jordan et al.
2024), the others with AdamW. The result depends only on the seed, the number of steps and the order
in which threads add up; `--minutes` ends the schedule early on a slow machine.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from app.terminal.screen import open_screen
from tools.demo_model.circuit import start_as_induction
from tools.demo_model.corpus import mixture
from tools.demo_model.tokenizer import conversation, save, train_tokenizer
from tools.progress import reporting_share

_ROW_MULTIPLE: Final = 32
"""Rows are padded to a multiple of this many tokens: the kernels of a few shapes stay cached."""
_ANSWER_MULTIPLE: Final = 256
"""Answer tokens of a batch are padded to a multiple of this, for the same reason."""
_IGNORED: Final = -100


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a training. Lengths are in tokens."""

    seed: int
    steps: int
    minutes: float
    """Wall-clock minutes after which the schedule ends, at any step."""
    out: Path
    save_every: int
    begin: Path | None = None
    """Folder of a model to continue; None trains a new one."""
    vocabulary: int = 2048
    longest: int = 512
    learning_rate: float = 3e-3
    level: float = 0.4
    """Share of the schedule after which the learning rate falls, in a straight line to zero."""
    warm_up: float = 0.02
    """Share of the schedule in which the learning rate rises."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the schedule; it ends at the share `until` of the schedule."""

    until: float
    batches: Iterator["Batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of examples, and the tokens to predict in them.

    `inputs` are token ids [examples, length], padded on the right. `positions` are indices into the
    flattened `inputs`, one for each token of an answer: that of the token before it. `labels` are
    the answers' tokens, `_IGNORED` for padding.
    """

    inputs: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama of 1.9 million weights that can copy and nothing else."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    start_as_induction(model)
    return model


def fuse_norms(model: torch.nn.Module) -> None:
    """Runs each norm as one operation, which makes a step a fifth faster."""
    for module in model.modules():
        if isinstance(module, LlamaRMSNorm):
            fused = torch.nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon)
            fused.weight = module.weight
            module.forward = fused.forward  # type: ignore[assignment,method-assign]


def train(plan: Plan) -> None:
    """Trains a new model or a given one; writes it to `plan.out` on the way and at the end."""
    torch.manual_seed(plan.seed)
    tokenizer, model = _begin(plan)
    model.train()
    fuse_norms(model)
    optimizers = _optimizers(model, plan.learning_rate)
    stages = _stages(plan, tokenizer)
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters", flush=True)
    start, tokens, losses, hits = time.monotonic(), 0, [], []
    step = 0
    told = open_screen(sys.stderr).progress
    for progress in reporting_share(told, "training", lambda step: _progress(plan, step, start)):
        rate = plan.learning_rate * _rate(plan, progress)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
        stage = next(stage for stage in stages if progress < stage.until)
        batch = next(stage.batches)
        loss, accuracy = _step(model, optimizers, batch)
        losses.append(loss)
        hits.append(accuracy)
        tokens += batch.inputs.numel()
        step += 1
        if step % 100 == 0:
            seconds = time.monotonic() - start
            mean, right = sum(losses) / len(losses), sum(hits) / len(hits)
            print(
                f"step {step} loss {mean:.3f} right {right:.4f} rate {rate:.5f} "
                f"tokens {tokens / 1e6:.2f}M {tokens / seconds:.0f}/s {seconds:.0f}s",
                flush=True,
            )
            losses, hits = [], []
        if step % plan.save_every == 0:
            export(model, tokenizer, plan.out)
    export(model, tokenizer, plan.out)
    print(f"done: {step} steps, {tokens:,} tokens, {time.monotonic() - start:.0f} s")


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes the weights in bfloat16, the configuration, the tokenizer and the chat template."""
    copy = LlamaForCausalLM(model.config)
    copy.to(dtype=torch.bfloat16)  # type: ignore[call-arg]
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    out.mkdir(parents=True, exist_ok=True)
    copy.save_pretrained(out)
    save(tokenizer, out)


def _step(
    model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], batch: Batch
) -> tuple[float, float]:
    """One update. Returns the loss (nats per answer token) and the share of tokens right."""
    # Short rows: the backward pass of plain attention is faster on a CPU than the fused kernel's.
    with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        hidden = model.model(input_ids=batch.inputs, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden.flatten(0, 1)[batch.positions])
    loss = functional.cross_entropy(logits.float(), batch.labels, ignore_index=_IGNORED)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    right = (logits.argmax(-1) == batch.labels).sum() / (batch.labels != _IGNORED).sum()
    return loss.item(), right.item()


def _optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        (matrices if weight.ndim == 2 and "embed" not in name else others).append(weight)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(
            matrices, lr=rate, weight_decay=0.02, ns_steps=4, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]
    # Embeddings and norms learn more slowly: the circuit that the model starts with needs them.
    for optimizer, share in zip(optimizers, (1.0, 0.3), strict=True):
        optimizer.param_groups[0]["share"] = share
    return optimizers


def _rate(plan: Plan, progress: float) -> float:
    """The learning rate as a share of the highest: up, level, and down to zero."""
    if progress < plan.warm_up:
        return progress / plan.warm_up + 1e-3
    return min(1.0, max(0.0, (1 - progress) / (1 - plan.level)))


def _begin(plan: Plan) -> tuple[PreTrainedTokenizerFast, LlamaForCausalLM]:
    """The tokenizer and the model to train, in float32."""
    if plan.begin is None:
        tokenizer = train_tokenizer(plan.vocabulary, count=20_000, seed=plan.seed + 1)
        return tokenizer, new_model(tokenizer)
    model = LlamaForCausalLM.from_pretrained(plan.begin, dtype=torch.float32)
    return PreTrainedTokenizerFast.from_pretrained(plan.begin), model


def _progress(plan: Plan, step: int, start: float) -> float:
    """The share of the schedule that is over, by steps or by the clock, whichever is more."""
    return max(step / plan.steps, (time.monotonic() - start) / (60 * plan.minutes))


def _stages(plan: Plan, tokenizer: PreTrainedTokenizerFast) -> tuple[Stage, ...]:
    """Many short notes first, then the mixture; only the mixture if a training is continued."""
    if plan.begin is not None:
        return (Stage(1.0, _stream(plan, tokenizer, plan.seed + 3, easy=0.0, batch=4096)),)
    return (
        Stage(0.12, _stream(plan, tokenizer, plan.seed + 2, easy=0.5, batch=2048)),
        Stage(1.0, _stream(plan, tokenizer, plan.seed + 3, easy=0.0, batch=3072)),
    )


def _stream(
    plan: Plan, tokenizer: PreTrainedTokenizerFast, seed: int, easy: float, batch: int
) -> Iterator[Batch]:
    """Batches of at most `batch` tokens, every row of one padded to the same length."""
    waiting: dict[int, list[tuple[list[int], list[int]]]] = defaultdict(list)
    for prompt, answer in map(conversation, mixture(seed, easy=easy)):
        asked, said = tokenizer.encode(prompt), tokenizer.encode(answer)
        length = -(len(asked) + len(said)) // _ROW_MULTIPLE * -_ROW_MULTIPLE
        if length > plan.longest:
            continue
        waiting[length].append((asked, said))
        if (len(waiting[length]) + 1) * length > batch:
            yield _batch(waiting.pop(length), length, tokenizer)


def _batch(
    pairs: list[tuple[list[int], list[int]]], length: int, tokenizer: PreTrainedTokenizerFast
) -> Batch:
    pad: Any = tokenizer.pad_token_id
    ids = torch.full((len(pairs), length), pad)
    positions: list[int] = []
    labels: list[int] = []
    for row, (asked, said) in enumerate(pairs):
        ids[row, : len(asked) + len(said)] = torch.tensor(asked + said)
        first = row * length + len(asked) - 1
        positions += range(first, first + len(said))
        labels += said
    missing = -len(positions) % _ANSWER_MULTIPLE
    positions += [0] * missing
    labels += [_IGNORED] * missing
    return Batch(ids, torch.tensor(positions), torch.tensor(labels))
