"""A model with the initial weights of training copies random tokens."""

import torch
from transformers import PreTrainedTokenizerFast

from app.demo import MODEL_PATH
from tools.demo_model.train import new_model


def test_an_untrained_model_copies_a_row_of_random_tokens() -> None:
    torch.manual_seed(0)
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(MODEL_PATH)
    model = new_model(tokenizer).eval()
    once = torch.randint(5, len(tokenizer), (4, 48))
    with torch.inference_mode():
        logits = model(input_ids=torch.cat([once, once], dim=1)).logits
    said = logits[:, 48:-1].argmax(-1)
    assert (said == once[:, 1:]).float().mean() > 0.8
