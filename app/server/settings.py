"""Every setting of the server, read once and handed down as one frozen config per layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.answer.tools import MOST_CALLS
from app.constraint.limits import Limits
from app.core.model_name import gguf_stem, is_gguf
from app.demo import MODELS
from app.engine.config import EngineConfig
from app.http.config import UnknownFields, Whitespace
from app.http.requests.images import ImageRules
from app.model.config import (
    AdaptersConfig,
    DeviceName,
    DTypeName,
    KvCacheDTypeName,
    ModelConfig,
    QuantizeName,
)
from app.serving.adapters import NAME
from app.serving.images.jobs import ReadingLimits
from app.serving.images.urls import is_host_pattern
from app.serving.service import UNSAID_TOKENS
from app.serving.worker import STALL_SECONDS
from app.serving.workers.pool import WorkerLimits
from app.serving.workers.worker_process import PATIENCE
from app.telemetry.logs import LogFormat

MIB = 1 << 20

IMAGE_BODY_BYTES = 32 * MIB
"""Room for the largest image in base64, or for a few photographs."""

_USUAL_IMAGE_TOKENS = 4096
"""3.2 megapixels for models that count a token for 28 x 28 pixels."""

_IMAGE_START_SECONDS = 300.0
"""A worker imports torch and transformers, which takes long where many start at once."""
_IMAGE_MEMORY = 512 * MIB
_PIXEL_BYTES = 20
"""What a worker may take for an image beyond itself: 605 MB were seen for 49 million pixels with
transparency, 12 bytes for each."""

_PREFILL_SHARE = 8
"""Of a step that computes so many spare tokens of a prompt, reading the weights is a ninth."""

_USUAL_ADAPTERS = 8
"""Loaded at a time, where requests may load them."""

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Digits = Annotated[int, Field(ge=1, le=100)]
"""So many digits and an exponent of two more are far from the largest float, 1.8e308."""


class Settings(BaseSettings):
    """Read from ``LEAPJSON_<NAME>`` environment variables; command-line flags come first."""

    model_config = SettingsConfigDict(
        env_prefix="LEAPJSON_",
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )

    model: str = str(MODELS["demo"])
    """Model folder, Hugging Face name or GGUF file; demo and demo-vision are the embedded ones, of
    which demo is the default."""
    served_model_name: str | None = None
    """Name that requests give; by default the model's own."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port; 0 picks a free one."""

    dtype: DTypeName = "auto"
    """Type of weights and cache."""
    device: DeviceName = "auto"
    """Where the model runs."""
    dequantize: bool = False
    """Where a model's weights are stored in 8 or 4 bits, make weights of dtype of them: for devices
    that cannot run them as they are."""
    quantize: QuantizeName | None = None
    """Round the weights of linear layers to 8 or 4 bits at load, on the CPU."""
    random_weights: bool = False
    """Random weights for a folder that has only a config: benchmarks."""
    tensor_parallel: Count = 1
    """Devices that share one model, a process for each. See docs/operations.md."""
    cpu_threads: Count | None = None
    """CPU threads of a forward pass; by default the cores it may use."""
    max_model_len: Count | None = None
    """Tokens of a prompt and its answer together."""
    kv_cache_bytes: Bytes | None = None
    """Memory for keys and values, and for states of recurrent layers, in bytes."""
    kv_cache_dtype: KvCacheDTypeName = "auto"
    """Type that keys and values are kept in: auto is the model's, fp8 half of that, on CUDA."""
    kv_block_size: Count = 16
    """Tokens in a cache block."""

    images: bool = True
    """Keep what of a model sees, where it does; false serves it as text, in less memory."""
    image_cache_bytes: Bytes = 256 * MIB
    """Memory for what the vision tower made of the images seen last, in bytes."""

    adapters: Annotated[tuple[str, ...], NoDecode] = ()
    """LoRA adapters in peft's format, each as name=folder or name=Hugging Face name, with commas
    between. Requests give them as model:name."""
    adapter_folder: str | None = None
    """Folder whose folders may be loaded as adapters by requests; by default none may. With it the
    server trusts all who may send requests to load and unload, see docs/security.md."""
    max_adapters: Count | None = None
    """Adapters loaded at a time; by default those of adapters, or 8 with adapter_folder if these
    are fewer. On a GPU each takes memory from the start."""
    max_adapter_rank: Annotated[int, Field(ge=1, le=256)] = 32
    """The largest rank of an adapter. On a GPU all take the memory of this one."""

    batch_invariant: bool = False
    """Make answers independent of what runs beside them to the last bit, on a GPU at the cost of
    speed; where that cannot be had the server does not start. See docs/operations.md."""
    cuda_memory_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the GPU's memory that the server may take, weights and all; the cache gets what is
    left of it, unless kv_cache_bytes is set. Means nothing on the CPU."""
    cuda_graphs: bool = True
    """Replay small steps from CUDA graphs. Means nothing on the CPU."""
    cuda_graph_tokens: Count = 1024
    """Tokens of the largest step that is replayed from a CUDA graph. Means nothing on the CPU."""

    max_batch_tokens: Count | None = None
    """Tokens computed in one step; by default those of prompts and 512 more."""
    max_prefill_tokens: Count | None = None
    """Tokens of prompts computed in one step that running answers wait for; by default what suits
    the device."""
    max_running: Count = 64
    """Answers that run at a time."""
    leap: bool = True
    """Leap over forced text; false decodes it token by token."""

    draft: bool = True
    """Guess how answers go on, and verify it in one pass; the text is the same."""
    choices: Literal["tokens", "exact"] = "tokens"
    """How a value of a finite set is drawn where a request does not say: token by token, or as a
    whole by its probability. See docs/confidence.md."""
    schema_in_prompt: Literal["auto", "true", "false"] = "auto"
    """Whether the prompt tells the model the answer's schema where a request does not say; auto:
    that of a response_format, to models that read schemas."""

    max_queue: Annotated[int, Field(ge=0)] = 256
    """Answers that may wait beyond those that run."""
    max_queue_tokens: Annotated[
        Count,
        Field(
            description="Tokens of the answers that wait, prompts and max_tokens; one that sets "
            f"none counts as {UNSAID_TOKENS}."
        ),
    ] = 1 << 22
    tenant_share: Annotated[float, Field(ge=0.01, le=1)] = 0.9
    """Share of the queue that one API key, or without keys one address, may fill. max_queue is
    that share: others find the rest above it; 1 leaves them none."""
    request_seconds: Seconds = 3600.0
    """Time for a request, from its arrival to its last token, in seconds; the most that it may ask
    for with timeout."""
    stall_seconds: Seconds = STALL_SECONDS
    """Time without the end of a step, while there is work, after which the engine counts as hung
    and /health asks for a restart, 30 seconds before the process ends by itself; more than any step
    takes."""
    default_max_tokens: Count | None = None
    """Where a request sets no max_tokens; by default what the context leaves."""
    clip_max_tokens: bool = True
    """Lower a max_tokens above what the context leaves, which the header x-leapjson-max-tokens
    tells; false refuses it."""
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    """On SIGTERM, how long running answers may take to end."""

    whitespace: Whitespace = "spaced"
    """Form of JSON answers where a request does not say: spaced, compact, flexible, or indent:N
    with N up to 16."""
    max_integer_digits: Digits = Limits().integer_digits
    """Digits before the point of numbers that a schema leaves unbounded."""
    max_fraction_digits: Digits = Limits().fraction_digits
    """Digits after the point of a number."""
    schema_cache_bytes: Bytes = 256 * MIB
    """Memory for compiled schemas, in bytes."""
    schema_registry_bytes: Bytes = 64 * MIB
    """Memory for schemas kept by id (POST /v1/schemas), in bytes."""
    kept_responses_bytes: Annotated[int, Field(ge=0)] = 64 * MIB
    """Memory for responses that later requests may go on from (previous_response_id), in bytes; 0
    keeps none."""
    kept_responses_seconds: Seconds = 86_400.0
    """How long a response is kept after it was last used, in seconds."""
    max_verbatim_characters: Count = 400_000
    """Characters of the texts that the x-verbatim values of one request have to stand in."""
    verbatim_cache_bytes: Bytes = 256 * MIB
    """Memory for such texts, read, and for the masks over them, in bytes."""
    compile_workers: Count = 2
    """Processes that compile schemas."""
    compile_seconds: Annotated[
        Seconds,
        Field(
            description="Processor time for compiling one schema, in seconds; "
            f"a request waits {PATIENCE} times as long at most."
        ),
    ] = 10.0
    compile_memory_bytes: Bytes = 1024 * MIB
    """Memory limit for compiling one schema, in bytes."""
    preload: Annotated[tuple[str, ...], NoDecode] = ()
    """Python types (module:Type) compiled at start-up; commas between several."""

    max_body_bytes: Annotated[
        Bytes,
        Field(
            description="Size of a request body; where the model sees images and this is not set, "
            f"{IMAGE_BODY_BYTES // MIB} MiB."
        ),
    ] = 4 * MIB
    max_bodies_bytes: Annotated[Bytes, Field(validate_default=True)] = 256 * MIB
    """Size of all request bodies together that are being read; of it, as of max_queue,
    tenant_share leaves others a rest above."""
    max_images: Count = 16
    """Images of one request. See docs/images.md."""
    max_image_bytes: Bytes = 20 * MIB
    """Size of the file of one image."""
    max_image_pixels: Count = 50_000_000
    """Pixels of one image, as its file has them."""
    max_image_tokens: Count | None = None
    """Tokens that one image may count for, to which larger ones are scaled down; by default 4096,
    or three quarters of the context if that is less. Where the tokens of an image see one another
    (Gemma 3 and 4) max_batch_tokens less max_running is a bound, too."""
    max_images_bytes: Bytes = 1024 * MIB
    """Memory for the images of all requests that are served, as they were sent and as the model
    takes them, in bytes; of it, as of max_queue, tenant_share leaves others a rest above."""
    kept_images_bytes: Bytes = 256 * MIB
    """Memory for images as they were prepared for earlier requests, so that the same file is not
    read again, in bytes."""
    image_workers: Count = 2
    """Processes that read images, where the model sees them."""
    image_seconds: Annotated[
        Seconds,
        Field(
            description="Processor time for reading one image, in seconds; "
            f"a request waits {PATIENCE} times as long at most."
        ),
    ] = 10.0
    allowed_image_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Hosts that images are fetched from where a request gives a URL, with commas between:
    images.example.com, or *.example.com for all below. By default none: images come in the request.
    See docs/security.md."""
    max_body_nesting: Annotated[int, Field(ge=1, le=190)] = 100
    """Depth of a request body's JSON."""
    max_n: Count = 16
    """Choices of one request (n), at most as many as may run and wait together."""
    max_messages: Count = 1024
    """Messages of one request."""
    unknown_fields: UnknownFields = "ignore"
    """What is done about fields of requests that are not acted on and change no answer: ignore
    names them in the header x-leapjson-ignored, refuse answers 400. See docs/requests.md."""
    max_tool_calls: Annotated[int, Field(ge=1, le=1024)] = MOST_CALLS
    """Calls of one answer, where its model's chat template takes several."""

    api_keys: Annotated[tuple[SecretStr, ...] | None, NoDecode] = None
    """Keys of which requests need one, with commas between; by default none. Rather in the
    environment: other users see a flag in the list of processes."""
    api_keys_file: str | None = None
    """File with more such keys, one on each line; # starts a comment."""
    share_between_keys: bool = False
    """Share computed prompts and what drafts learn between API keys; by what an answer costs,
    their holders could then find out what others asked."""
    metrics_public: bool = False
    """Serve /metrics without a key, like /health and /ready."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins (https://example.com) whose pages may call the server, with commas between; * is
    every origin. By default none."""
    page: bool = True
    """Serve the page at / and the API's documentation at /docs."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level logged."""
    log_format: LogFormat = "auto"
    """Log lines as JSON or text; auto: text in a terminal, else JSON."""
    log_content: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Characters of each request, answer and error that the log shows. They may be private: by
    default none."""
    otlp_endpoint: Annotated[str | None, Field(pattern=r"^https?://[^/?#\s]")] = None
    """Collector that traces go to, by OTLP over HTTP: http://collector:4318. By default what
    OTEL_EXPORTER_OTLP_ENDPOINT says. Needs leapjson[otel]."""

    @field_validator("model")
    @classmethod
    def _is_a_place(cls, model: str) -> str:
        return str(MODELS.get(model, model))

    @field_validator(
        "preload", "api_keys", "cors_origins", "adapters", "allowed_image_hosts", mode="before"
    )
    @classmethod
    def _split_at_commas(cls, value: str | Iterable[str] | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = [value] if isinstance(value, str) else value
        names = (name.strip() for each in given for name in each.split(","))
        return tuple(name for name in names if name)

    @field_validator("api_keys")
    @classmethod
    def _has_keys(cls, keys: tuple[SecretStr, ...] | None) -> tuple[SecretStr, ...] | None:
        if keys == ():  # a secret that was not filled in would leave the server open
            raise ValueError("it is set and holds no key; unset it for a server without keys")
        return keys

    @field_validator("adapters")
    @classmethod
    def _are_named(cls, adapters: tuple[str, ...]) -> tuple[str, ...]:
        names = [each.partition("=")[0] for each in adapters]
        for each, name in zip(adapters, names, strict=True):
            if not re.fullmatch(NAME, name) or not each.partition("=")[2]:
                raise ValueError(f"{each!r} is not of the form name=folder")
            if names.count(name) > 1:
                raise ValueError(f"two adapters are named {name!r}")
        return adapters

    @field_validator("max_adapters")
    @classmethod
    def _have_room_for_all(cls, most: int | None, settings: ValidationInfo) -> int | None:
        if most is not None and most < len(settings.data.get("adapters", ())):
            raise ValueError(f"{most} is less than the adapters that are named")
        return most

    @field_validator("max_bodies_bytes")
    @classmethod
    def _have_room_for_one(cls, size: int, settings: ValidationInfo) -> int:
        if size < settings.data.get("max_body_bytes", 0):
            raise ValueError(f"{size} is less than max_body_bytes, the size of one body")
        return size

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            # A browser sends scheme, host and port alone: anything else would never match.
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
                raise ValueError(f"{origin!r} is not an origin, like https://example.com:8443")
        return origins

    @field_validator("allowed_image_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host_pattern(host):
                raise ValueError(
                    f"{host!r} is no host name in small letters, like images.example.com or "
                    "*.example.com"
                )
        return hosts

    @property
    def served_model(self) -> str:
        """The name that requests give."""
        if self.served_model_name is not None:
            return self.served_model_name
        for name, folder in MODELS.items():
            if self.model == str(folder):
                return f"leapjson-{name}"
        if is_gguf(self.model):
            return gguf_stem(self.model)
        place = Path(self.model)
        return place.resolve().name if place.is_dir() else self.model

    @property
    def set_for_cuda(self) -> list[str]:
        """Names of the variables that are set and mean something on a GPU alone."""
        names = sorted(name for name in self.model_fields_set if name.startswith("cuda_"))
        return [f"LEAPJSON_{name.upper()}" for name in names]

    @property
    def named_adapters(self) -> dict[str, str]:
        """Folders and names on the Hub, by what requests call them."""
        return dict(each.split("=", 1) for each in self.adapters)

    def _adapters_config(self) -> AdaptersConfig | None:
        if not self.adapters and self.adapter_folder is None:
            return None
        usual = 0 if self.adapter_folder is None else _USUAL_ADAPTERS
        return AdaptersConfig(
            named=self.named_adapters,
            count=self.max_adapters or max(len(self.adapters), usual),
            rank=self.max_adapter_rank,
        )

    def model_layer(self, vocabulary_size: int, engine: EngineConfig) -> ModelConfig:
        """``engine`` says how large a step may be."""
        return ModelConfig(
            model=self.model,
            dtype=self.dtype,
            device=self.device,
            max_model_len=self.max_model_len,
            block_size=self.kv_block_size,
            kv_cache_bytes=self.kv_cache_bytes,
            kv_cache_dtype=self.kv_cache_dtype,
            cuda_memory_share=self.cuda_memory_share,
            max_batch_tokens=engine.max_batch_tokens,
            max_running=engine.max_running,
            max_rows_each=1 + engine.max_draft_tokens,
            max_scored_rows=engine.small_gap_tokens,
            vocab_size=vocabulary_size,
            dequantize=self.dequantize,
            quantize=self.quantize,
            images=self.images,
            image_cache_bytes=self.image_cache_bytes,
            image_tokens=self.max_image_tokens or _USUAL_IMAGE_TOKENS,
            prompt_images=self.max_images,
            random_weights=self.random_weights,
            tensor_parallel=self.tensor_parallel,
            threads=self.cpu_threads,
            batch_invariant=self.batch_invariant,
            adapters=self._adapters_config(),
            cuda_graphs=self.cuda_graphs,
            max_graph_tokens=self.cuda_graph_tokens,
        )

    def engine_layer(self, spare_tokens: int, *, overlap: bool = False) -> EngineConfig:
        """``spare_tokens``, ``overlap``: see ``EngineConfig``; the device decides on them."""
        prefill = self.max_prefill_tokens or _PREFILL_SHARE * spare_tokens
        return EngineConfig(
            max_batch_tokens=self.max_batch_tokens or prefill + max(512, self.max_running),
            max_running=self.max_running,
            max_prefill_tokens=prefill,
            spare_tokens=spare_tokens,
            overlap=overlap,
            leap=self.leap,
        )

    def body_bytes(self, *, sees: bool) -> int:
        """Of one request; ``sees``: whether the model has eyes."""
        if sees and "max_body_bytes" not in self.model_fields_set:
            return min(IMAGE_BODY_BYTES, self.max_bodies_bytes)
        return self.max_body_bytes

    def image_rules(self) -> ImageRules:
        return ImageRules(
            hosts=frozenset(self.allowed_image_hosts),
            max_images=self.max_images,
            max_bytes=self.max_image_bytes,
        )

    def reading_limits(self) -> ReadingLimits:
        return ReadingLimits(max_bytes=self.max_image_bytes, max_pixels=self.max_image_pixels)

    def image_limits(self) -> WorkerLimits:
        """Of the workers that read images, which hold several copies of one."""
        memory = _IMAGE_MEMORY + self.max_image_bytes * 4 + self.max_image_pixels * _PIXEL_BYTES
        return WorkerLimits(
            seconds=self.image_seconds,
            memory_bytes=memory,
            answer_bytes=self.max_images_bytes,
            start_seconds=_IMAGE_START_SECONDS,
        )

    def image_tokens(self, context: int, most_whole: int | None = None) -> int:
        """What one image may count for where prompt and answer may have ``context``, and a step
        ``most_whole`` tokens of an image that it has to compute whole."""
        asked = self.max_image_tokens or min(_USUAL_IMAGE_TOKENS, context * 3 // 4)
        return asked if most_whole is None else min(asked, most_whole)

    def compile_limits(self) -> WorkerLimits:
        return WorkerLimits(seconds=self.compile_seconds, memory_bytes=self.compile_memory_bytes)

    def constraint_limits(self) -> Limits:
        return Limits(
            integer_digits=self.max_integer_digits, fraction_digits=self.max_fraction_digits
        )
