"""transformers' ``generate`` behind ``chat_server``, in static batches.

All requests that wait when the last batch has ended are the next batch (up to ``--together``);
who comes later waits. Every row has its own constraint, made by Outlines' backend of the given
name and kept for requests with the same schema.
"""

import copy
import functools
import queue
import threading
from typing import Any

import outlines
import torch
from chat_server import Job, Piece, parser, serve
from detokenizer import Detokenizer
from outlines.backends import get_json_schema_logits_processor, get_regex_logits_processor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

KEPT = 64
"""Compiled schemas that are kept."""


class Rows(LogitsProcessor):
    """Each row's own processor; None where the text is free."""

    def __init__(self, processors: list[LogitsProcessor | None]) -> None:
        self._processors = processors

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for row, processor in enumerate(self._processors):
            if processor is not None:
                scores[row : row + 1] = processor(input_ids[row : row + 1], scores[row : row + 1])
        return scores


class Listener(StoppingCriteria):
    """Hands every row's new token to its request, and stops the rows that are done."""

    def __init__(self, jobs: list[Job], tokenizer: Any) -> None:
        self._jobs = jobs
        self._eos = tokenizer.eos_token_id
        self._texts = [Detokenizer(tokenizer.decode) for _ in jobs]
        self._left = [job.max_tokens for job in jobs]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **more: Any) -> torch.Tensor:
        for row, token in enumerate(input_ids[:, -1].tolist()):
            if self._left[row] > 0:
                self._push(row, token)
        return torch.tensor([left == 0 for left in self._left])

    def _push(self, row: int, token: int) -> None:
        job = self._jobs[row]
        self._left[row] -= 1
        ended = token == self._eos and not job.ignore_eos
        reason = "stop" if ended else "length" if self._left[row] == 0 else None
        text = self._texts[row].push([] if ended else [token], last=reason is not None)
        if reason is not None or job.cancelled:
            self._left[row] = 0
        job.emit(Piece(text, 1, reason))


class TransformersEngine:
    def __init__(self, model: str, threads: int, together: int, backend: str) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        self._tokenizer.pad_token = self._tokenizer.eos_token
        self._outlined = outlines.from_transformers(self._model, self._tokenizer)
        self._backend = backend
        self._together = together
        self._compiled = functools.lru_cache(KEPT)(self._compile)
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._warm_up()
        threading.Thread(target=self._run, daemon=True).start()

    def prepare(self, job: Job) -> None:
        job.prompt = self._tokenizer.apply_chat_template(
            job.messages, add_generation_prompt=True, tokenize=False
        )
        job.prompt_tokens = len(self._tokenizer(job.prompt).input_ids)
        if job.schema is not None or job.pattern is not None:
            try:
                compiled = self._compiled(job.schema, job.pattern)
            except Exception as error:
                raise ValueError(f"{type(error).__name__}: {error}") from error
            job.constraint = copy.copy(compiled)
            job.constraint.reset()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def _compile(self, schema: str | None, pattern: str | None) -> Any:
        if schema is None:
            return get_regex_logits_processor(self._backend, self._outlined, pattern)
        return get_json_schema_logits_processor(self._backend, self._outlined, schema)

    def _warm_up(self) -> None:
        """The kernels that lay a mask over logits are compiled at their first call."""
        schema = '{"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}'
        job = Job([{"role": "user", "content": "a"}], schema, None, 12, 1.0, 1.0, 0, False)
        self.prepare(job)
        self._generate([job])

    def _run(self) -> None:
        late: Job | None = None
        while True:
            jobs = [late or self._jobs.get()]
            late = None
            while len(jobs) < self._together and not self._jobs.empty():
                job = self._jobs.get()
                if _key(job) != _key(jobs[0]):
                    late = job
                    break
                jobs.append(job)
            try:
                self._generate(jobs)
            except Exception as error:
                for job in jobs:
                    job.emit(Piece(error=f"{type(error).__name__}: {error}"))

    @torch.inference_mode()
    def _generate(self, jobs: list[Job]) -> None:
        first = jobs[0]
        torch.manual_seed(first.seed or 0)
        inputs = self._tokenizer([job.prompt for job in jobs], return_tensors="pt", padding=True)
        longest = max(job.max_tokens for job in jobs)
        sampling = {"temperature": first.temperature, "top_p": first.top_p, "top_k": 0}
        self._model.generate(
            **inputs,
            max_new_tokens=longest,
            min_new_tokens=longest if first.ignore_eos else None,
            do_sample=first.temperature > 0,
            **(sampling if first.temperature > 0 else {}),
            pad_token_id=self._tokenizer.pad_token_id,
            logits_processor=LogitsProcessorList([Rows([job.constraint for job in jobs])]),
            stopping_criteria=StoppingCriteriaList([Listener(jobs, self._tokenizer)]),
        )


def _key(job: Job) -> tuple[float, float, bool]:
    """What all rows of a batch have in common."""
    return job.temperature, job.top_p, job.ignore_eos


def main() -> None:
    options = parser()
    options.add_argument("--backend", required=True)
    given = options.parse_args()
    engine = TransformersEngine(given.model, given.threads, given.together, given.backend)
    serve(engine, given.port)


if __name__ == "__main__":
    main()
