"""Loads a model twice and prints the stages of its progress as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import torch

from app.model.config import ModelConfig
from tests.model.tiny import load_model
from tests.progress import Recorded

if __name__ == "__main__":
    config = ModelConfig(sys.argv[1], dtype="float32", device="cpu")
    told = []
    for _ in range(2):
        progress = Recorded()
        load_model(config, torch.device("cpu"), torch.float32, progress=progress)
        told.append([asdict(stage) for stage in progress.stages])
    print(json.dumps(told))
