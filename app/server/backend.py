"""The layers below serving: a model, its tokenizer and the engine, ready to run."""

from __future__ import annotations

import hashlib
import linecache
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from app.answer.formats import ChatFormat, detect
from app.core.constraint import Constraint, ConstraintSpec, Vocabulary
from app.core.events import StepObserver
from app.core.gguf_file import forget_gguf, parts_of
from app.core.images import VisionEncoder, VisionSpec
from app.core.memory import return_freed_memory
from app.core.progress import SILENCE, Progress
from app.core.request import Adapter
from app.core.text import Tokenizer
from app.core.verbatim import Document
from app.core.version import version_of
from app.demo import smollm2
from app.engine import Engine as TokenEngine
from app.server.interpreter import OVERLAPPED_SECONDS, SERIAL_SECONDS, importing
from app.server.settings import Settings
from app.serving.adapters import Slots
from app.serving.worker import Engine

logger = logging.getLogger(__name__)

COMPILE_TARGET = "app.constraint:compile_program"
IMAGE_TARGET = "app.serving.images.preparing:prepare_image"


@dataclass(frozen=True, slots=True)
class Backend:
    """The layers below serving, ready to run."""

    engine: Engine
    tokenizer: Tokenizer
    chat_format: ChatFormat
    vocabulary: Vocabulary
    compile_target: str
    """``module:function`` that compiles a specification to a program in the compile workers."""
    link: Callable[[Any], Constraint]
    """Makes a constraint of such a program."""
    read_document: Callable[[Sequence[str], bool], Document]
    """Makes the ``Document`` for holes from texts; the flag: pieces are made of words."""
    max_sequence_tokens: int
    fingerprint: str
    products: str
    """Implementation of the matrix products, and the timings by which it was chosen."""
    vision: VisionSpec | None = None
    """Expands prompts with images; None: the model is served as text."""
    most_whole: int | None = None
    """Maximum tokens of an image that has to fit in one step; None: images need not."""
    vision_encoder: VisionEncoder | None = None
    """Encoder of images; None without ``vision``."""
    adapter_slots: Slots | None = None
    """Slots of adapters; None: adapters are not supported."""
    adapters: Sequence[Adapter] = ()
    """Adapters that were loaded with the model."""
    kernel_compilations: Callable[[], int] = lambda: 0
    """How many GPU kernels were compiled while serving."""
    weight_bytes: Mapping[str, int] = field(default_factory=dict)
    """Memory of the model's weights, by the name of their type."""
    host_cache_bytes: int = 0
    """Memory of a KV cache on the CPU, which is allocated as it is used; else 0."""
    compile_arguments: tuple[Any, ...] = ()
    """Arguments of ``compile_target`` after the specification."""
    program_identity: Callable[[], str] | None = None
    """Identity of stored programs (``app.constraint.stored``); None: they cannot be stored."""
    warm_up: ConstraintSpec | None = None
    """Constraint that a new compile worker compiles first."""
    image_target: str = IMAGE_TARGET
    """``module:function`` from an ``ImageJob`` to a ``PreparedImage``, run in the image workers."""
    image_model: str = ""
    """Further argument of ``image_target``: path of the model."""
    watch: Callable[[Callable[[str], None]], None] = lambda on_loss: None
    """Takes a callback, called once from any thread with the reason if steps can never end."""
    close: Callable[[], None] = lambda: None
    """Ends the other threads and processes of the model; called after the last step."""
    switch_seconds: float = SERIAL_SECONDS
    """See ``app.server.interpreter``."""


def load_backend(
    settings: Settings, observer: StepObserver, progress: Progress = SILENCE
) -> Backend:
    """Load the model, its tokenizer and the engine. Raises ``UnsupportedModel``."""
    with progress.stage("importing torch and transformers"), importing():
        # Imported here: a server around another backend needs no torch.
        from app.core.kernels import reporting_compilations
        from app.model.lean_imports import leave_out

        leave_out(distributed=settings.tensor_parallel == 1)
        from transformers.utils import logging as library_log

        from app.model import composition  # noqa: F401

        library_log.disable_default_handler()  # its messages go to our log instead
        library_log.enable_propagation()
    with reporting_compilations(progress):
        backend = _load(settings, observer, progress)
    linecache.clearcache()  # source files that libraries read at their import: 2 MiB
    return_freed_memory()
    return backend


