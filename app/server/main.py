"""The composition root: what the server is made of, put together by hand, and its life."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.answer.formats import ChatFormat, detect
from app.core.constraint import Constraint, ConstraintSpec, JsonObject, JsonSchema, Vocabulary
from app.core.events import StepObserver
from app.core.text import Tokenizer
from app.http.application import build_app
from app.http.config import ApiConfig
from app.http.connection import BoundedConnection
from app.http.errors import status_of
from app.http.middleware.auth import ApiKeys, read_api_keys
from app.server.preload import Preload, load_types, warm
from app.server.settings import Settings
from app.serving.admission import Admission
from app.serving.compile_pool import CompilePool
from app.serving.constraints import ConstraintCache
from app.serving.ports import Engine, TextDecoder
from app.serving.schema_registry import SchemaRegistry
from app.serving.service import GenerationService, ServiceConfig
from app.serving.worker import EngineWorker
from app.telemetry.collector import open_traces
from app.telemetry.edge import install_telemetry
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics, Reading
from app.weights import weights_identity

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 5
"""On the way out, how long clients may take to read what is already generated."""
FAREWELL_SECONDS = 1.0
"""Between the engine's death and the process's end, for ``/ready`` to say so."""
EXPLAIN_TARGET = "app.constraint.explain.report:explain_schema"
EXPLAIN_SECONDS = 5.0
"""Processor time for the report on a schema that is compiled ahead."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The layers below serving, ready to run."""

    engine: Engine
    tokenizer: Tokenizer
    chat_format: ChatFormat
    vocabulary: Vocabulary
    new_decoder: Callable[[], TextDecoder]
    compile_target: str
    """``module:function`` from a specification to a program, run in the compile workers."""
    link: Callable[[Any], Constraint]
    """From such a program to a constraint."""
    max_sequence_tokens: int
    fingerprint: str
    compile_arguments: tuple[Any, ...] = ()
    """What ``compile_target`` gets after each specification."""
    warm_up: ConstraintSpec | None = None
    """What a new compile worker compiles first."""


def load_backend(settings: Settings, observer: StepObserver) -> Backend:
    """Load the model and what belongs to it. Raises ``UnsupportedModel``."""
    # Imported here: whoever assembles a server around another backend needs no torch.
    from app.constraint import Compiler, everyday_schema
    from app.engine import Engine as RealEngine
    from app.model.loading import eos_token_ids
    from app.model.runner import load_runner
    from app.text import HfTokenizer, IncrementalDecoder
    from app.text import Vocabulary as RealVocabulary

    tokenizer = HfTokenizer.load(settings.model)
    chat_format = detect(tokenizer.chat_template, tokenizer.special_tokens)
    tokenizer.make_writable(chat_format.markers())
    vocabulary = RealVocabulary.from_tokenizer(
        tokenizer.hf, eos_token_ids(settings.model), chat_format.markers()
    )
    vocabulary.check_bytes()
    runner = load_runner(settings.model_layer(vocabulary.size))
    engine = RealEngine(
        runner,
        vocabulary,
        tokenizer,
        settings.engine_layer(runner.description.spare_tokens),
        observer,
    )
    description = runner.description
    logger.info("model loaded", extra={"model": settings.model, "runner": str(description)})
    weights = weights_identity(settings.model)
    identity = f"{version('leapjson')} {settings.served_model} {description} {weights}"
    return Backend(
        engine=engine,
        tokenizer=tokenizer,
        chat_format=chat_format,
        vocabulary=vocabulary,
        new_decoder=IncrementalDecoder,
        compile_target="app.constraint:compile_program",
        link=Compiler(vocabulary).link,
        max_sequence_tokens=engine.max_sequence_tokens,
        fingerprint="fp_" + hashlib.blake2b(identity.encode(), digest_size=5).hexdigest(),
        compile_arguments=(settings.constraint_limits(),),
        warm_up=everyday_schema(),
    )


@dataclass(frozen=True, slots=True)
class Assembly:
    """A server that has not been started; ``app``'s lifespan starts and stops its parts."""

    app: FastAPI
    admission: Admission
    worker: EngineWorker

    async def drain(self, seconds: float) -> None:
        """Refuse what is new, wait for what runs, and fail what has not ended in time.

        What an engine runs that hangs is not waited for.
        """
        self.admission.drain()
        try:
            async with asyncio.timeout(0 if self.worker.stalled else seconds):
                await self.admission.wait_idle()
        except TimeoutError:
            self.worker.fail_all("the server was shut down before the answer was finished")


