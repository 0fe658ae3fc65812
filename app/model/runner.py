"""The runner: a transformers model behind the engine's ``Runner`` protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from app.core.cache import StateSlots
from app.core.images import VisionEncoder, VisionSpec
from app.core.step import Draw, PendingDraws, Span, StepResult
from app.model.adapters.slots import AdapterSlots
from app.model.device import naming_failures
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage
from app.model.sampling import Sampler
from app.model.state_storage import StateStorage
from app.model.vision.embeddings import ImageEmbeddings

if TYPE_CHECKING:
    from app.model.cuda.compilations import KernelCompilations
    from app.model.cuda.graphs import CudaSteps
    from app.model.cuda.sampling import DeviceDraws
    from app.model.parallel.rank_processes import RankProcesses


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """Properties of a loaded runner; fields of a log line."""

    architecture: str
    device: str
    dtype: str
    parameters: int
    packed_linears: int
    """Linear layers repacked for the CPU's matrix units."""
    fused_layers: int
    """Decoder layers that run by our kernels on CUDA."""
    batch_invariant: bool
    cuda_graphs: int
    """Step shapes captured as CUDA graphs."""
    cache_tokens: int
    """Capacity in tokens, all sequences together, of the cache group with the widest window."""
    max_model_len: int
    spare_tokens: int
    """Tokens whose computation takes as long as reading the weights once."""
    weight_bytes: Mapping[str, int] = field(default_factory=dict)
    """Memory of all weights, by the name of their type."""
    cache_bytes: int = 0
    """Memory of the KV cache and of recurrent states once all of it has been used."""
    products: str = "torch"
    """Implementation of matrix products, with timings if they decided the choice."""
    quantized: str = ""
    """Kinds of quantised weights that run by our own kernels, and how many layers each has."""
    window_tokens: tuple[int, ...] = ()
    """Capacities in tokens of the other cache groups: layers with a sliding window."""
    tensor_parallel: int = 1
    """Processes that share the layers. ``parameters`` counts those of one process."""

    @property
    def arithmetic(self) -> str:
        """The parts that the numbers of an answer depend on, so not the size of the cache."""
        parts: tuple[object, ...] = (
            self.architecture,
            self.device,
            self.dtype,
            self.packed_linears,
            self.products.partition(";")[0],
        )
        kinds = (self.fused_layers, self.batch_invariant, self.tensor_parallel, self.quantized)
        return " ".join(map(str, (*parts, *kinds))).rstrip()


class TorchRunner:
    """Runs steps of one model; see ``app.core.step.Runner``. A step raises ``DeviceFailed``.

    On the CPU ``launch`` does the whole forward pass before it returns. A helper thread would
    let masks be filled meanwhile, but it would take the core from the matrix products it is
    meant to hide behind, and masks are looked up in microseconds once their states are known.
    """

    def __init__(
        self,
        *,
        forward: RaggedForward,
        graphs: CudaSteps | None,
        sampler: Sampler,
        storage: KvStorage,
        adapters: AdapterSlots | None,
        states: StateStorage | None = None,
        trees: bool = False,
        description: RunnerDescription,
        compilations: KernelCompilations | None,
        rank_processes: RankProcesses | None = None,
        image_embeddings: ImageEmbeddings | None = None,
        vision: VisionSpec | None = None,
    ) -> None:
        """``image_embeddings`` and ``vision`` are set for vision models."""
        self._forward = forward
        self._graphs = graphs
        self._compilations = compilations
        self._rank_processes = rank_processes
        self._image_embeddings = image_embeddings
        self.vision_encoder: VisionEncoder | None = (
            None if image_embeddings is None else image_embeddings.vision_encoder
        )
        self.vision = vision
        self._sampler = sampler
        self.adapters = adapters
        self.description = description
        self.block_size = storage.block_size
        self.cache_groups = storage.groups
        self.states: StateSlots | None = None if states is None else states.slots
        self.max_model_len = description.max_model_len
        self.trees = trees
        self._launched: Tensor | None = None
        self._drawn: StepResult | DeviceDraws = StepResult(())
        """Draws of the last step, which may be tokens of the next one."""

    @property
    def kernel_compilations(self) -> int:
        """Number of GPU kernels compiled while serving; each delayed all requests."""
        return 0 if self._compilations is None else self._compilations.while_serving

    @torch.inference_mode()
    def launch(self, spans: Sequence[Span]) -> None:
        assert self._launched is None, "launch twice without sample between"
        ranks = self._rank_processes
        losses = contextlib.nullcontext() if ranks is None else ranks.naming_losses()
        with naming_failures(), losses:
            step = lay_out(spans, self.block_size)
            if self._graphs is None:
                tokens = self._drawn.wait().tokens  # drawn at once
                if len(places := np.flatnonzero(step.drawn_rows >= 0)):
                    drawn_ids = np.array([token.token_id for token in tokens])
                    step.token_ids[places] = drawn_ids[step.drawn_rows[places]]
                ids = None
            else:
                drawn = self._drawn
                ids = None if isinstance(drawn, StepResult) else drawn.ids
            if ranks is not None:
                ranks.lead(step, ids)
            self._launched = self.compute(step, ids)

    def compute(self, step: StepArrays, drawn: Tensor | None) -> Tensor:
        """The logits of a laid-out step; ``drawn`` as in ``CudaSteps.run``."""
        with contextlib.ExitStack() as embedding:
            if step.vision_input is not None:
                assert self._image_embeddings is not None, "an image for a text model"
                embedding.enter_context(self._image_embeddings.of_step(step))
            if self._graphs is None:
                return self._forward.run(step)
            return self._graphs.run(step, drawn)

    @torch.inference_mode()
    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        assert self._launched is not None, "sample without launch"
        logits, self._launched = self._launched, None
        if not draws:
            return StepResult(tokens=())
        with naming_failures():
            self._drawn = self._sampler.sample(logits, draws)
            return _Watched(self._drawn)

    @property
    def interruptible(self) -> bool:
        """Whether a step can be abandoned during its pass: it is not queued on a device, shared
        with another process, or writing recurrent states."""
        alone = self._rank_processes is None
        return self._forward.device.type == "cpu" and alone and self.states is None

    def interrupt_when(self, condition: Callable[[], bool] | None) -> None:
        """Make the next step raise ``StepInterrupted`` before the first layer where the condition
        holds; None: it is computed whole."""
        self._forward.interrupt_when(condition)

    def watch(self, on_loss: Callable[[str], None]) -> None:
        """Call ``on_loss`` once, from any thread, when a process that shares the model is gone, so
        that no more steps can run."""
        if self._rank_processes is not None:
            self._rank_processes.watch(on_loss)

    def close(self) -> None:
        """End the vision encoder and the other ranks. No steps are run afterwards."""
        if self._image_embeddings is not None:
            self._image_embeddings.vision_encoder.close()
        if self._rank_processes is not None:
            self._rank_processes.close()


@dataclass(frozen=True, slots=True)
class _Watched:
    """Draws of a device; ``wait`` raises ``DeviceFailed`` if the step has failed."""

    pending: PendingDraws

    def wait(self) -> StepResult:
        with naming_failures():
            return self.pending.wait()
