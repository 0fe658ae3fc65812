"""Metrics that are read at each scrape."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from app.server.backend import Backend
from app.server.settings import Settings
from app.serving.admission import Admission
from app.serving.compiling.schema_store import StoredPrograms
from app.serving.images.intake import ImageIntake
from app.serving.kept_responses import MemoryResponses
from app.serving.service import GenerationService
from app.serving.workers.pool import WorkerPool
from app.telemetry.metrics import Reading

_STATM = Path("/proc/self/statm")


def memory_bounds(settings: Settings, backend: Backend) -> dict[str, int]:
    """Resident bytes now, and the maximum bytes of each cache and of the workers."""
    pages = int(_STATM.read_text().split()[1]) if _STATM.exists() else 0
    sees = backend.vision is not None
    return {
        "start": pages * os.sysconf("SC_PAGE_SIZE"),
        "kv_cache": backend.host_cache_bytes,
        "schemas": settings.schema_cache_bytes,
        "registered_schemas": settings.schema_registry_bytes,
        "kept_responses": settings.kept_responses_bytes if settings.data is None else 0,
        "verbatim": settings.verbatim_cache_bytes,
        "images": settings.image_cache_bytes * sees,
        "compile_workers": settings.compile_workers * settings.compile_memory_bytes,
        "image_workers": settings.image_workers * settings.image_limits().memory_bytes * sees,
    }


def readings(
    backend: Backend,
    service: GenerationService,
    responses: MemoryResponses | None,
    pool: WorkerPool,
    programs: StoredPrograms | None,
    bounds: Mapping[str, int],
) -> list[Reading]:
    engine, worker, admission = backend.engine, service.worker, service.admission
    cache, bindings = service.constraints, service.bindings
    return [
        Reading("num_requests_running", "Answers being generated (they hold cache blocks).",
                lambda: engine.num_running),
        Reading("num_requests_waiting", "Answers waiting for cache blocks.",
                lambda: engine.num_waiting),
        Reading("kv_cache_usage_ratio", "Share of cache blocks in use, 0 to 1.",
                lambda: engine.kv_usage),
        Reading("state_slots_usage_ratio",
                "Share of recurrent state slots in use, 0 to 1.",
                lambda: engine.state_usage),
        Reading("num_requests_compiling", "Requests waiting for their schema to be compiled.",
                lambda: cache.waiting),
        Reading("schema_cache_bytes", "Memory of compiled schemas, as last measured.",
                lambda: cache.nbytes),
        Reading("schema_cache_entries", "Compiled schemas in the cache.", lambda: len(cache)),
        Reading("schema_cache_states", "Visited automaton states of the cached schemas.",
                lambda: cache.num_states),
        Reading("schema_cache_masks", "Token masks of the cached schemas, one per state.",
                lambda: cache.num_masks),
        Reading("schema_cache_hits_total", "Schemas found in the cache, or already being compiled.",
                lambda: cache.hits),
        Reading("schema_cache_misses_total", "Schemas that had to be compiled.",
                lambda: cache.misses),
        Reading("stored_programs_loaded_total", "Compiled schemas read from the store.",
                lambda: 0 if programs is None else programs.loaded),
        Reading("schema_cache_evictions_total", "Compiled schemas evicted from the cache.",
                lambda: cache.evictions),
        Reading("verbatim_cache_bytes",
                "Memory of x-verbatim texts and their masks.",
                lambda: bindings.nbytes),
        Reading("kept_responses_bytes",
                "Memory of responses kept for previous_response_id; 0 with a store.",
                lambda: 0 if responses is None else responses.nbytes),
        Reading("engine_up", "1 while the engine thread runs, 0 after it has died.",
                lambda: worker.alive),
        Reading("engine_step_age_seconds",
                "Seconds since the engine's last step ended; 0 without work.",
                lambda: worker.step_age),
        Reading("steps_given_up_total",
                "Steps of flex and batch answers cancelled for a higher tier.",
                lambda: engine.given_up),
        Reading("draining", "1 while the server shuts down and refuses new requests.",
                lambda: admission.draining),
        Reading("compile_worker_restarts_total", "Compile workers that were restarted.",
                lambda: pool.restarts),
        Reading("kernel_compilations_total",
                "GPU kernels compiled while serving, with all requests waiting. Should be 0.",
                backend.kernel_compilations),
        *_of_images(admission, service.images),
        *[
            Reading("model_weight_bytes", "Memory of the model's weights, by data type.",
                    partial(float, size), {"dtype": dtype})
            for dtype, size in backend.weight_bytes.items()
        ],
        *[
            Reading("memory_bound_bytes",
                    "Resident memory at start; limits of the caches and of all workers.",
                    partial(float, size), {"part": part})
            for part, size in bounds.items()
        ],
    ]  # fmt: skip


def _of_images(admission: Admission, images: ImageIntake | None) -> list[Reading]:
    """Readings of images; empty for a model that is served as text."""
    if images is None:
        return []

    encoder = images.encoder
    return [
        Reading("images_seen_total", "Images encoded by the vision encoder.",
                lambda: encoder.computed),
        Reading("image_cache_hits_total", "Images whose features were found in the cache.",
                lambda: encoder.found),
        Reading("image_tower_seconds_total",
                "Time in the vision encoder, on its own thread.",
                lambda: encoder.seconds),
        Reading("image_cache_bytes",
                "Memory of the cached features of recent images.",
                lambda: encoder.kept.nbytes),
        Reading("num_requests_awaiting_vision",
                "Answers waiting for the vision encoder, before they wait for cache blocks.",
                lambda: encoder.num_waiting),
        Reading("image_bytes", "Memory of the images of current requests, encoded and decoded.",
                lambda: admission.images.used),
        Reading("kept_image_bytes", "Memory of decoded images kept from earlier requests.",
                lambda: images.kept.nbytes),
        Reading("image_worker_restarts_total", "Image workers that were restarted.",
                lambda: images.pool.restarts),
    ]  # fmt: skip
