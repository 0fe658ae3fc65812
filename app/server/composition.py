"""The composition root: the parts of the server, put together by hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import LeapjsonError
from app.core.images import ImageJob
from app.core.progress import SILENCE, Progress
from app.core.request import ServiceTier
from app.core.specs import JsonObject, JsonSchema
from app.core.version import version_of
from app.http.application import build_app
from app.http.config import ApiConfig
from app.http.edge import InsideAnswer, ask
from app.http.endpoint import Api
from app.http.errors import status_of
from app.http.keys import ApiKeys, read_api_keys
from app.http.requests.body import check_size
from app.page import STATIC_PATH
from app.server.backend import COMPILE_TARGET, IMAGE_TARGET, Backend
from app.server.preload import warm
from app.server.readings import memory_bounds, readings
from app.server.settings import Settings
from app.serving.adapters import Adapters
from app.serving.admission import Admission
from app.serving.batches import BatchLimits, BatchRunner
from app.serving.compiling.bindings import Bindings
from app.serving.compiling.cache import ConstraintCache
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.compiling.schema_store import SchemaStore, StoredPrograms
from app.serving.compiling.validation import Validation
from app.serving.images.encoding import ImageEncoder
from app.serving.images.fetching import Fetcher, FetchLimits
from app.serving.images.intake import IMAGE_ERRORS, ImageIntake
from app.serving.kept_responses import MemoryResponses, ResponseStore, StoredResponses
from app.serving.service import GenerationService, ServiceConfig
from app.serving.usage import UsageByKey
from app.serving.worker import EngineWorker
from app.serving.workers.pool import WorkerPool, end, spawn
from app.store.store import open_schema_store, open_store
from app.telemetry.collector import open_traces
from app.telemetry.metrics import Metrics
from app.telemetry.watch import Telemetry

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
"""Interval between progress updates while draining."""
DRAW_TARGET = "app.explain.picture:draw_graph"
WALK_TARGET = "app.explain.picture:walk_graph"
EXPLAIN_TARGET = "app.explain.report:explain_schema"
CHECK_TARGET = "app.constraint.satisfaction:satisfied"
CHECK_SECONDS = 2.0
"""CPU time limit for checking answers under a relaxed schema; ``satisfied`` takes less."""
EXPLAIN_SECONDS = 5.0
"""Processor time for the report on a schema that is compiled ahead."""

_WHITE = (
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAAAAACN7WTCAAAAJUlEQVR42u3LMREAAAgEoNf+"
    "nbWC5ww7NfnpiKIoiqIoiqIoniwyIgFvCyLXLgAAAABJRU5ErkJggg=="
)
"""A PNG, which each new worker prepares before its first job."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A server that has not been started; ``app``'s lifespan starts and stops its parts."""

    app: FastAPI
    admission: Admission
    worker: EngineWorker

    async def drain(self, seconds: float, progress: Progress = SILENCE) -> None:
        """Refuse new requests, wait for running answers, and fail those that take too long.

        If the engine is stuck there is no wait.
        """
        self.admission.drain()
        if not (running := self.admission.live):
            return
        try:
            with progress.stage("finishing running answers", running) as stage:
                async with asyncio.timeout(0 if self.worker.stalled else seconds):
                    while left := self.admission.live:
                        stage.reach(max(0, running - left))
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self.admission.wait_idle(), _LOOK_SECONDS)
        except TimeoutError:
            self.worker.cut_off()


async def spawn_workers(settings: Settings) -> tuple[list[Process], list[Process]]:
    """Start compile workers early, so that they import their code while the model loads; and image
    workers if the model is a folder with an image processor."""
    files = [Path(settings.model, f"{kind}_config.json") for kind in ("preprocessor", "processor")]
    images = settings.images and settings.tensor_parallel == 1 and any(map(Path.exists, files))
    compilers, readers = settings.compile_workers, settings.image_workers if images else 0
    return (
        [await spawn(COMPILE_TARGET, settings.compile_limits()) for _ in range(compilers)],
        [await spawn(IMAGE_TARGET, settings.image_limits()) for _ in range(readers)],
    )