def assemble(
    settings: Settings, backend: Backend, metrics: Metrics, preloads: Sequence[Preload] = ()
) -> Assembly:
    """Put the parts together. ``preloads`` are compiled before the first request is taken."""
    clock = time.perf_counter
    api_config = _api_config(settings, backend)
    worker = EngineWorker(backend.engine, clock=clock, stall_seconds=settings.stall_seconds)
    admission = Admission(
        _places(settings),
        clock=clock,
        running=settings.max_running,
        max_queue_tokens=settings.max_queue_tokens,
        tenant_share=settings.tenant_share,
    )
    pool = CompilePool(
        backend.compile_target,
        *backend.compile_arguments,
        workers=settings.compile_workers,
        limits=settings.compile_limits(),
        warm_up=backend.warm_up,
    )

    async def compile(spec: ConstraintSpec, tenant: str) -> Constraint:
        return backend.link(await pool.compile(spec, tenant))

    async def explain(spec: JsonSchema) -> bytes:
        seconds = min(EXPLAIN_SECONDS, settings.compile_seconds)
        report: bytes = await pool.run(EXPLAIN_TARGET, spec, seconds=seconds)
        return report

    constraints = ConstraintCache(
        compile, max_bytes=settings.schema_cache_bytes, observer=metrics, clock=clock
    )
    service = GenerationService(
        ServiceConfig(
            max_sequence_tokens=backend.max_sequence_tokens,
            vocabulary_size=backend.vocabulary.size,
            chat_format=backend.chat_format,
            default_max_tokens=settings.default_max_tokens,
            leap=settings.leap,
            draft=settings.draft,
            tenants_share=settings.share_between_keys or not api_config.api_keys,
            max_bodies_bytes=settings.max_bodies_bytes,
            tenant_share=settings.tenant_share,
            request_seconds=settings.request_seconds,
        ),
        worker=worker,
        admission=admission,
        constraints=constraints,
        tokenizer=backend.tokenizer,
        new_decoder=backend.new_decoder,
        observer=metrics,
        status_of=status_of,
        clock=clock,
    )
    schemas = SchemaRegistry(
        constraints=constraints,
        explain=explain,
        admission=admission,
        observer=metrics,
        wall_clock=time.time,
        max_bytes=settings.schema_registry_bytes,
    )
    metrics.watch(_readings(backend.engine, constraints))
    metrics.watch(_life_readings(worker, admission, pool))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await pool.start()
        for preload in preloads:
            warm(await constraints.get(_as_asked_for(preload.spec, settings)))
            logger.info("preloaded", extra={"type": preload.name})
        worker.start()
        try:
            yield
        finally:
            await worker.stop()
            await constraints.close()
            await pool.close()

    app = build_app(
        api_config,
        service=service,
        vocabulary=backend.vocabulary,
        schemas=schemas,
        render_metrics=metrics.render,
        lifespan=lifespan,
    )
    install_telemetry(
        app,
        metrics,
        model=settings.served_model,
        traces=open_traces(settings.otlp_endpoint, model=settings.served_model),
        content=settings.log_content,
    )
    return Assembly(app, admission, worker)


def _as_asked_for(spec: ConstraintSpec, settings: Settings) -> ConstraintSpec:
    """As the request will ask that says nothing of white space."""
    if isinstance(spec, JsonSchema | JsonObject):
        return replace(spec, whitespace=settings.whitespace)
    return spec


def _places(settings: Settings) -> int:
    """Answers that may be alive at once, and so the most that one request can ever ask for."""
    return settings.max_running + settings.max_queue


def _api_config(settings: Settings, backend: Backend) -> ApiConfig:
    return ApiConfig(
        served_model=settings.served_model,
        max_model_len=backend.max_sequence_tokens,
        version=version("leapjson"),
        chat_format=backend.chat_format,
        fingerprint=backend.fingerprint,
        created=int(time.time()),
        max_body_bytes=settings.max_body_bytes,
        max_nesting=settings.max_body_nesting,
        max_n=min(settings.max_n, _places(settings)),
        max_messages=settings.max_messages,
        whitespace=settings.whitespace,
        api_keys=_api_keys(settings),
        metrics_public=settings.metrics_public,
        cors_origins=settings.cors_origins,
    )


def _api_keys(settings: Settings) -> ApiKeys:
    """Raises ``LeapjsonError``."""
    given = [key.get_secret_value() for key in settings.api_keys or ()]
    return read_api_keys(given, settings.api_keys_file)


