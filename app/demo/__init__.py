"""The embedded demo models: their weights, and their pages, README.md and README-vision.md.

`MODEL_PATH` is a folder that `AutoModelForCausalLM.from_pretrained` and
`AutoTokenizer.from_pretrained` read. Corpus, training and evaluation are in tools/demo_model.
`VISION_MODEL_PATH` is one for `LlavaForConditionalGeneration` and `AutoProcessor`, from
tools/demo_vision.
"""

from pathlib import Path
from typing import Final

MODEL_PATH: Final = Path(__file__).parent / "weights"
"""Folder of the weights, the tokenizer and the chat template."""

VISION_MODEL_PATH: Final = Path(__file__).parent / "vision_weights"
"""Folder of the demo model with vision."""

MODELS: Final = {"demo": MODEL_PATH, "demo-vision": VISION_MODEL_PATH}
"""Folders of the models, by their names in settings."""