def assemble(
    settings: Settings,
    backend: Backend,
    metrics: Metrics,
    preloads: Mapping[str, ConstraintSpec] | None = None,
    progress: Progress = SILENCE,
    spawned: tuple[Sequence[Process], Sequence[Process]] = ((), ()),
) -> Assembly:
    """Put the parts together. ``preloads`` are compiled before the first request is taken;
    ``spawned`` are of ``spawn_workers``. Raises ``LeapjsonError`` where the store is unusable."""
    clock = time.perf_counter
    api_config = _api_config(settings, backend)
    worker = EngineWorker(backend.engine, clock=clock, stall_seconds=settings.stall_seconds)
    admission = Admission(
        _places(settings),
        clock=clock,
        on_rejection=metrics.observe_rejection,
        running=settings.max_running,
        max_queue_tokens=settings.max_queue_tokens,
        max_body_bytes=settings.max_bodies_bytes,
        max_image_bytes=settings.max_images_bytes,
        tenant_share=settings.tenant_share,
        request_seconds=settings.request_seconds,
    )
    pool = WorkerPool(
        backend.compile_target,
        *backend.compile_arguments,
        workers=settings.compile_workers,
        limits=settings.compile_limits(),
        tenant_share=settings.tenant_share,
        warm_up=backend.warm_up,
        spawned=spawned[0],
    )

    store = own_store = None
    if settings.data is not None:
        database = None if settings.store is None else settings.store.get_secret_value()
        store = open_store(settings.data, database)
    if settings.schema_store is not None and settings.schema_store_bytes:
        own_store = open_schema_store(settings.schema_store.get_secret_value())
    schema_store = None
    if settings.schema_store_bytes and (shared := own_store or store) is not None:
        schema_store = SchemaStore(shared, api_config.api_keys.owners, settings.schema_store_bytes)
    compile_program: Callable[[ConstraintSpec, str, ServiceTier], Awaitable[Any]] = pool.run
    programs = None
    if schema_store is not None and backend.program_identity is not None:
        programs = StoredPrograms(schema_store, pool, backend.program_identity())
        compile_program = programs.compile

    async def compile(spec: ConstraintSpec, tenant: str, tier: ServiceTier) -> Constraint:
        return backend.link(await compile_program(spec, tenant, tier))

    explain_seconds = min(EXPLAIN_SECONDS, settings.compile_seconds)
    constraints = ConstraintCache(
        compile, max_bytes=settings.schema_cache_bytes, observer=metrics, clock=clock
    )
    bindings = Bindings(
        backend.read_document,
        max_bytes=settings.verbatim_cache_bytes,
        max_characters=settings.max_verbatim_characters,
    )
    validation = Validation(partial(pool.run, target=CHECK_TARGET, seconds=CHECK_SECONDS))
    images = _image_intake(settings, backend, metrics, spawned[1])
    intakes = () if images is None else (images,)
    service = GenerationService(
        config=ServiceConfig(
            max_sequence_tokens=backend.max_sequence_tokens,
            vocabulary_size=backend.vocabulary.size,
            chat_format=backend.chat_format,
            default_max_tokens=settings.default_max_tokens,
            clip_max_tokens=settings.clip_max_tokens,
            exact_choices=settings.choices == "exact",
            tenants_share=settings.share_between_keys or not api_config.api_keys,
        ),
        worker=worker,
        admission=admission,
        constraints=constraints,
        bindings=bindings,
        validation=validation,
        tokenizer=backend.tokenizer,
        adapters=Adapters(
            backend.adapter_slots, worker, loaded=backend.adapters, folder=settings.adapter_folder
        ),
        images=images,
        observer=metrics,
        status_of=status_of,
        clock=clock,
    )
    schemas = SchemaRegistry(
        constraints=constraints,
        explain=partial(pool.run, target=EXPLAIN_TARGET, seconds=explain_seconds),
        wall_clock=time.time,
        max_bytes=settings.schema_registry_bytes,
        store=schema_store,
    )
    graphs = Graphs(
        draw=partial(pool.run, target=DRAW_TARGET, seconds=explain_seconds),
        walk=partial(pool.run, target=WALK_TARGET, seconds=explain_seconds),
    )
    size, seconds = settings.kept_responses_bytes, settings.kept_responses_seconds
    responses: ResponseStore = (
        MemoryResponses(max_bytes=size, max_seconds=seconds, clock=clock)
        if store is None
        else StoredResponses(store, max_bytes=size, max_seconds=seconds)
    )
    usage = runner = None
    if store is not None:
        usage = UsageByKey(store)
        metrics.request_listener = usage.observe
        tenants = {owner: tenant for tenant, owner in api_config.api_keys.owners.items()}

        async def ask_inside(owner: str, path: str, body: bytes) -> InsideAnswer:
            return await ask(app, path, body, tenant=tenants.get(owner, ""))

        runner = BatchRunner(
            store,
            ask_inside,
            BatchLimits(
                running=settings.batch_running or settings.max_running,
                line_bytes=api_config.max_body_bytes,
                batch_requests=settings.batch_requests,
                key_requests=settings.key_requests,
                response_seconds=int(settings.kept_responses_seconds),
                check=check_size,
            ),
            owners=list(tenants) or [""],
            halted=lambda: admission.draining or service.fault is not None,
        )
    bounds = memory_bounds(settings, backend)
    metrics.watch(
        readings(
            backend,
            service,
            responses if isinstance(responses, MemoryResponses) else None,
            pool,
            programs,
            bounds,
        )
    )
    logger.info(
        "memory limits: %s; %.1f GiB together",
        ", ".join([f"{part} {size / 2**30:.2f} GiB" for part, size in bounds.items() if size]),
        sum(bounds.values()) / 2**30,
    )

    traces = open_traces(settings.otlp_endpoint, model=settings.served_model)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as closing:  # the last that started closes first
            if traces is not None:
                closing.push_async_callback(traces.close)
            for opened in (store, own_store):
                if opened is not None:
                    closing.push_async_callback(opened.close)
            if schema_store is not None:
                closing.push_async_callback(schema_store.tasks.close)
            for workers in (pool, *intakes):
                closing.push_async_callback(workers.close)
            for part in (constraints, bindings, validation, schemas, graphs):
                closing.push_async_callback(part.tasks.close)
            for process in () if intakes else spawned[1]:
                await end(process)
            with progress.stage("starting the compile workers"):
                await pool.start()
            for intake in intakes:
                with progress.stage("starting the image workers"):
                    await intake.pool.start()
            if preloads:
                with progress.stage("compiling the preloaded types", len(preloads)) as stage:
                    for number, (name, spec) in enumerate(preloads.items()):
                        stage.reach(number, now=name)
                        if isinstance(spec, JsonSchema | JsonObject):  # as in requests
                            spec = replace(spec, whitespace=settings.whitespace)
                        warm(await constraints.get(spec))
                        logger.info("preloaded", extra={"type": name})
            worker.start()
            backend.watch(worker.lose)
            closing.push_async_callback(worker.stop)
            for loop in () if usage is None or runner is None else (usage, runner):
                loop.start()
                closing.push_async_callback(loop.close)
            yield

    api = Api(
        config=api_config,
        service=service,
        vocabulary=backend.vocabulary,
        schemas=schemas,
        graphs=graphs,
        render_metrics=metrics.render,
        responses=responses if settings.kept_responses_bytes else None,
        store=store,
        usage=usage,
        wake=(lambda: None) if runner is None else runner.wake,
    )
    app = build_app(
        api,
        lifespan=lifespan,
        telemetry=lambda app: Telemetry(
            app, metrics, model=settings.served_model, traces=traces, content=settings.log_content
        ),
    )
    return Assembly(app, admission, worker)