def _load(settings: Settings, observer: StepObserver, progress: Progress) -> Backend:
    from app.constraint import Compiler, everyday_schema, read_document
    from app.constraint.stored import identity as identity_of_programs
    from app.model.checkpoints.gguf.hub import file_on_disk
    from app.model.checkpoints.loading import eos_token_ids
    from app.model.composition import load_runner
    from app.model.device import choose_device, spare_tokens
    from app.text import HfTokenizer
    from app.text import Vocabulary as RealVocabulary

    packaged = settings.model == smollm2.NAME
    place = smollm2.smollm2_file(progress) if packaged else file_on_disk(settings.model, progress)
    settings = settings.model_copy(update={"model": place})
    with progress.stage("reading the tokenizer"):
        tokenizer = HfTokenizer.load(settings.model, settings.max_body_bytes)
    chat_format = replace(
        detect(tokenizer.chat_template, tokenizer.special_tokens),
        takes_system=tokenizer.takes_system,
        takes_text=tokenizer.takes_text,
        reads_schemas=tokenizer.reads_schemas,
    )
    tokenizer.make_writable(chat_format.markers())
    vocabulary = RealVocabulary.from_tokenizer(
        tokenizer.hf, eos_token_ids(settings.model), chat_format.markers()
    )
    device = choose_device(settings.device)
    warn_of_idle_settings(settings, device.type)
    engine_config = settings.engine_layer(spare_tokens(device), overlap=device.type == "cuda")
    runner = load_runner(settings.model_layer(vocabulary.size, engine_config), progress)
    slots = runner.adapters
    interrupt_when = runner.interrupt_when if runner.interruptible else None
    engine = TokenEngine(
        runner, vocabulary, tokenizer, engine_config, observer, interrupt_when=interrupt_when
    )
    description = runner.description
    logger.info("model loaded", extra={"model": settings.model, **asdict(description)})
    weights = weights_identity(settings.model)
    forget_gguf()
    with progress.stage("compiling mask kernels"):
        compiler = Compiler(vocabulary, settings.constraint_limits())
    missing = compiler.limits.missing
    if missing:
        logger.warning(
            "the tokenizer has no tokens for %d bytes of UTF-8 (%s): constrained answers avoid "
            "characters that need them",
            missing.bit_count(),
            ", ".join([f"0x{byte:02X}" for byte in range(256) if missing >> byte & 1]),
        )
    if runner.vision is not None:
        marker = runner.vision.marker
        takes_images = tokenizer.takes_images(marker)
        chat_format = replace(chat_format, image_marker=marker, takes_images=takes_images)
    identity = f"{version_of()} {settings.served_model} {description.arithmetic} {weights}"
    return Backend(
        engine=engine,
        tokenizer=tokenizer,
        chat_format=chat_format,
        vocabulary=vocabulary,
        compile_target=COMPILE_TARGET,
        link=compiler.link,
        read_document=partial(read_document, missing=missing),
        max_sequence_tokens=engine.max_sequence_tokens,
        fingerprint="fp_" + hashlib.blake2b(identity.encode(), digest_size=5).hexdigest(),
        products=description.products,
        vision=runner.vision,
        most_whole=engine_config.most_whole if runner.vision and runner.vision.two_way else None,
        vision_encoder=runner.vision_encoder,
        adapter_slots=slots,
        adapters=[] if slots is None else _loaded(settings, slots.identities),
        kernel_compilations=lambda: runner.kernel_compilations,
        weight_bytes=description.weight_bytes,
        host_cache_bytes=description.cache_bytes if device.type == "cpu" else 0,
        compile_arguments=(compiler.limits,),
        program_identity=partial(identity_of_programs, compiler.limits),
        watch=runner.watch,
        close=runner.close,
        warm_up=everyday_schema(),
        image_model=settings.model,
        switch_seconds=OVERLAPPED_SECONDS if device.type == "cuda" else SERIAL_SECONDS,
    )


def _loaded(settings: Settings, identities: Mapping[int, str]) -> list[Adapter]:
    """Adapters loaded at start, in the order of their slots."""
    now = int(time.time())
    return [
        Adapter(name, slot, slot - 1, root, identities[slot], now)
        for slot, (name, root) in enumerate(settings.named_adapters.items(), start=1)
    ]


def warn_of_idle_settings(settings: Settings, device: str) -> None:
    """Log settings for GPUs that are ignored on the CPU."""
    if device == "cpu" and settings.set_for_cuda:
        logger.warning("settings ignored on the CPU: %s", ", ".join(settings.set_for_cuda))


_PLACES = 64
_SAMPLE = 1 << 12
"""Bytes read at each of ``_PLACES`` offsets of a file: 256 KiB, however large it is."""


def weights_identity(model: str) -> str:
    """A digest of the weights, independent of where and when they were stored.

    For a folder, of names, sizes and samples of its safetensors files: training changes them
    everywhere, but an edit of a few numbers may go unnoticed. Likewise for all parts of a GGUF
    file. For a model of the Hub it is the commit.
    """
    place = Path(model)
    if not place.exists():
        from app.model.checkpoints.loading import read_config

        return str(getattr(read_config(model), "_commit_hash", None))
    digest = blake2b(digest_size=16)
    parts = [Path(part) for part in parts_of(model)]
    for path in sorted(place.glob("*.safetensors")) if place.is_dir() else parts:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for number in range(_PLACES):
                file.seek(size * number // _PLACES)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
