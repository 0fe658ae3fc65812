"""Token ids that key the prefixes of a sequence with images."""

from __future__ import annotations

from itertools import product

from app.core.images import PromptImage, PromptImages
from app.engine.prompt_images import PromptImageMap
from tests.engine.test_images import A, B


def test_identities_are_the_prompts_with_numbers_of_images_and_then_the_tokens_of_the_answer() -> (
    None
):
    prompt = [5, *A.expansion, 6, *B.expansion]
    images = [PromptImage(A, ((1, 6),)), PromptImage(B, ((8, 6),))]
    tokens = [*prompt, 7, 8]
    found = PromptImageMap(prompt, PromptImages(images)).identities(tokens)
    plain = list(found)
    assert [each for each in plain if each >= 0] == [5, 6, 7, 8]
    assert len({each for each in plain if each < 0}) == 12
    places = range(len(tokens) + 2)
    for start, stop in product(places, places):
        assert list(found[start:stop]) == plain[start:stop]
    assert [found[at] for at in range(-16, 16)] == [*plain, *plain]
    tokens[-1:] = [9, 10]
    assert list(found) == [*plain[:-1], 9, 10]