def _readings(engine: Engine, constraints: ConstraintCache) -> list[Reading]:
    cache = constraints
    return [
        Reading("num_requests_running", "Answers that hold cache blocks.",
                lambda: engine.num_running),
        Reading("num_requests_waiting", "Answers that wait for cache blocks.",
                lambda: engine.num_waiting),
        Reading("kv_cache_usage_ratio", "Share of cache blocks that answers hold, 0 to 1.",
                lambda: engine.kv_usage),
        Reading("num_requests_compiling", "Requests that wait for their schema's compilation.",
                lambda: cache.waiting),
        Reading("schema_cache_bytes", "Memory of the compiled schemas, as last measured.",
                lambda: cache.nbytes),
        Reading("schema_cache_entries", "Compiled schemas that are kept.", lambda: len(cache)),
        Reading("schema_cache_states", "States that these schemas' automata have visited.",
                lambda: cache.num_states),
        Reading("schema_cache_masks", "Token masks that these schemas hold, one for each state.",
                lambda: cache.num_masks),
        Reading("schema_cache_hits_total", "Schemas found compiled, or being compiled.",
                lambda: cache.hits, counter=True),
        Reading("schema_cache_misses_total", "Schemas that had to be compiled.",
                lambda: cache.misses, counter=True),
        Reading("schema_cache_evictions_total", "Compiled schemas dropped for room.",
                lambda: cache.evictions, counter=True),
    ]  # fmt: skip


def _life_readings(worker: EngineWorker, admission: Admission, pool: CompilePool) -> list[Reading]:
    return [
        Reading("engine_up", "1 while the engine's thread runs, 0 once it has died.",
                lambda: worker.alive),
        Reading("engine_step_age_seconds",
                "Since the engine's last step ended, while there is work; else 0.",
                lambda: worker.step_age),
        Reading("draining", "1 once the server shuts down and refuses new requests.",
                lambda: admission.draining),
        Reading("compile_worker_restarts_total", "Compile workers that had to be replaced.",
                lambda: pool.restarts, counter=True),
    ]  # fmt: skip


class DrainingServer(uvicorn.Server):
    """uvicorn's server, except for signals: the first one drains, and the exit is a success.

    While it drains it still answers: ``/ready`` says 503, and so do new requests. A second
    signal ends it at once. Without its engine it ends by itself, for an orchestrator to start
    another: ``failed`` then says that the exit is no success.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Any],
        announce: Callable[[str], None],
        alive: Callable[[], bool],
    ) -> None:
        """``drain`` makes a coroutine; ``announce`` is told the server's URL once it listens.

        ``alive`` says whether the engine runs; it is asked while the server listens.
        """
        super().__init__(config)
        self.failed = False
        self._drain = drain
        self._announce = announce
        self._alive = alive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        if not self.failed and not self._alive():
            self.failed = True
            asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._exit)
        return await super().on_tick(counter)

    def _exit(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self._signalled = True
        self._loop.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        self._draining = asyncio.ensure_future(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self._exit()


def serve(
    settings: Settings, load: Callable[[Settings, StepObserver], Backend] = load_backend
) -> int:
    """Load, listen, serve until told to stop; the process's exit status."""
    configure_logging(
        sys.stderr,
        level=settings.log_level,
        log_format=settings.log_format,
        content=settings.log_content,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    preloads = load_types(settings.preload, settings.constraint_limits())
    _api_keys(settings)  # what is wrong with them is said before the model is loaded
    metrics = Metrics()
    assembly = assemble(settings, load(settings, metrics), metrics, preloads)

    class Connection(BoundedConnection):
        on_refusal = staticmethod(metrics.observe_connection_refusal)

    config = uvicorn.Config(
        assembly.app,
        host=settings.host,
        port=settings.port,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )
    server = DrainingServer(
        config,
        drain=lambda: assembly.drain(settings.drain_seconds),
        announce=lambda url: print(greeting(settings.served_model, url), flush=True),
        alive=lambda: assembly.worker.alive,
    )
    # Modules and weights stay: a full collection would visit them with the interpreter's lock held.
    gc.collect()
    gc.freeze()
    server.run()
    return 1 if server.failed else 0


def greeting(model: str, url: str) -> str:
    """What a person who starts the server wants to know: where it is and how to try it."""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"Leapjson serves {model} at {url}/v1 - try: "
        f"curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    )
