"""Fakes of the parts below serving: a scripted engine, a tokenizer, a recording observer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.answer.formats import ChatFormat, detect
from app.answer.pieces import Content, Piece
from app.answer.prompt import Conversation
from app.constraint.quotes.document import Document
from app.core.constraint import ConstraintSpec, Relaxation, Written
from app.core.errors import InvalidAdapter, RequestError
from app.core.events import (
    AnswerToken,
    AnswerUsage,
    Origins,
    OriginToken,
    RequestStats,
    StepOutput,
    TokenChunk,
)
from app.core.graphs import GraphSpec, WalkSpec
from app.core.request import Adapter, EngineRequest, GenerationOptions
from app.core.specs import JsonSchema
from app.core.step import TokenLogprob
from app.core.text import RenderedPrompt
from app.core.verbatim import Hole, Source
from app.http.errors import status_of
from app.serving.adapters import Adapters
from app.serving.admission import Admission, Ticket
from app.serving.compiling.bindings import Bindings
from app.serving.compiling.cache import ConstraintCache
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import RegisteredSchema, SchemaRegistry
from app.serving.compiling.validation import Validation
from app.serving.generation import Generation
from app.serving.service import GenerationRequest, GenerationService, ServiceConfig
from app.serving.timeline import Timeline
from app.serving.worker import EngineWorker
from tests.fakes import ByteVocabulary

PLAIN = detect(None, ())
"""The format of a template without tools."""
GRAPH = {
    "whole": False, "width": 1.0, "height": 1.0, "forced_share": 0.0,
    "states": [], "ways": [], "boxes": [], "routes": [],
}  # fmt: skip
"""An empty graph."""
WALK = {"steps": [], "kept": 0, "at": "s0", "complete": False, "accepted": 0, "state": "0.0.0"}

Script = Callable[[EngineRequest], Sequence[bytes]]


def hello(request: EngineRequest) -> Sequence[bytes]:
    return [b"Hel", b"lo"]


class FakeEngine:
    """Answers each request with the pieces of its script; a step emits one for each request."""

    def __init__(self, script: Script = hello, *, slots: int = 64) -> None:
        self.script = script
        self.slots = slots
        self.urgent: Callable[[], bool] = lambda: False
        self.gate = threading.Event()
        """While it is not set, steps emit nothing, except ``opened``."""
        self.gate.set()
        self.pause_at: int | None = None
        """Number of pieces of one request after which the engine clears the gate."""
        self.refusal: Callable[[EngineRequest], Exception | None] = lambda request: None
        self.crash: BaseException | None = None
        self.finish_with: str | None = None
        self.error: RequestError | None = None
        """The error in the last chunk of an answer, with ``finish_with`` "error"."""
        self.closed: bytes | None = None
        """``TokenChunk.closed`` of all chunks: an answer that its budget cut."""
        self.added: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.threads: set[int] = set()
        self.given_up = 0
        self.opened: list[str] = []
        """Requests whose next piece is yielded first in the next step, also with a cleared gate."""
        self._left: dict[str, list[bytes]] = {}
        self._given: dict[str, int] = {}
        self._spelled: dict[str, list[bytes]] = {}
        self._scheduled: set[str] = set()
        self._requests: dict[str, EngineRequest] = {}

    def add(self, request: EngineRequest) -> None:
        self.threads.add(threading.get_ident())
        error = self.refusal(request)
        if error is not None:
            raise error
        self.added.append(request)
        self._requests[request.request_id] = request
        self._left[request.request_id] = list(self.script(request))
        self._given[request.request_id] = 0

    def abort(self, request_id: str) -> None:
        if self._left.pop(request_id, None) is not None:
            self.aborted.append(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self._left)

    @property
    def num_running(self) -> int:
        return min(len(self._left), self.slots)

    @property
    def num_waiting(self) -> int:
        return max(len(self._left) - self.slots, 0)

    @property
    def kv_usage(self) -> float:
        return 0.0

    @property
    def state_usage(self) -> float:
        return 0.0

    def step(self) -> Iterator[StepOutput]:
        if self.crash is not None:
            raise self.crash
        running = list(self._left)[: self.slots]
        scheduled = [each for each in running if each not in self._scheduled]
        self._scheduled.update(scheduled)
        openings = [self._advance(each) for each in self.opened if each in self._left]
        self.opened.clear()
        if openings:
            yield StepOutput(openings, scheduled)
            scheduled = []
        chunks: list[TokenChunk] = []
        if self.gate.wait(timeout=0.002):
            chunks = [self._advance(request_id) for request_id in list(self._left)[: self.slots]]
            if self.pause_at in self._given.values():
                self.gate.clear()
        if chunks or scheduled:
            yield StepOutput(chunks, scheduled)

    def _advance(self, request_id: str) -> TokenChunk:
        request = self._requests[request_id]
        piece = self._left[request_id].pop(0)
        self._given[request_id] += 1
        given = self._given[request_id]
        reason: Any = None
        if not self._left[request_id]:
            reason = self.finish_with or "stop"
        elif given == request.max_tokens:
            reason = "length"
        if reason is not None:
            del self._left[request_id]
        top = [TokenLogprob(ord("H"), -0.5), TokenLogprob(ByteVocabulary().eos, float("-inf"))]
        tokens = [AnswerToken(piece[0] if piece else 0, piece, "sampled", -0.25, top)]
        usage = AnswerUsage(len(request.prompt), 2, given, given - 1, 0, 0, given)
        return TokenChunk(
            request_id,
            piece,
            tokens,
            usage,
            reason,
            self.error if reason else None,
            closed=self.closed,
            origins=self._origins(request, piece) if request.options.origins else None,
        )

    def _origins(self, request: EngineRequest, piece: bytes) -> Origins:
        """Origins of the token of ``piece`` and, once more, of the token before."""
        known = self._spelled.setdefault(request.request_id, [])
        known.append(piece)
        first = max(0, len(known) - 2)
        top = [TokenLogprob(ord("H"), -0.5)]
        tokens = [
            OriginToken(piece[0] if piece else 0, piece, "sampled", -0.25, top)
            if number % 2
            else OriginToken(piece[0] if piece else 0, piece, "held")
            for number, piece in enumerate(known[first:], start=first)
        ]
        return Origins(first, tokens)


class FakeConstraint:
    """A constraint of which only sizes and relaxations are read."""

    def __init__(self, nbytes: int = 1, relaxed: Sequence[Relaxation] = ()) -> None:
        self.nbytes = nbytes
        self.num_states = 3
        self.num_masks = 2
        self.relaxed = relaxed

    def start(self) -> Any:
        raise NotImplementedError

    @property
    def holes(self) -> Sequence[Hole]:
        return ()

    def bind(self, documents: Mapping[Source, Any]) -> FakeConstraint:
        return self


class FakeTokenizer:
    """A tokenizer with one token for each byte of the messages' contents."""

    def __init__(self, generation_prompt: str = "") -> None:
        """``generation_prompt``: text that the chat template adds after the messages."""
        self.generation_prompt = generation_prompt
        self.seen: list[Sequence[Mapping[str, Any]]] = []
        self.opened: list[bool] = []
        self.tools: list[Sequence[Mapping[str, Any]] | None] = []
        self.options: list[Mapping[str, Any]] = []
        self.threads: list[int] = []

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        opens: bool = True,
    ) -> RenderedPrompt:
        self.seen.append(messages)
        self.opened.append(opens)
        self.tools.append(tools)
        self.options.append(options or {})
        self.threads.append(threading.get_ident())
        text = "".join(message["content"] for message in messages) + self.generation_prompt
        return RenderedPrompt(list(text.encode()), text[-64:])

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_prompt(self, text: str, *, add_special_tokens: bool = False) -> Sequence[int]:
        """Bytes of ``text``, after the special token 256 if ``add_special_tokens``."""
        return [*([256] if add_special_tokens else []), *text.encode()]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


