"""Loops that numba compiles, for the layers that have some."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import binding  # type: ignore[import-untyped]
from numba.core import caching, event, runtime

from app.core.progress import Progress, Stage

_F = TypeVar("_F", bound=Callable[..., object])

_CONFIG: Any = numba.config
if "NUMBA_OPT" not in os.environ:  # as fast as 3, compiled in three quarters of the time
    _CONFIG.OPT = type(_CONFIG.OPT)(2)

_PASS = "numba:run_pass"
"""Numba's event of every compiler pass over a function; cached functions cause none."""

_APP = Path(__file__).parents[1]
_LOCATOR: Any = caching._SourceFileBackedLocatorMixin
_INDEX: Any = caching.IndexDataCacheFile
_CACHE: Any = caching.Cache
_RUNTIME: Any = runtime.nrt

_V3 = ("avx2", "fma", "f16c", "bmi2")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
AMX = ("amx-tile", "amx-bf16", "amx-int8")
PROCESSORS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "amx": ("x86-64-v4", (*_V4, "avx512vnni", "avx512bf16", *AMX)),
    "avx512_bf16": ("x86-64-v4", (*_V4, "avx512vnni", "avx512bf16")),
    "avx512_vnni": ("x86-64-v4", (*_V4, "avx512vnni")),
    "avx2": ("x86-64-v3", _V3),
}
"""Kinds of processors with compiled loops in images, the best first: LLVM's name of the kind, and
the features that the loops use."""
SHIPPED = Path(sys.prefix, "share", "leapjson", "loops")
"""An image's compiled loops, with one folder per kind: see ``app.server.compile_ahead``."""
_IMAGE = "image"
"""File in such a folder that identifies the image."""


@functools.cache
def _features() -> Mapping[str, bool]:
    """Features of this processor, cached: LLVM takes 0.1 ms, and each layer asks."""
    features: Mapping[str, bool] = binding.get_host_cpu_features()
    return features


def runs_here(kind: str) -> bool:
    """Whether this processor has all features of a kind of ``PROCESSORS``."""
    return all(_features().get(each, False) for each in PROCESSORS[kind][1])


def features_of(kind: str) -> str:
    """The features in LLVM's syntax. Vectors of 512 bits are used as on the processor itself."""
    return ",".join([f"+{each}" for each in PROCESSORS[kind][1]] + ["-prefer-256-bit"])


def has(feature: str) -> bool:
    """Whether loops may use a feature: this processor has it, and so does the kind of processor
    that they are compiled for."""
    compiled_for = _CONFIG.CPU_FEATURES
    return bool(_features().get(feature, False)) and (
        compiled_for is None or f"+{feature}" in compiled_for.split(",")
    )


def _use_shipped(shipped: Path, kept: str) -> None:
    """Select the best kind with shipped loops, and use a copy of these in ``kept`` as the cache.

    They are copied once for each image, since numba writes missing loops to the folder it reads
    from. Servers on processors of several kinds may share ``kept``.
    """
    for kind, (name, _) in PROCESSORS.items():
        if (shipped / kind).is_dir() and runs_here(kind):
            target = Path(kept, kind)
            image = (shipped / kind / _IMAGE).read_text()
            if not (target / _IMAGE).exists() or (target / _IMAGE).read_text() != image:
                # The file with the image's identity last: an interrupted copy is made again.
                files = [each for each in (shipped / kind).rglob("*") if each.is_file()]
                for path in sorted(files, key=lambda each: each.name == _IMAGE):
                    copy = target / path.relative_to(shipped / kind)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, part := copy.with_name(f"{copy.name}.{os.getpid()}"))
                    part.replace(copy)
            _CONFIG.CPU_NAME, _CONFIG.CPU_FEATURES = name, features_of(kind)
            _CONFIG.CACHE_DIR = str(target)
            return


if _CONFIG.CACHE_DIR and _CONFIG.CPU_NAME is None:
    with contextlib.suppress(OSError):  # no folder to write to: numba says so
        _use_shipped(SHIPPED, _CONFIG.CACHE_DIR)


def name_image(folder: Path) -> None:
    """Complete a folder of loops for one kind with an identity of the image."""
    (folder / _IMAGE).write_text(secrets.token_hex(16))


@functools.cache
def _sources(folder: Path) -> str:
    """A digest of the folder's files; in ``app``, also of those beside it, which may have loops."""
    digest = hashlib.sha256()
    ours = _APP in folder.parent.parents
    for path in sorted(folder.parent.rglob("*.py") if ours else folder.glob("*.py")):
        text = path.read_bytes()
        if path.parent == folder or b"\n@kernel(" in text or b"\n@compiled(" in text:
            digest.update(text)
    return digest.hexdigest()


# Numba's own stamp is of the file with the loop alone, though code of others is compiled into it.
_LOCATOR.get_source_stamp = lambda self: _sources(Path(self._py_file).parent)


def _stamp_version(index: Any, cache_path: str, filename_base: str, source_stamp: str) -> None:
    """Numba compares its version before it unpickles the rest, whose classes may be gone by now."""
    _begin_index(index, cache_path, filename_base, source_stamp)
    index._version = f"{index._version} {source_stamp}"


_begin_index, _INDEX.__init__ = _INDEX.__init__, _stamp_version


def _load_cached(cache: Any, signature: Any, context: Any) -> Any:
    """Load a loop from disk without numba's operators, which only a compilation needs."""
    _RUNTIME.rtsys.initialize(context)
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)


# The first compilation makes what only compilations need: starts without any save 30 MiB.
_CACHE.load_overload = _load_cached
_compile_runtime = _RUNTIME.nrtdynmod.compile_nrt_functions
_RUNTIME.nrtdynmod.compile_nrt_functions = lambda context: functools.cache(
    functools.partial(_compile_runtime, context)
)
type(_RUNTIME.rtsys).library = property(lambda runtime: runtime._library())


def kernel(**options: Any) -> Callable[[_F], _F]:
    """Compile on first call, without the GIL; kept on disk where some folder is writable.

    ``options`` are those of ``numba.njit``.
    """

    def compile(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:  # there is no folder to keep it in
            return cast(_F, numba.njit(nogil=True, **options)(function))

    return compile


@contextlib.contextmanager
def reporting_compilations(progress: Progress) -> Iterator[None]:
    """Report compilations during the block as a stage, which begins with the first one."""
    with contextlib.ExitStack() as stages:
        listener = _Compilations(
            lambda: stages.enter_context(progress.stage("compiling for this processor"))
        )
        with event.install_listener(_PASS, listener):
            yield


class _Compilations(event.Listener):
    """Counts the functions that are compiled, each for the types of its arguments."""

    def __init__(self, begin: Callable[[], Stage]) -> None:
        self._begin = begin
        self._stage: Stage | None = None
        self._seen: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        data = event.data
        function = (data["module"], data["qualname"], str(data["args"]))
        with self._lock:
            if function in self._seen:
                return
            self._seen.add(function)
            if self._stage is None:
                self._stage = self._begin()
            self._stage.reach(len(self._seen), now=data["qualname"].rpartition(".")[2])

    def on_end(self, event: Any) -> None:
        pass
