"""The peers by name, and their command lines; at least 32 requests run at once.

All use bfloat16, except for quantised variants of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from loadtest.peers.peer import MODEL_NAME, Conversion, Launch, Peer

CONTEXT: Final = 2048
"""Maximum tokens of prompt and answer together: the model's own limit."""
TOGETHER: Final = 32
"""Number of requests that run at once in llama.cpp; vLLM may run twice as many."""


def _vllm(launch: Launch) -> Sequence[str]:
    return [
        # The package's own command asks for a distribution named vllm and fails.
        str(launch.environment / "bin" / "python"),
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(launch.model)),
        *("--host", "127.0.0.1", "--port", str(launch.port)),
        *("--served-model-name", MODEL_NAME),
        *("--dtype", "bfloat16"),
        *("--max-model-len", str(CONTEXT), "--max-num-seqs", str(2 * TOGETHER)),
        *("--structured-outputs-config", '{"backend": "xgrammar"}'),
        "--no-enable-log-requests",
        "--disable-uvicorn-access-log",
    ]


def _vllm_variables(launch: Launch) -> Mapping[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        # Recommended in its documentation, for speed.
        "LD_PRELOAD": str(launch.environment / "lib" / "libiomp5.so"),
    }


def _vllm_bound_variables(launch: Launch) -> Mapping[str, str]:
    return {**_vllm_variables(launch), "VLLM_CPU_OMP_THREADS_BIND": f"0-{launch.threads - 1}"}


def _llama_cpp(launch: Launch) -> Sequence[str]:
    return [
        str(launch.environment / "build" / "bin" / "llama-server"),
        *("--model", str(launch.model), "--alias", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(launch.port)),
        *("--threads", str(launch.threads), "--threads-batch", str(launch.threads)),
        # All slots share one cache of this size in tokens.
        *("--parallel", str(TOGETHER), "--ctx-size", str(TOGETHER * CONTEXT), "--kv-unified"),
        *("--cache-type-k", "bf16", "--cache-type-v", "bf16"),
        *("--jinja", "--offline", "--no-webui", "--log-verbosity", "1"),
    ]


_VLLM: Final = Peer(
    name="vllm",
    what="vLLM 0.32.0 for CPUs; xgrammar; continuous batching; leaves one core free",
    environment="vllm",
    dialect="vllm",
    command=_vllm,
    variables=_vllm_variables,
)
_VLLM_ZEN: Final = replace(
    _VLLM,
    name="vllm-zen",
    what="vllm with AMD's zentorch, which vLLM uses by itself on AMD processors",
    environment="vllm-zen",
)
_LLAMA_CPP: Final = Peer(
    name="llama.cpp",
    what="llama.cpp's llama-server; its own grammars; 32 slots, continuous batching",
    environment="llama-cpp",
    dialect="llama.cpp",
    command=_llama_cpp,
    lacks=r"allows any string if a pattern has \w or similar classes (it logs a warning)",
    conversion=Conversion("llama_to_gguf.py", "model-bf16.gguf", ("BF16",)),
)


def _bound(peer: Peer) -> Peer:
    return replace(
        peer,
        name=f"{peer.name}-bound",
        what="the same, with the model on all cores",
        variables=_vllm_bound_variables,
    )


def _quantized(peer: Peer, kind: str) -> Peer:
    return replace(
        peer,
        name=f"{peer.name}-{kind.lower()}",
        what=f"the same, with all matrices in {kind}",
        conversion=Conversion("llama_to_gguf.py", f"model-{kind.lower()}.gguf", (kind,)),
    )


_PEERS: Final = (
    _VLLM,
    _bound(_VLLM),
    _VLLM_ZEN,
    _bound(_VLLM_ZEN),
    _LLAMA_CPP,
    _quantized(_LLAMA_CPP, "Q8_0"),
    _quantized(_LLAMA_CPP, "Q4_0"),
)

PEERS: Final = MappingProxyType({peer.name: peer for peer in _PEERS})
