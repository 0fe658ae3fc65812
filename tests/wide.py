"""Which tests are wide, beside those marked in place, and how many inputs the others draw.

Patterns of what follows ``tests/`` in a test's id. A pattern that fits no test of its file is an
error, so that a renamed test does not come back in silence.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

INSTRUMENTS = (
    # They measure the server, and have tests of their parts that stay.
    r"loadtest/test_(demo_server|peers)\.py::",
    r"tools/bench/test_(costs|graph_fit|hybrid_costs|images|quantized_costs)\.py::",
    r"tools/bench/test_gpu_report\.py::test_(every_part|numba_that|any_tokenizer|a_part_that)",
    r"tools/bench/test_gpu_report\.py::test_(parts_that|the_code_of)",
    r"clients/test_openai_python\.py::test_the_openai_package_sends_pictures",
    r"tools/demo_model/test_main\.py::",
    r"tools/demo_model/test_model\.py::test_it_fills_in_the_parameters",
    # The files beside the tests are those that their README names.
    r"test_datasets\.py::test_(what_is_packed|every_folder)",
    r"page/test_build\.py::test_(a_build_gives|the_sources_pass)",
)
COMPILED_FOR_OTHER_GPUS = (
    # test_launches compiles a whole step for an H100.
    r"model/cuda/test_(attention|adapters|sampling|products|elementwise|scan)\.py"
    r"::test_the_kernels_compile",
)
SWEEPS = (
    r"constraint/test_schema_junk\.py::.*\[[1-7]\]",
    r"constraint/test_(masks|distinct)\.py::.*real_(vocabularies|tokenizers).*\[(?!gpt2)",
    r"constraint/test_formats\.py::test_of_two_formats.*\[(?!date-time|email|hostname|uri\])",
    r"constraint/test_spelling\.py::test_masks_hold_the_tokens.*-closed\]",
    r"conformance/test_maskbench\.py::.*\[qwen2_5\]",
    r"constraint/test_budget_walks\.py::.*\[(qwen2_5|llama3_2)\]",
    r"constraint/test_compiler\.py::test_a_constraint_is_freed.*\[spec[1-4]",
    r"constraint/test_schema_numbers\.py::test_huge_and_tiny.*\[[3-9]-",
    r"constraint/test_whitespace\.py::test_every_text.*\[\d*[1-9]-",
    r"model/test_reach\.py::test_a_popular_kind.*\[(?!llama|qwen3\b|gemma3\b|mistral3|deepseek_v3"
    r"|mamba2|gpt_oss|qwen3_vl\b)",
    r"model/cpu/test_same_bits\.py::.*\[int[48]\]",
    r"model/cuda/test_scan\.py::test_models_with_states",
    r"model/cuda/test_sampling\.py::test_no_kernel_is_compiled_after_the_warm_up",
    r"model/cuda/test_adapters\.py::test_a_captured_step.*\[(?!llama-True)",
    r"model/checkpoints/test_stored_weights\.py::test_a_gguf_file.*\[gemma3",
    r"model/cpu/test_scan\.py::test_scans_are_the_recurrences.*dtype1",
    r"model/parallel/test_rank_processes\.py::test_two_processes",
    r"model/parallel/test_rank_processes\.py::test_a_rank_that_is_killed",
    r"model/parallel/test_starting\.py::test_what_a_rank_cannot_load",
    # float16 has kernels of its own, and few serve it on a CPU.
    r"model/test_self_check\.py::test_the_real_attention_passes\[dtype2",
    r"model/test_sampling\.py::.*torch\.float16",
    r"model/cpu/test_(attention|two_way)\.py::.*\[torch\.float16",
    r"model/cuda/test_fp8\.py::test_attention_over_8_bits.*-dtype[1-5]\]",
    r"model/cuda/test_graphs\.py::test_a_padded_step.*\[(?!a decode)",
    r"model/cuda/test_graphs\.py::test_a_graph_that_reads_or_saves.*\[(?!rows)",
    r"model/cuda/test_layers\.py::test_a_token_is_the_same.*\[gemma3",
    r"model/cuda/test_layers\.py::test_half_precision.*\[(?!qwen3-torch.bfloat16)",
    r"model/cuda/test_sampling\.py::test_every_way_of_drawing.*\[dtype[12]",
    r"e2e/test_demo_vision\.py::",
    r"e2e/test_images\.py::.*\[(text|parts)\]",
    r"e2e/test_exactness\.py::test_greedy.*\[[2-5]-",
    r"e2e/test_real_weights\.py::test_(a_seed|an_answer_is_whole|.*\[no leap)",
    r"terminal/test_(serving|colours)\.py::test_(no_line|a_dumb|a_terminal_shows)",
    r"model/checkpoints/test_progress\.py::test_a_model_of_the_hub",
    r"e2e/test_streams\.py::.*\[leapjson-demo",
    r"browser/test_reach\.py::test_axe.*\[(wide-dark|narrow)",
    r"browser/test_reach\.py::test_nothing_moves.*\[narrow",
    r"browser/test_streaming\.py::test_however_many.*\[a burst",
    r"browser/test_editor\.py::test_a_schema_of_5000",
    # Servers of their own, or a second and third way to what another test shows.
    r"browser/test_playground\.py::test_a_model_that_takes_any_question",
    r"browser/test_failures\.py::test_the_page_asks_for_a_key",
    r"browser/test_operations\.py::test_(the_pointer_over|the_keyboard_goes_back|only_a_tab)",
    r"browser/test_reach\.py::test_(the_keyboard_reaches_all_of_the_other|nothing_is_wider)",
    r"browser/test_graph\.py::test_what_is_folded",
    r"e2e/test_adapters\.py::test_answers_of_a_mixed_batch.*\[False",
    r"constraint/test_spelling\.py::test_masks_hold_the_tokens.*\[(multiples|items|map|words)-open",
    r"model/vision/test_seeing_answers\.py::.*\[(gemma4|qwen3_5|llava)-",
    r"model/cuda/test_attention\.py::test_images_whose.*-(False|windows|plain-True)",
    r"model/vision/test_seeing_answers\.py::test_a_sequence_that_lost.*\[qwen3_vl-.*False",
    r"model/vision/test_seeing_answers\.py::test_images_cut.*\[(mistral3|idefics3|llava_onevision-True)",
    # Two or three of ten seeds stay.
    r"engine/test_(same_answers|overlap|predictions|drafting|token_sources|choices|images)\.py"
    r"::test_(whatever|answers_that|any_batching|under|an_engine|the_sources|scores|whenever)"
    r".*[-\[]\d*[1-35-79]\]",
    r"engine/test_engine\.py::test_the_first_value.*\[(?!serial-attention-0|overlapped-recurrent-16)",
    r"http/test_responses_stream\.py::test_the_deltas_join.*[-\[]\d*[1-35-79]\]",
    r"model/cuda/test_graphs\.py::test_graphs_of_a_model_with_states_alone",
)
ONE_OF_EACH = (
    r"model/cpu/test_attention\.py::test_(short_and_long|a_token_has_the_same)",
    r"model/cpu/test_two_way\.py::test_tokens_of_an_image",
    r"model/cuda/test_attention\.py::test_(images_whose|the_kernels_(give|read))",
    r"model/vision/test_seeing_answers\.py::test_(images_cut|a_sequence_that_lost)",
)
"""Of these each value of a parameter is tried once; all of them with all others are wide."""


def many(number: int) -> int:
    """How many inputs a test draws: all of ``number`` in ``make test-all``, else a quarter."""
    return number if "LEAPJSON_TEST_ALL" in os.environ else number // 4


def mark(items: Sequence[pytest.Item], *, whole_files: bool) -> None:
    """Add the marker ``wide``.

    Raises ``pytest.UsageError`` for a pattern without a test, where files were collected whole.
    """
    by_id = {item.nodeid.removeprefix("tests/"): item for item in items}
    files: dict[str, list[str]] = defaultdict(list)
    for name in by_id:
        files[name.partition("::")[0]].append(name)
    for pattern in (*INSTRUMENTS, *COMPILED_FOR_OTHER_GPUS, *SWEEPS):
        for name in _fitting(pattern, files, whole_files):
            by_id[name].add_marker("wide")
    for pattern in ONE_OF_EACH:
        seen: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for name in _fitting(pattern, files, whole_files):
            if by_id[name].get_closest_marker("wide"):
                continue
            test, _, values = name.removesuffix("]").partition("[")
            values_of_it = set(enumerate(values.split("-")))
            if values_of_it <= seen[test]:
                by_id[name].add_marker("wide")
            seen[test] |= values_of_it


def _fitting(pattern: str, files: Mapping[str, list[str]], whole_files: bool) -> list[str]:
    file = re.compile(pattern.partition("::")[0])
    names = [name for path in files if file.fullmatch(path) for name in files[path]]
    fitting = [name for name in names if re.match(pattern, name)]
    if whole_files and names and not fitting:
        raise pytest.UsageError(f"tests/wide.py: no test fits {pattern!r}")
    return fitting
