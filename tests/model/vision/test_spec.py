"""Vision support of models, tokens per image, and positions of images in a prompt."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest
import torch

from app.core.errors import InvalidRequest, UnsupportedModel
from app.core.images import PreparedImage, PromptImage, PromptImages, VisionSpec
from app.model.composition import load_runner
from app.model.runner import TorchRunner
from app.model.vision import load_image_processor
from app.model.vision.self_check import two_way_of
from tests.model.tiny import runner_config
from tests.model.vision.seeing import (
    KINDS,
    MORE_KINDS,
    VOCABULARY,
    Seeing,
    picture,
    saved,
    seeing,
)


def _runner(model: Seeing, **changes: object) -> TorchRunner:
    return load_runner(runner_config(model.folder, random_weights=False, **changes))


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Seeing:
    return seeing(tmp_path_factory.mktemp("llava"), "llava")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Seeing:
    return seeing(tmp_path_factory.mktemp("qwen"), "qwen2_5_vl")


@pytest.fixture(scope="module")
def vision(llava: Seeing) -> VisionSpec:
    found = _runner(llava).vision
    assert found is not None
    return found


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # GLM 4V's
@pytest.mark.parametrize("name", MORE_KINDS)
def test_kinds_that_pass_their_trial_expand_prompts_as_their_processors_do(
    name: str, tmp_path: Path
) -> None:
    model = saved(tmp_path, MORE_KINDS[name])
    vision = _runner(model).vision
    assert vision is not None
    pictures = (picture(1), picture(2, 90, 30))
    prompt = "see IMAGE and IMAGE now"
    expanded = vision.expand(model.tokens(prompt), model.prepared(*pictures))
    assert list(expanded.tokens) == model.inputs(prompt, *pictures)["input_ids"][0].tolist()


@pytest.mark.parametrize(("kind", "layers"), [("gemma3", "all"), ("gemma4", "windows")])
def test_layers_with_two_way_attention_in_images_are_detected(
    kind: str, layers: str, tmp_path: Path
) -> None:
    model = seeing(tmp_path, kind)
    vision = _runner(model).vision
    assert vision is not None
    expanded = vision.expand(model.tokens("a IMAGE b"), model.prepared(picture(1)))
    assert [each.two_way for each in expanded.images.images] == [layers]


def test_a_step_that_has_no_room_for_an_image_is_refused_at_the_start(tmp_path: Path) -> None:
    model = seeing(tmp_path, "gemma3")
    _runner(model, max_running=4, max_batch_tokens=20)
    with pytest.raises(UnsupportedModel, match=r"16 tokens.* from 19 to 20 or more"):
        _runner(model, max_running=4, max_batch_tokens=19)


def _two_way_mask(*parts: tuple[int, int]) -> torch.Tensor:
    """A causal mask [1, 1, T, T] of seven tokens, with two-way attention inside each part."""
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    for start, end in parts:
        seen[start:end, start:end] = True
    return seen[None, None]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(1, 6)], id="on from one image to another"),
        pytest.param([(1, 3)], id="one of two images"),
        pytest.param([(1, 2), (4, 6)], id="a part of an image"),
        pytest.param([(0, 3), (4, 6)], id="text before an image"),
    ],
)
def test_images_that_see_more_or_less_than_themselves_are_not_shown(
    parts: list[tuple[int, int]],
) -> None:
    image = PreparedImage(b"", (9, 9), {})
    images = PromptImages([PromptImage(image, [(1, 2)]), PromptImage(image, [(4, 2)])])
    causal, both = _two_way_mask(), _two_way_mask((1, 3), (4, 6))
    assert two_way_of(both, images) == "all"
    assert two_way_of({"full_attention": both, "sliding_attention": both}, images) == "all"
    assert two_way_of({"full_attention": causal, "sliding_attention": both}, images) == "windows"
    with pytest.raises(ValueError, match="only in some layers"):
        two_way_of({"full_attention": both, "sliding_attention": causal}, images)
    with pytest.raises(ValueError, match="outside their image"):
        two_way_of(_two_way_mask(*parts), images)
    with pytest.raises(ValueError, match="there is no mask for it"):
        two_way_of(None, images)


def test_a_folder_without_an_image_processor_is_served_as_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = seeing(tmp_path, "llava")
    (tmp_path / "processor_config.json").unlink()
    with caplog.at_level(logging.INFO):
        runner = _runner(model)
    assert runner.vision is None
    assert runner.vision_encoder is None
    assert "cannot load the image processor" in "\n".join(caplog.messages)


def test_a_processor_of_another_size_than_the_tower_is_found_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = seeing(tmp_path, "llava")
    own = model.processor.whole
    own.patch_size = 14  # a quarter of the tokens for which the encoder has features
    own.save_pretrained(tmp_path)
    assert _runner(model).vision is None
    assert "cannot process an image" in "\n".join(caplog.messages)


def test_without_images_the_vision_encoder_is_not_loaded(llava: Seeing) -> None:
    seeing_bytes = _runner(llava).description.weight_bytes["float32"]
    runner = _runner(llava, images=False)
    assert runner.vision is None
    assert runner.description.weight_bytes["float32"] < seeing_bytes


def test_placeholders_are_replaced_by_the_tokens_of_each_image(
    llava: Seeing, vision: VisionSpec
) -> None:
    first, second = llava.prepared(picture(1), picture(2))
    mark = vision.placeholder
    expanded = vision.expand([5, mark, 6, 7, mark], [first, second])
    assert list(expanded.tokens) == [5, *[mark] * 16, 6, 7, *[mark] * 16]
    assert [each.places for each in expanded.images.images] == [((1, 16),), ((19, 16),)]
    assert [(each.start, each.end) for each in expanded.images.images] == [(1, 17), (19, 35)]


@pytest.mark.parametrize("places", [0, 1, 3])
def test_a_prompt_with_more_or_fewer_places_than_images_is_refused(
    places: int, llava: Seeing, vision: VisionSpec
) -> None:
    images = llava.prepared(picture(1), picture(2))
    with pytest.raises(InvalidRequest, match=f"2 images but {places} image markers.*'<image>'"):
        vision.expand([5, *[vision.placeholder] * places], images)


def test_a_prompt_without_images_stays_what_it_is(qwen: Seeing) -> None:
    vision = _runner(qwen).vision
    assert vision is not None
    expanded = vision.expand([5, 6, 7], [])
    assert list(expanded.tokens) == [5, 6, 7]
    assert not expanded.images.images
    assert expanded.images.positions is None


def test_the_same_pixels_have_the_same_digest_and_others_another(llava: Seeing) -> None:
    one, same, other = llava.prepared(picture(1), picture(1), picture(2))
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 32
    assert pickle.loads(pickle.dumps(one)).digest == one.digest


def test_low_detail_takes_fewer_tokens_for_a_large_image(tmp_path: Path) -> None:
    model = seeing(tmp_path, "qwen2_5_vl")
    model.processor.whole.image_processor.size = {"shortest_edge": 784, "longest_edge": 1 << 22}
    large = picture(1, 86 * 14, 64 * 14)
    whole, low = (model.processor.prepare(large, detail, 1 << 16) for detail in ("high", "low"))
    assert whole.num_tokens == 86 * 64
    assert low.num_tokens <= (512 // 14 + 1) * (384 // 14 + 1)


def test_an_image_is_scaled_down_to_its_token_limit(qwen: Seeing) -> None:
    image = picture(1, 200, 150)
    assert qwen.processor.prepare(image, "auto", 100).num_tokens == 12
    assert 4 <= qwen.processor.prepare(image, "auto", 7).num_tokens <= 7


def test_an_image_that_always_counts_for_more_is_refused_with_the_numbers(llava: Seeing) -> None:
    with pytest.raises(InvalidRequest, match=r"60 x 40 pixels takes 16 .* limit is 15"):
        llava.processor.prepare(picture(1), "auto", 15)


def test_an_image_that_the_processor_refuses_is_an_invalid_request(qwen: Seeing) -> None:
    with pytest.raises(InvalidRequest, match="refuses an image of 900 x 2 pixels"):
        qwen.processor.prepare(picture(1, 900, 2), "auto", 100)


def test_a_gguf_file_has_no_image_processor() -> None:
    with pytest.raises(UnsupportedModel, match="GGUF files are text models"):
        load_image_processor("model.gguf")


def test_kinds_of_both_groups_are_tried() -> None:
    assert {"llava", "llava_onevision", "idefics3", "mistral3"} < KINDS.keys()
    assert {"qwen2_5_vl", "qwen3_vl"} < KINDS.keys()
    assert len(VOCABULARY.marks) == len({*VOCABULARY.marks.values()})
