"""Peer servers: their list, their model's training texts, conversion of weights. No network."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from loadtest.peers import PEERS, NotInstalled, environments
from loadtest.peers.__main__ import main
from loadtest.peers.peer import SCRIPTS, Launch
from loadtest.peers.scripts.llama_weights import interleave, read_safetensors
from loadtest.tasks import CHARACTER, CITY, task
from tools.peer_model import sheets


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_every_package_of_a_peer_is_pinned(peer: Any) -> None:
    lines = (environments.REQUIREMENTS / f"{peer.environment}.txt").read_text().splitlines()
    packages = [line for line in lines if not line.startswith(("#", "-r"))]
    assert packages
    assert all("==" in package for package in packages)


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_a_peer_listens_on_this_machine_alone_at_the_port_it_is_given(peer: Any) -> None:
    command = peer.command(Launch(Path("/environment"), Path("/model"), 4711, 2))
    assert command[0].startswith("/environment/bin/") or "/build/bin/" in command[0]
    assert command[command.index("--port") + 1] == "4711"
    assert command[command.index("--host") + 1] == "127.0.0.1"


def test_the_peers_are_listed_without_importing_torch() -> None:
    code = "import sys, loadtest.peers.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_peer_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    with (
        pytest.raises(NotInstalled, match=r"python -m loadtest\.peers install vllm"),
        PEERS["vllm"].running(tmp_path, tmp_path / "log"),
    ):
        pass


def test_list_names_every_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in PEERS)


def test_the_lessons_are_valid_answers_to_the_tasks_and_the_same_for_a_seed() -> None:
    lessons = list(islice(sheets(3), 400))
    assert lessons == list(islice(sheets(3), 400))
    for number, (_, answer) in enumerate(lessons):
        jsonschema.validate(json.loads(answer), CITY if number % 2 else CHARACTER)
    prompts = {prompt for prompt, _ in islice(sheets(3), 4000)}
    assert {task(number).prompt for number in range(10)} <= prompts


def test_interleaved_rows_rotate_in_pairs_what_hugging_face_rotates_in_halves() -> None:
    heads, size, columns = 2, 6, 3
    weight = np.arange(heads * size * columns, dtype=np.uint16).reshape(heads * size, columns)
    converted = interleave(weight, heads)
    for head in range(heads):
        for pair in range(size // 2):
            first, second = weight[head * size + pair], weight[head * size + size // 2 + pair]
            assert (converted[head * size + 2 * pair] == first).all()
            assert (converted[head * size + 2 * pair + 1] == second).all()


def test_the_weights_of_a_safetensors_file_are_read_bit_by_bit(tmp_path: Path) -> None:
    weight = torch.tensor([[1.5, -2.0, 0.25]], dtype=torch.bfloat16)
    save_file({"a.weight": weight}, tmp_path / "model.safetensors")
    read = dict(read_safetensors(tmp_path / "model.safetensors"))
    assert (read["a.weight"] == weight.view(torch.uint16).numpy()).all()


@pytest.mark.parametrize("own_file", [False, True], ids=["in the configuration", "in its own file"])
def test_a_converted_model_has_the_chat_template_of_its_folder(
    own_file: bool, tmp_path: Path
) -> None:
    shape = LlamaConfig(
        vocab_size=2, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    LlamaForCausalLM(shape).bfloat16().save_pretrained(tmp_path)
    words = {"added_tokens": [], "model": {"vocab": {"a": 0, "b": 1}, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    described = {} if own_file else {"chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    if own_file:
        (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    target = tmp_path / "model.gguf"
    command = [sys.executable, *map(str, (SCRIPTS / "llama_to_gguf.py", tmp_path, target)), "BF16"]
    subprocess.run(command, check=True)
    field = GGUFReader(target).get_field("tokenizer.chat_template")
    assert field is not None
    assert field.contents() == "{{ messages }}"
