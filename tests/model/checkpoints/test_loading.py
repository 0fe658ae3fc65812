"""Loading: sources of weights, limits from the configuration, and use of host memory."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from app.core.errors import UnsupportedModel
from app.core.request import SamplingParams
from app.core.step import Draw, Span
from app.model.checkpoints.loading import eos_token_ids, read_config
from app.model.composition import load_runner
from app.model.runner import TorchRunner
from tests.model.tiny import VOCAB, eager_model, load_model, runner_config, save_config, tiny_runner
from tests.steps import planned


def greedy_token(runner: TorchRunner) -> int:
    runner.launch(planned([Span([5, 6, 7], 0, [[0]])], [(0, 2)]))
    return runner.sample([Draw(SamplingParams(temperature=0.0), 0)]).wait().tokens[0].token_id


def test_stored_weights_are_served(tmp_path: Path) -> None:
    eager_model(save_config(tmp_path / "config", "llama")).save_pretrained(tmp_path / "stored")
    made_up = load_runner(runner_config(str(tmp_path / "config")))
    stored = load_runner(runner_config(str(tmp_path / "stored"), random_weights=False))
    assert greedy_token(stored) == greedy_token(made_up)


def test_missing_weights_are_refused_and_not_made_up(tmp_path: Path) -> None:
    eager_model(save_config(tmp_path, "llama")).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"lacks 1 weights.*up_proj"):
        load_runner(runner_config(str(tmp_path), random_weights=False))


def load_stored(folder: str) -> TorchRunner:
    return load_runner(runner_config(folder, random_weights=False))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", {"max_position_embeddings": 128.0}, "configuration .* got float"),
        ("config.json", {"num_key_value_heads": 0}, "cannot load .* ZeroDivisionError"),
        ("config.json", {"intermediate_size": 40}, r"shape \[32, 48\], but .* \[32, 40\]"),
        ("generation_config.json", {"max_new_tokens": 0}, r"eos_token_id .*max_new_tokens"),
        ("generation_config.json", {"eos_token_id": 2.0}, "eos_token_id .*float"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
    ],
)
def test_files_that_are_wrong_are_refused(
    name: str, content: Any, reason: str, tmp_path: Path
) -> None:
    eager_model(save_config(tmp_path, "llama")).save_pretrained(tmp_path)
    if isinstance(content, dict):
        content = json.dumps(json.loads((tmp_path / name).read_text()) | content)
    (tmp_path / name).write_text(content)
    read = eos_token_ids if name == "generation_config.json" else load_stored
    with pytest.raises(UnsupportedModel, match=f"(?s){reason}"):
        read(str(tmp_path))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    model = eager_model(save_config(tmp_path, "llama"))
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="safetensors"):
        load_runner(runner_config(str(tmp_path), random_weights=False))


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('the code of the model was run')")
    with pytest.raises(UnsupportedModel, match="configuration"):
        load_runner(runner_config(str(tmp_path)))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot read the configuration"):
        load_runner(runner_config(str(tmp_path / "nothing")))


def test_the_description_says_what_was_loaded(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", kv_cache_bytes=1 << 16)
    seen = runner.description
    assert (seen.architecture, seen.device, seen.dtype) == ("LlamaForCausalLM", "cpu", "float32")
    assert seen.parameters == eager_model(str(tmp_path)).num_parameters()
    # 2 layers x (key + value) x 2 heads x 8 dimensions x 4 bytes = 256 bytes a token.
    [group] = runner.cache_groups
    assert (group.num_blocks + 1) * runner.block_size * 256 == 1 << 16
    assert runner.max_model_len == 128


def test_the_arithmetic_does_not_depend_on_the_size_of_the_cache(tmp_path: Path) -> None:
    small, large = (
        tiny_runner(tmp_path, "llama", kv_cache_bytes=size).description
        for size in (1 << 16, 1 << 17)
    )
    assert small.cache_tokens < large.cache_tokens
    assert small.arithmetic == large.arithmetic
    assert "LlamaForCausalLM cpu float32" in small.arithmetic


def test_the_context_is_no_longer_than_the_cache(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", kv_cache_bytes=256 * 4 * 9)
    assert (runner.cache_groups[0].num_blocks, runner.max_model_len) == (8, 32)
    with pytest.raises(UnsupportedModel, match="cache holds 32 tokens"):
        tiny_runner(tmp_path, "llama", kv_cache_bytes=256 * 4 * 9, max_model_len=33)


def test_the_context_is_no_longer_than_the_model_was_made_for(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="limit is 128"):
        tiny_runner(tmp_path, "llama", max_model_len=129)


def test_a_cache_without_room_for_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="too little for a block"):
        tiny_runner(tmp_path, "llama", kv_cache_bytes=100)


def test_a_tokenizer_larger_than_the_logits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="tokenizer"):
        tiny_runner(tmp_path, "llama", vocab_size=VOCAB + 1)


def test_padding_of_the_logits_is_never_sampled(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", vocab_size=5)
    runner.launch(planned([Span([1, 2, 3], 0, [[0]])], [(0, 2)] * 50))
    drawn = runner.sample([Draw(SamplingParams(temperature=5.0), key) for key in range(50)]).wait()
    assert {token.token_id for token in drawn.tokens} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("asked", "frozen_long"), [(None, True), (16, False)])
def test_longrope_is_frozen_by_the_longest_context(
    asked: int | None, frozen_long: bool, tmp_path: Path
) -> None:
    model = eager_model(save_config(tmp_path, "phi3 with longrope"), max_model_len=asked)
    rope = model.model.rotary_emb
    assert rope.inv_freq[0] == pytest.approx(0.25 if frozen_long else 1.0)
    rope(torch.zeros(1, 1, 32), torch.tensor([[3]]))
    assert rope.inv_freq[0] == pytest.approx(0.25 if frozen_long else 1.0)


def test_end_of_sequence_ids_come_from_the_generation_config_first(tmp_path: Path) -> None:
    model = save_config(tmp_path, "llama", eos_token_id=2)
    assert eos_token_ids(model) == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert eos_token_ids(model) == {7, 9}


@pytest.mark.parametrize("tied", [True, False])
def test_weights_come_from_all_files_of_a_sharded_checkpoint(tied: bool, tmp_path: Path) -> None:
    folder = save_config(tmp_path / "config", "llama", tie_word_embeddings=tied)
    made_up = eager_model(folder)
    made_up.save_pretrained(tmp_path / "stored", max_shard_size="10KB")
    assert len(list((tmp_path / "stored").glob("*.safetensors"))) > 3
    assert (tmp_path / "stored" / "model.safetensors.index.json").is_file()
    loaded = eager_model(str(tmp_path / "stored"), random_weights=False)
    expected = dict(made_up.named_parameters())
    assert {name for name, _ in loaded.named_parameters()} == set(expected)
    for name, weight in loaded.named_parameters():
        assert torch.equal(weight, expected[name]), name
    embedding = loaded.get_input_embeddings().weight
    assert (loaded.get_output_embeddings().weight is embedding) == tied
    # Checkpoints lack the frequencies of the rotary embedding: they are computed.
    buffers = dict(made_up.named_buffers())
    assert buffers
    for name, buffer in loaded.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


def test_a_shard_that_is_not_there_is_refused(tmp_path: Path) -> None:
    model = eager_model(save_config(tmp_path / "config", "llama"))
    model.save_pretrained(tmp_path / "stored", max_shard_size="10KB")
    next(iter((tmp_path / "stored").glob("*-00002-of-*.safetensors"))).unlink()
    with pytest.raises(UnsupportedModel, match="00002-of-"):
        load_runner(runner_config(str(tmp_path / "stored"), random_weights=False))


@dataclass
class HostMemory:
    """Peak growth of this process's anonymous memory during a block, in bytes."""

    before: int = 0
    most: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.0005):
                self.most = max(self.most, self.now())

        watcher = threading.Thread(target=watch)
        self.before = self.most = self.now()
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    @property
    def growth(self) -> int:
        return self.most - self.before

    @staticmethod
    def now() -> int:
        status = Path("/proc/self/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("RssAnon"))
        return int(line.split()[1]) << 10


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """A folder with a bfloat16 model in several files, and the size of its weights in bytes."""
    folder = tmp_path_factory.mktemp("large")
    sizes = {"hidden_size": 512, "intermediate_size": 4096, "num_hidden_layers": 6}
    config = read_config(save_config(folder, "llama", **sizes))
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = model.to_empty(device="cpu")
    for weight in model.parameters():
        torch.nn.init.uniform_(weight)
    model.save_pretrained(folder, max_shard_size="16MB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return str(folder), sum(weight.nbytes for weight in model.parameters())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("dtype", "copies"),
    [(torch.bfloat16, 0), (torch.float32, 2)],  # multiples of the stored bytes
)
def test_host_memory_holds_a_converted_model_once_and_a_mapped_one_never(
    dtype: torch.dtype, copies: int, large_model: tuple[str, int]
) -> None:
    folder, size = large_model
    load_model(runner_config(folder, random_weights=False), torch.device("cpu"), dtype)
    memory = HostMemory()
    with memory.watched():
        model = load_model(runner_config(folder, random_weights=False), torch.device("cpu"), dtype)
    assert model.dtype == dtype
    assert memory.growth < (copies + 0.3) * size


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_on_a_gpu_were_never_in_host_memory_together(
    dtype: torch.dtype, large_model: tuple[str, int]
) -> None:
    folder, size = large_model
    device = torch.device("cuda", torch.cuda.current_device())
    config = runner_config(folder, random_weights=False)
    expected = dict(load_model(config, torch.device("cpu"), dtype).named_parameters())
    load_model(config, device, dtype)  # the driver allocates its host memory now
    memory = HostMemory()
    with memory.watched():
        model = load_model(config, device, dtype)
    assert memory.growth < 0.5 * size
    for name, weight in model.named_parameters():
        assert weight.device == device
        assert torch.equal(weight.cpu().view(torch.uint8), expected[name].view(torch.uint8)), name
    assert {buffer.device for buffer in model.buffers()} <= {device}


def test_weights_are_read_directly_to_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager_model(save_config(tmp_path, "llama")).save_pretrained(tmp_path)
    read = AutoModelForCausalLM.from_pretrained
    asked: list[Any] = []

    def from_pretrained(*arguments: Any, device_map: Any = None, **options: Any) -> Any:
        asked.append(device_map)
        return read(*arguments, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    config = runner_config(str(tmp_path), random_weights=False)
    load_model(config, torch.device("cpu"), torch.float32)
    elsewhere = torch.device("meta")  # any device but the CPU
    model = load_model(config, elsewhere, torch.float32)
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    assert asked == [None, {"": elsewhere}]


def test_weights_that_do_not_fit_on_the_device_are_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_pretrained(*arguments: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    config = runner_config(save_config(tmp_path, "llama"), random_weights=False)
    with pytest.raises(UnsupportedModel, match=r"cannot load .*weights do not fit .*2\.00 GiB"):
        load_runner(config)