class RecordingObserver:
    def __init__(self) -> None:
        self.requests: list[RequestStats] = []
        self.rejections: list[str] = []
        self.compilations: list[tuple[str, str]] = []

    def observe_request(self, stats: RequestStats) -> None:
        self.requests.append(stats)

    def observe_rejection(self, reason: str) -> None:
        self.rejections.append(reason)

    def observe_compile(self, kind: str, result: str, seconds: float) -> None:
        self.compilations.append((kind, result))


@dataclass(frozen=True)
class FakeWeights:
    identity: str


class FakeSlots:
    """Slots for ``count`` adapters; the weights of an adapter are the name of its folder."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.held: dict[int, str] = {}
        self.put_error: Exception | None = None

    def read(self, place: str) -> FakeWeights:
        name = Path(place).name
        if name.startswith("bad"):
            raise InvalidAdapter("r is missing")
        return FakeWeights(name)

    def put(self, slot: int, weights: FakeWeights) -> None:
        if self.put_error is not None:
            raise self.put_error
        self.held[slot] = weights.identity


class Bench:
    """A generation service on fakes, with its parts as attributes."""

    def __init__(
        self,
        engine: FakeEngine | None = None,
        *,
        capacity: int = 64,
        context: int = 1000,
        compile: Callable[..., Any] | None = None,
        default_max_tokens: int | None = None,
        clip_max_tokens: bool = True,
        chat_format: ChatFormat = PLAIN,
        generation_prompt: str = "",
        max_schema_bytes: int = 1 << 20,
        request_seconds: float = 3600.0,
        max_queue_tokens: int | None = None,
        tenant_share: float = 1.0,
        max_bodies_bytes: int = 256 << 20,
        slots: FakeSlots | None = None,
        loaded: Sequence[Adapter] = (),
        adapter_folder: str | None = None,
    ) -> None:
        self.engine = engine or FakeEngine()
        self.chat_format = chat_format
        self.tokenizer = FakeTokenizer(generation_prompt)
        self.observer = RecordingObserver()
        self.compiled: list[ConstraintSpec] = []
        self.compile_error: RequestError | None = None
        self.explained: list[JsonSchema] = []
        self.explain_error: RequestError | None = None
        self.relaxed: Sequence[Relaxation] = ()
        """Relaxations of every compiled constraint."""
        self.written: list[Written] = []
        """Answers of relaxed schemas that were validated."""
        self.worker = EngineWorker(self.engine, clock=time.perf_counter)
        self.admission = Admission(
            capacity,
            clock=time.perf_counter,
            on_rejection=self.observer.observe_rejection,
            max_queue_tokens=max_queue_tokens,
            max_body_bytes=max_bodies_bytes,
            tenant_share=tenant_share,
            request_seconds=request_seconds,
        )
        self.constraints = ConstraintCache(
            compile or self._compile,
            max_bytes=1000,
            observer=self.observer,
            clock=time.perf_counter,
        )
        self.schemas = SchemaRegistry(
            constraints=self.constraints,
            explain=self._explain,
            wall_clock=lambda: 1700000001.5,
            max_bytes=max_schema_bytes,
        )
        self.drawn: list[GraphSpec] = []
        self.draw_error: RequestError | None = None
        self.walked: list[WalkSpec] = []
        self.graphs = Graphs(draw=self._draw, walk=self._walk, max_bytes=1000)
        self.service = GenerationService(
            config=ServiceConfig(
                max_sequence_tokens=context,
                vocabulary_size=300,
                chat_format=chat_format,
                default_max_tokens=default_max_tokens,
                clip_max_tokens=clip_max_tokens,
            ),
            worker=self.worker,
            admission=self.admission,
            constraints=self.constraints,
            bindings=Bindings(
                lambda texts, words: Document(texts, words=words),
                max_bytes=1 << 20,
                max_characters=1000,
            ),
            validation=Validation(self._check),
            tokenizer=self.tokenizer,
            adapters=Adapters(
                slots, self.worker, loaded=loaded, folder=adapter_folder, clock=lambda: 1700000002.5
            ),
            observer=self.observer,
            status_of=status_of,
            clock=time.perf_counter,
            fresh_seed=lambda: 7,
        )

    async def _explain(self, spec: JsonSchema, tenant: str) -> bytes:
        self.explained.append(spec)
        if self.explain_error is not None:
            raise self.explain_error
        return b'{"whole": true}'

    async def _draw(self, asked: GraphSpec, tenant: str) -> bytes:
        self.drawn.append(asked)
        if self.draw_error is not None:
            raise self.draw_error
        return json.dumps(GRAPH).encode()

    async def _walk(self, asked: WalkSpec, tenant: str) -> bytes:
        self.walked.append(asked)
        return json.dumps(WALK).encode()

    async def _check(self, written: Written, tenant: str) -> list[bool | None]:
        self.written.append(written)
        return [False] * len(written.relaxed)

    async def _compile(self, spec: ConstraintSpec, *_: object) -> FakeConstraint:
        self.compiled.append(spec)
        if self.compile_error is not None:
            raise self.compile_error
        return FakeConstraint(relaxed=self.relaxed)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bench]:
        self.worker.start()
        try:
            yield self
        finally:
            self.engine.gate.set()
            await self.worker.stop()
            await self.constraints.tasks.close()

    def held(self, answers: int = 1, tenant: str = "") -> Ticket:
        """A ticket of a request with ``answers`` places."""
        ticket = self.admission.enter(tenant)
        ticket.take(answers)
        return ticket

    async def open(self, request: Asked) -> Generation:
        """Start a generation, which the caller must close."""
        ticket = self.admission.enter()
        timeline = Timeline("/test", request.request_id, self.service.observer, self.service.clock)
        try:
            return await self.service.open(request, timeline, ticket)
        except BaseException:
            ticket.leave()
            raise

    async def register(self, spec: JsonSchema, name: str | None = None) -> RegisteredSchema:
        ticket = self.admission.enter()
        try:
            return await self.schemas.register(spec, name, ticket)
        finally:
            ticket.leave()

    async def texts(self, request: Asked) -> list[str]:
        """The texts of all choices of a request."""
        texts = [""] * request.options.n
        generation = await self.open(request)
        try:
            async for batch in generation.batches():
                for added in batch:
                    texts[added[0]] += text_of(added)
        finally:
            generation.close()
        return texts


def text_of(added: tuple[int, Sequence[Piece]]) -> str:
    """The content in the pieces that were added to a choice."""
    return "".join(piece.text for piece in added[1] if isinstance(piece, Content))


@dataclass(frozen=True)
class Asked(GenerationRequest):
    """A request with an id for its timeline."""

    request_id: str = ""


def ask(request_id: str = "r", **fields: Any) -> Asked:
    """A request with the message ``hi``, if ``fields`` have no messages."""
    messages = fields.pop("messages", [{"role": "user", "content": "hi"}])
    own = {name: fields.pop(name) for name in ("adapter", "content", "tools") if name in fields}
    options = GenerationOptions(**fields)
    return Asked([Conversation(messages)], options=options, request_id=request_id, **own)


async def until(condition: Callable[[], object]) -> None:
    """Poll until ``condition`` is true; its data may belong to another thread."""
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
