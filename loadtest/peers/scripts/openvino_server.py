"""OpenVINO GenAI's continuous batching behind ``chat_server``: one thread steps the pipeline."""

import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any

import openvino_genai as genai
from chat_server import Job, Piece, parser, serve
from detokenizer import Detokenizer

REASONS = {
    genai.GenerationFinishReason.STOP: "stop",
    genai.GenerationFinishReason.LENGTH: "length",
}


class Running:
    """A request in the pipeline."""

    def __init__(self, job: Job, handle: Any, decode: Callable[[list[int]], str]) -> None:
        self.job = job
        self.handle = handle
        self._text = Detokenizer(decode)

    def read(self) -> bool:
        """Emit what is new; whether the request has ended."""
        ended = self.handle.get_status() != genai.GenerationStatus.RUNNING
        tokens: list[int] = []
        reason = None
        while self.handle.can_read():
            for output in self.handle.read().values():
                tokens += output.generated_ids
                reason = REASONS.get(output.finish_reason, reason)
        if tokens or ended:
            last = ended or reason is not None
            text = self._text.push(tokens, last=last)
            self.job.emit(Piece(text, len(tokens), (reason or "stop") if last else None))
            return last
        return False


class OpenVinoEngine:
    def __init__(self, model: str, threads: int, together: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 2
        scheduler.max_num_seqs = together
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        properties = {
            "INFERENCE_PRECISION_HINT": "bf16",
            "KV_CACHE_PRECISION": "bf16",
            "INFERENCE_NUM_THREADS": threads,
        }
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._numbers = itertools.count()
        threading.Thread(target=self._run, daemon=True).start()

    def prepare(self, job: Job) -> None:
        job.prompt = self._tokenizer.apply_chat_template(job.messages, add_generation_prompt=True)
        job.prompt_tokens = self._tokenizer.encode(job.prompt).input_ids.shape[1]

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def _run(self) -> None:
        running: list[Running] = []
        while True:
            # Sleeps while there is nothing to do.
            arrived = [self._jobs.get()] if not running else []
            while not self._jobs.empty():
                arrived.append(self._jobs.get())
            running += [added for job in arrived if (added := self._add(job)) is not None]
            try:
                if self._pipeline.has_non_finished_requests():
                    self._pipeline.step()
                running = [each for each in running if not each.read()]
            except Exception as error:
                for each in running:
                    each.job.emit(Piece(error=f"{type(error).__name__}: {error}"))
                running = []

    def _add(self, job: Job) -> Running | None:
        config = genai.GenerationConfig()
        config.max_new_tokens = job.max_tokens
        config.ignore_eos = job.ignore_eos
        config.set_eos_token_id(self._tokenizer.get_eos_token_id())
        config.do_sample = job.temperature > 0
        if config.do_sample:
            config.temperature = job.temperature
            config.top_p = job.top_p
            config.rng_seed = job.seed or 0
        if job.schema is not None:
            config.structured_output_config = genai.StructuredOutputConfig(json_schema=job.schema)
        elif job.pattern is not None:
            config.structured_output_config = genai.StructuredOutputConfig(regex=job.pattern)
        # The chat template has been applied.
        config.apply_chat_template = False
        try:
            handle = self._pipeline.add_request(next(self._numbers), job.prompt, config)
        except Exception as error:
            job.emit(Piece(error=f"{type(error).__name__}: {error}"))
            return None
        return Running(job, handle, self._tokenizer.decode)


def main() -> None:
    given = parser().parse_args()
    serve(OpenVinoEngine(given.model, given.threads, given.together), given.port)


if __name__ == "__main__":
    main()
