"""Every setting of the server, read once and handed down as one frozen config per layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.answer.tools import MOST_CALLS
from app.constraint.limits import Limits
from app.core.errors import LeapjsonError
from app.core.images import ReadingLimits
from app.core.model_name import gguf_stem, is_gguf
from app.demo import MODELS
from app.engine.config import EngineConfig
from app.http.config import UnknownFields, Whitespace
from app.http.requests.messages import ImageRules
from app.model.config import (
    AdaptersConfig,
    DeviceName,
    DTypeName,
    KvCacheDTypeName,
    ModelConfig,
    QuantizeName,
)
from app.serving.adapters import NAME
from app.serving.images.fetching import is_host_pattern
from app.serving.service import USUAL_TOKENS
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
"""Memory of a worker for each pixel of an image: 605 MB were measured for 49 million pixels with
transparency, 12 bytes for each."""

_PREFILL_SHARE = 8
"""Prefill tokens per spare token: reading the weights is then a ninth of a step."""

_USUAL_ADAPTERS = 8
"""Default number of adapter slots, if requests may load adapters."""

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Digits = Annotated[int, Field(ge=1, le=100)]
"""100 digits and a two-digit exponent are far below the largest float, 1.8e308."""


SECTIONS = {
    "model": "Model",
    "images": "Images",
    "adapters": "LoRA adapters",
    "batch_invariant": "GPU and exactness",
    "max_batch_tokens": "Steps and sampling",
    "max_queue": "Queue and time limits",
    "whitespace": "Schemas",
    "max_body_bytes": "Request limits",
    "data": "Files and batches",
    "api_keys": "Keys and browsers",
    "log_level": "Logs and traces",
}
"""The first setting of each section of docs/settings.md, and the title of the section."""


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
    """Model to serve: a folder, a Hugging Face name, a GGUF file, an embedded demo (demo,
    demo-vision), or smollm2 (SmolLM2-135M-Instruct, downloaded at its first start)."""
    served_model_name: str | None = None
    """Model name in requests and answers; by default the name of the model itself."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 picks a free one."""

    dtype: DTypeName = "auto"
    """Data type of the weights and the KV cache: auto, bfloat16, float16 or float32."""
    device: DeviceName = "auto"
    """Device that runs the model: auto, cpu or cuda."""
    dequantize: bool = False
    """Expand 8- and 4-bit weights to dtype at load, for devices that cannot run them as stored."""
    quantize: QuantizeName | None = None
    """Round the weights of linear layers to int8 or int4 at load (CPU only)."""
    random_weights: bool = False
    """Use random weights, so that the folder needs no weight files; for benchmarks."""
    tensor_parallel: Count = 1
    """Devices that share one model, one process per device. See docs/operations.md."""
    cpu_threads: Count | None = None
    """CPU threads of a forward pass; by default the number of available cores."""
    max_model_len: Count | None = None
    """Maximum tokens of a prompt and its answer together; by default what the model and the memory
    allow."""
    kv_cache_bytes: Bytes | None = None
    """Memory for the KV cache and the states of recurrent layers, in bytes; by default the GPU's
    free memory, or on a CPU an eighth of the memory limit and at most 1 GiB (twice that with
    recurrent layers)."""
    kv_cache_dtype: KvCacheDTypeName = "auto"
    """Data type of the KV cache: auto is the data type of the model, fp8 halves it (CUDA only)."""
    kv_block_size: Count = 16
    """Tokens per KV cache block."""

    images: bool = True
    """Load the vision encoder of models that have one; false serves them as text models in less
    memory."""
    image_cache_bytes: Bytes = 256 * MIB
    """Memory for the encoded features of recent images, in bytes."""

    adapters: Annotated[tuple[str, ...], NoDecode] = ()
    """LoRA adapters in the peft format, as name=folder or name=Hugging Face name, comma-separated.
    Requests select one as model:name."""
    adapter_folder: str | None = None
    """Folder from which requests may load adapters; by default none. Anyone who can send requests
    can then load and unload adapters, see docs/security.md."""
    max_adapters: Count | None = None
    """Maximum adapters loaded at a time; by default the number in adapters, or 8 with
    adapter_folder if that is more. On a GPU each reserves memory at start."""
    max_adapter_rank: Annotated[int, Field(ge=1, le=256)] = 32
    """Maximum rank of an adapter. On a GPU every adapter takes the memory of this rank."""

    batch_invariant: bool = False
    """Make answers bit-identical whatever other requests run; slower on a GPU. The server does not
    start where this is impossible. See docs/operations.md."""
    cuda_memory_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of GPU memory that the server may use, weights included; the KV cache gets the rest
    unless kv_cache_bytes is set. Ignored on the CPU."""
    cuda_graphs: bool = True
    """Replay small steps from CUDA graphs. Ignored on the CPU."""
    cuda_graph_tokens: Count = 1024
    """Tokens of the largest step that is replayed from a CUDA graph. Ignored on the CPU."""

    max_batch_tokens: Count | None = None
    """Maximum tokens of a step; by default max_prefill_tokens plus 512, or max_running if more."""
    max_prefill_tokens: Count | None = None
    """Maximum prompt tokens computed in one step while answers are running; by default chosen for
    the device."""
    max_running: Count = 64
    """Maximum answers decoded at a time."""
    leap: bool = True
    """Append text that the constraint forces in one step; false decodes it token by token."""

    draft: bool = True
    """Speculative decoding: draft likely text, verify it in one pass; the answer is the same."""
    choices: Literal["tokens", "exact"] = "tokens"
    """Default for sampling values from a finite set: tokens (token by token) or exact (whole
    values by their exact probability). See docs/confidence.md."""
    schema_in_prompt: Literal["auto", "true", "false"] = "auto"
    """Default for adding the schema to the prompt; auto adds the schema of a response_format,
    unless the model is not trained to read schemas."""

    max_queue: Annotated[int, Field(ge=0)] = 256
    """Maximum answers waiting beyond the running ones."""
    max_queue_tokens: Annotated[
        Count,
        Field(
            description="Maximum tokens (prompt and max_tokens) of all waiting answers; a request "
            f"without max_tokens counts as {USUAL_TOKENS}."
        ),
    ] = 1 << 22
    tenant_share: Annotated[float, Field(ge=0.01, le=1)] = 0.9
    """Share of the queue and of the compile workers (rounded down, at least one) that one API key,
    or without keys one client address, may use; 1 leaves no room for others."""
    request_seconds: Seconds = 3600.0
    """Maximum time of a request from arrival to last token, in seconds; also the upper bound of its
    timeout field."""
    stall_seconds: Seconds = STALL_SECONDS
    """Time without a finished step, while there is work, after which the engine counts as stuck and
    /health fails; the process exits 30 seconds later. Must exceed the longest step."""
    default_max_tokens: Count | None = None
    """max_tokens of requests that set none; by default the rest of the context."""
    clip_max_tokens: bool = True
    """Lower a max_tokens that exceeds the rest of the context, and report it in the header
    x-leapjson-max-tokens; false refuses the request."""
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Time that running answers get to finish after SIGTERM, in seconds."""

    whitespace: Whitespace = "spaced"
    """Default JSON form: spaced, compact, flexible, or indent:N with N up to 16."""
    max_integer_digits: Digits = Limits().integer_digits
    """Maximum digits before the decimal point where the schema sets no bound."""
    max_fraction_digits: Digits = Limits().fraction_digits
    """Maximum digits after the decimal point."""
    schema_cache_bytes: Bytes = 256 * MIB
    """Memory for compiled schemas, in bytes."""
    schema_registry_bytes: Bytes = 64 * MIB
    """Memory for schemas registered by id (POST /v1/schemas), in bytes."""
    kept_responses_bytes: Annotated[int, Field(ge=0)] = 64 * MIB
    """Memory for responses kept for previous_response_id, in bytes; with data, the limit of each
    API key in the store. 0 stores none."""
    kept_responses_seconds: Seconds = 86_400.0
    """Time that a response is kept after its last use, in seconds."""
    max_verbatim_characters: Count = 400_000
    """Maximum characters of the texts that the x-verbatim values of one request may quote."""
    verbatim_cache_bytes: Bytes = 256 * MIB
    """Memory for indexed x-verbatim texts and their masks, in bytes."""
    compile_workers: Count = 2
    """Processes that compile schemas."""
    compile_seconds: Annotated[
        Seconds,
        Field(
            description="CPU time limit for compiling one schema, in seconds; a request waits at "
            f"most {PATIENCE} times as long."
        ),
    ] = 10.0
    compile_memory_bytes: Bytes = 1024 * MIB
    """Memory limit for compiling one schema, in bytes."""
    preload: Annotated[tuple[str, ...], NoDecode] = ()
    """Python types (module:Type) whose schemas are compiled at start, comma-separated."""

    max_body_bytes: Annotated[
        Bytes,
        Field(
            description="Maximum size of a request body, in bytes; for models that take images the "
            f"default is {IMAGE_BODY_BYTES // MIB} MiB."
        ),
    ] = 4 * MIB
    max_bodies_bytes: Annotated[Bytes, Field(validate_default=True)] = 256 * MIB
    """Maximum size of all request bodies being read together, in bytes; tenant_share applies to it
    as well."""
    max_images: Count = 16
    """Maximum images per request. See docs/images.md."""
    max_image_bytes: Bytes = 20 * MIB
    """Maximum file size of an image, in bytes."""
    max_image_pixels: Count = 50_000_000
    """Maximum pixels of an image file."""
    max_image_tokens: Count | None = None
    """Maximum tokens of an image; larger ones are scaled down. By default 4096, or three quarters
    of the context if that is less. Where image tokens attend to each other (Gemma 3 and 4),
    max_batch_tokens minus max_running is a limit as well."""
    max_images_bytes: Bytes = 1024 * MIB
    """Memory for the images of all current requests, encoded and decoded, in bytes; tenant_share
    applies to it as well."""
    kept_images_bytes: Bytes = 256 * MIB
    """Memory for decoded images of earlier requests, so that a repeated file is not decoded again,
    in bytes."""
    image_workers: Count = 2
    """Processes that decode images."""
    image_seconds: Annotated[
        Seconds,
        Field(
            description="CPU time limit for decoding one image, in seconds; a request waits at "
            f"most {PATIENCE} times as long."
        ),
    ] = 10.0
    allowed_image_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Hosts from which image URLs are fetched, comma-separated: images.example.com, or
    *.example.com with all subdomains. By default none. See docs/security.md."""
    max_body_nesting: Annotated[int, Field(ge=1, le=190)] = 100
    """Maximum nesting depth of the JSON in a request body."""
    max_n: Count = 16
    """Maximum n (choices) of a request; at most max_running plus max_queue."""
    max_messages: Count = 1024
    """Maximum messages of a request."""
    unknown_fields: UnknownFields = "ignore"
    """Unknown request fields: ignore names them in the header x-leapjson-ignored, refuse returns
    400. See docs/requests.md."""
    max_tool_calls: Annotated[int, Field(ge=1, le=1024)] = MOST_CALLS
    """Maximum tool calls of an answer, where the chat template supports several."""

    data: str | None = None
    """Folder for files, batches, kept responses and usage, or s3://bucket/prefix for the files
    (AWS_* variables, leapjson[store]). By default none: /v1/files, /v1/batches and /v1/usage are
    off. See docs/batches.md."""
    store: SecretStr | None = None
    """PostgreSQL database that replicas share (postgresql://user:password@host/name); by default
    SQLite in the folder data. Needs data and leapjson[store]."""
    schema_store: SecretStr | None = None
    """Folder or PostgreSQL database in which registered schemas and compiled programs are kept for
    replicas and restarts; by default the store of data, and without data none."""
    schema_store_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    """Limit of each API key in the schema store, in bytes. 0 stores none."""
    batch_running: Count | None = None
    """Maximum requests of batches answered at a time; by default max_running."""
    batch_requests: Count = 100_000
    """Maximum lines of one batch."""
    key_requests: Count = 1_000_000
    """Maximum requests that the batches of one API key may have in progress together."""
    key_batches: Count = 100
    """Maximum batches of one API key that have not ended."""
    file_bytes: Bytes = 512 * MIB
    """Maximum size of an uploaded file, in bytes."""
    key_bytes: Bytes = 8192 * MIB
    """Maximum size of all files of one API key, in bytes; uploads above it are refused, answers of
    batches are still written."""

    api_keys: Annotated[tuple[SecretStr, ...] | None, NoDecode] = None
    """Accepted API keys, comma-separated; by default none are needed. Prefer the environment
    variable: flags are visible in the process list."""
    api_keys_file: str | None = None
    """File of further API keys, one per line; # starts a comment."""
    priority_keys: Annotated[tuple[Count, ...], NoDecode] = ()
    """Numbers of the API keys, counted from 1, that may use "service_tier": "priority",
    comma-separated; other keys get the tier default instead. By default none."""
    share_between_keys: bool = False
    """Share prefix cache and draft statistics between API keys; timing can then reveal the requests
    of others."""
    metrics_public: bool = False
    """Serve /metrics without a key, like /health and /ready."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins (https://example.com) whose pages may call the server, comma-separated; * allows all.
    By default none."""
    page: bool = True
    """Serve the page at / and the API documentation at /docs."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of log lines."""
    log_format: LogFormat = "auto"
    """Format of log lines: json, text, or auto (text in a terminal, otherwise json)."""
    log_content: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Characters of each request, answer and error that are logged. They may be private; by default
    none."""
    otlp_endpoint: Annotated[str | None, Field(pattern=r"^https?://[^/?#\s]")] = None
    """OpenTelemetry collector (OTLP over HTTP), for example http://collector:4318; by default
    OTEL_EXPORTER_OTLP_ENDPOINT. Needs leapjson[otel]."""

    @field_validator("model")
    @classmethod
    def _model_path(cls, model: str) -> str:
        return str(MODELS.get(model, model))

    @field_validator(
        *("preload", "api_keys", "priority_keys", "cors_origins", "adapters"),
        "allowed_image_hosts",
        mode="before",
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
    def _check_api_keys(cls, keys: tuple[SecretStr, ...] | None) -> tuple[SecretStr, ...] | None:
        if keys == ():  # a secret that was not filled in would leave the server open
            raise ValueError("it is set but contains no key; unset it to serve without API keys")
        return keys

    @field_validator("adapters")
    @classmethod
    def _check_adapters(cls, adapters: tuple[str, ...]) -> tuple[str, ...]:
        names = [each.partition("=")[0] for each in adapters]
        for each, name in zip(adapters, names, strict=True):
            if not re.fullmatch(NAME, name) or not each.partition("=")[2]:
                raise ValueError(f"{each!r}: write it as name=folder")
            if names.count(name) > 1:
                raise ValueError(f"two adapters have the name {name!r}")
        return adapters

    @field_validator("max_adapters")
    @classmethod
    def _check_max_adapters(cls, most: int | None, settings: ValidationInfo) -> int | None:
        if most is not None and most < len(settings.data.get("adapters", ())):
            raise ValueError(f"{most} is less than the number of adapters")
        return most

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: SecretStr | None, settings: ValidationInfo) -> SecretStr | None:
        if store is not None and settings.data.get("data") is None:
            raise ValueError("it cannot hold files; set data for the files")
        return store

    @field_validator("max_bodies_bytes")
    @classmethod
    def _check_max_bodies_bytes(cls, size: int, settings: ValidationInfo) -> int:
        if size < settings.data.get("max_body_bytes", 0):
            raise ValueError(f"{size} is less than max_body_bytes, the limit of one body")
        return size

    @field_validator("cors_origins")
    @classmethod
    def _check_cors_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            # A browser sends scheme, host and port alone: anything else would never match.
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
                raise ValueError(f"{origin!r} is not an origin, like https://example.com:8443")
        return origins

    @field_validator("allowed_image_hosts")
    @classmethod
    def _check_image_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host_pattern(host):
                raise ValueError(
                    f"{host!r} is not a lower-case host name like images.example.com or "
                    "*.example.com"
                )
        return hosts

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """``given``, and the environment. Raises ``LeapjsonError`` that names the setting."""
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise LeapjsonError(f"{place}: {message}") from None

    @property
    def served_model(self) -> str:
        """Name of the model in requests."""
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
        """Folders or Hub names of the adapters, by their names in requests."""
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
            image_tokens=self.max_image_tokens or _USUAL_IMAGE_TOKENS,
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
            draft_branches=self.draft,
        )

    def body_bytes(self, *, sees: bool) -> int:
        """Maximum body of a request, in bytes; ``sees``: whether the model takes images."""
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
        """Limits of the image workers, which hold several copies of an image."""
        memory = _IMAGE_MEMORY + self.max_image_bytes * 4 + self.max_image_pixels * _PIXEL_BYTES
        return WorkerLimits(
            seconds=self.image_seconds,
            memory_bytes=memory,
            answer_bytes=self.max_images_bytes,
            start_seconds=_IMAGE_START_SECONDS,
        )

    def image_tokens(self, context: int, most_whole: int | None = None) -> int:
        """Maximum tokens of an image: ``context`` is the maximum of prompt and answer together,
        ``most_whole`` that of an image that has to be computed in one step."""
        asked = self.max_image_tokens or min(_USUAL_IMAGE_TOKENS, context * 3 // 4)
        return asked if most_whole is None else min(asked, most_whole)

    def compile_limits(self) -> WorkerLimits:
        return WorkerLimits(seconds=self.compile_seconds, memory_bytes=self.compile_memory_bytes)

    def constraint_limits(self) -> Limits:
        return Limits(
            integer_digits=self.max_integer_digits, fraction_digits=self.max_fraction_digits
        )