def _places(settings: Settings) -> int:
    """Maximum running and waiting answers together, and so the limit of one request."""
    return settings.max_running + settings.max_queue


def _api_config(settings: Settings, backend: Backend) -> ApiConfig:
    return ApiConfig(
        served_model=settings.served_model,
        max_model_len=backend.max_sequence_tokens,
        version=version_of(),
        chat_format=backend.chat_format,
        fingerprint=backend.fingerprint,
        products=backend.products,
        created=int(time.time()),
        has_adapters=backend.adapter_slots is not None,
        max_body_bytes=settings.body_bytes(sees=backend.vision is not None),
        images=None if backend.vision is None else settings.image_rules(),
        max_nesting=settings.max_body_nesting,
        max_n=min(settings.max_n, _places(settings)),
        max_messages=settings.max_messages,
        unknown_fields=settings.unknown_fields,
        max_tool_calls=settings.max_tool_calls,
        whitespace=settings.whitespace,
        schema_in_prompt=settings.schema_in_prompt,
        api_keys=api_keys(settings),
        priority_keys=frozenset(f"key {number}" for number in settings.priority_keys),
        metrics_public=settings.metrics_public,
        cors_origins=settings.cors_origins,
        file_bytes=settings.file_bytes,
        key_bytes=settings.key_bytes,
        key_batches=settings.key_batches,
        page=STATIC_PATH if settings.page else None,
    )


def _image_intake(
    settings: Settings, backend: Backend, metrics: Metrics, spawned: Sequence[Process]
) -> ImageIntake | None:
    """The intake of images of a vision model; None for other models."""
    if backend.vision is None or backend.vision_encoder is None:
        return None
    max_tokens = settings.image_tokens(backend.max_sequence_tokens, backend.most_whole)
    pool = WorkerPool(
        backend.image_target,
        backend.image_model,
        settings.reading_limits(),
        workers=settings.image_workers,
        limits=settings.image_limits(),
        errors=IMAGE_ERRORS,
        warm_up=ImageJob(_WHITE, "low", max_tokens),
        spawned=spawned,
        read=pickle.loads,  # arrays unpickle fast: no pauses, nothing to freeze
    )
    fetcher = None
    if settings.allowed_image_hosts:
        limits = FetchLimits(max_bytes=settings.max_image_bytes)
        fetcher = Fetcher(frozenset(settings.allowed_image_hosts), limits)
    return ImageIntake(
        pool,
        metrics.observe_image,
        backend.vision,
        ImageEncoder(backend.vision_encoder, settings.image_cache_bytes),
        max_tokens=max_tokens,
        max_kept_bytes=settings.kept_images_bytes,
        fetcher=fetcher,
    )


def api_keys(settings: Settings) -> ApiKeys:
    """Raises ``LeapjsonError``."""
    given = [key.get_secret_value() for key in settings.api_keys or ()]
    keys = read_api_keys(given, settings.api_keys_file)
    if (most := max(settings.priority_keys, default=0)) > len(keys):
        raise LeapjsonError(f"priority_keys has number {most}, but there are {len(keys)} API keys")
    return keys
