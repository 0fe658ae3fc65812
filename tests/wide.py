"""Patterns of wide tests, beside those marked in place, and the number of random inputs of tests.

A pattern matches the id of a test after ``tests/``. A pattern that matches no test of its file is
an error: without it, a renamed test would silently be part of ``make test`` again.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest

INSTRUMENTS = (
    # Tools and benchmarks; tests of their parts remain in ``make test``.
    r"loadtest/test_(demo_server|peers|workloads)\.py::",
    r"tools/bench/test_(costs|graph_fit|hybrid_costs|images|quantized_costs)\.py::",
    r"tools/bench/test_gpu_report\.py::test_(every_part|any_tokenizer|a_part_that)",
    r"tools/bench/test_gpu_report\.py::test_(parts_that|the_code_of)",
    r"clients/test_openai_python\.py::test_the_openai_package_sends_pictures",
    r"tools/demo_model/test_main\.py::",
    r"tools/demo_model/test_corpus\.py::test_an_answer_is_valid",
    r"tools/demo_model/test_model\.py::test_it_fills_in_the_parameters",
    # Test data and the built page equal their README and their sources.
    r"test_datasets\.py::test_(what_is_packed|every_folder)",
    r"page/test_build\.py::test_(a_build_gives|the_sources_pass)",
)
GPU_KERNELS = (
    # ``make test`` has one or two tests of each kernel, ``.ci/run`` all if app/model/cuda changes.
    r"model/cuda/test_(attention|adapters|sampling|products|elementwise|scan)\.py"
    r"::test_the_kernels_compile",
    r"model/cuda/test_adapters\.py::test_a_captured_step",
    r"model/cuda/test_attention\.py::test_(images_whose|no_step|batch_invariant)",
    r"model/cuda/test_attention\.py::test_(the_kernels|trees|a_row).*\["
    r"(?!grouped heads-plain-(batch0|False)|grouped heads-everything-batch10|latents of forty)",
    r"model/cuda/test_compilations\.py::test_a_kernel_that",
    r"model/cuda/test_elementwise\.py::test_a_token_is_the_same.*bfloat16",
    r"model/cuda/test_fp8\.py::test_(attention_over_8_bits|self_check|a_model.*\[gemma3)",
    r"model/cuda/test_graphs\.py::test_(a_graph_that_reads.*\[(?!rows)|a_model_that_differs.*\[True)",
    r"model/cuda/test_launches\.py::test_all_is_compiled",
    r"model/cuda/test_layers\.py::test_a_token_is_the_same",
    r"model/cuda/test_layers\.py::test_(random_batches|quantized_weights_are).*\["
    r"(?!llama-|gemma3-\{\}|gemma3\]|qwen3-\{'device)",
    r"model/cuda/test_products\.py::test_a_row_is_the_same.*\[(?!a shared depth-torch.float32)",
    r"model/cuda/test_sampling\.py::test_(a_row|draws_of|filters|logits_may|odd|plain|sets_are)",
    r"model/cuda/test_scan\.py::test_states_and_results.*\[.*-[1-9]\]",
)
SWEEPS = (
    r"constraint/test_schema_junk\.py::.*\[[1-7]\]",
    r"constraint/test_(masks|distinct)\.py::.*real_(vocabularies|tokenizers).*\[(?!gpt2)",
    r"constraint/test_formats\.py::test_of_two_formats.*\[(?!date-time|hostname|uri\])",
    r"constraint/test_spelling\.py::test_masks_hold_the_tokens.*-closed\]",
    r"conformance/test_maskbench\.py::.*\[qwen2_5\]",
    r"constraint/test_budget_walks\.py::.*\[(qwen2_5|llama3_2)\]",
    r"constraint/test_compiler\.py::test_a_constraint_is_freed.*\[spec[1-4]",
    r"constraint/test_schema_numbers\.py::test_huge_and_tiny.*\[[3-9]-",
    r"constraint/test_whitespace\.py::test_every_text.*\[\d*[1-9]-",
    r"model/test_reach\.py::test_a_popular_kind.*\[(?!llama|qwen3\b|gemma3\b|mistral3|deepseek_v3"
    r"|mamba2|gpt_oss|qwen3_vl\b)",
    r"model/cpu/test_same_bits\.py::.*\[int[48]\]",
    r"model/cuda/test_scan\.py::test_(models_with_states|states_and.*\[[mc].* in bfloat16)",
    r"model/cuda/test_(adapters|products)\.py::test_(each_row|a_product_is).*torch\.float16",
    r"model/cuda/test_launches\.py::test_a_layer_takes_eleven.*\[(?!llama|gemma3)",
    r"text/test_vocabulary\.py::test_the_bytes_of.*\[(gpt2|llama3)",
    r"model/cuda/test_sampling\.py::test_no_kernel_is_compiled_after_the_warm_up",
    r"model/cuda/test_adapters\.py::test_a_captured_step.*\[(?!llama-True)",
    r"model/checkpoints/test_stored_weights\.py::test_a_gguf_file.*\[gemma3",
    # Each type of numbers is compiled for itself; the arithmetic of scans is always in float32.
    r"model/cpu/test_scan\.py::test_(scans_are_the_recurrences|a_row.*(delta_rule|mamba)).*dtype1",
    r"model/parallel/test_rank_processes\.py::test_two_processes",
    r"model/parallel/test_rank_processes\.py::test_a_rank_that_is_killed",
    r"model/parallel/test_starting\.py::test_what_a_rank_cannot_load",
    # float16 has its own kernels, and is rarely served on a CPU.
    r"model/test_self_check\.py::test_the_real_attention_passes\[dtype2",
    r"model/test_sampling\.py::.*torch\.float16",
    r"model/cpu/test_(attention|two_way)\.py::.*\[torch\.float16",
    r"model/cuda/test_fp8\.py::test_attention_over_8_bits.*-dtype[1-5]\]",
    r"model/cuda/test_graphs\.py::test_a_padded_step.*\[(?!a decode\])",
    r"model/cuda/test_graphs\.py::test_a_graph_that_reads_or_saves.*\[(?!rows)",
    r"model/cuda/test_layers\.py::test_a_token_is_the_same.*\[gemma3",
    r"model/cuda/test_layers\.py::test_half_precision.*\[(?!qwen3-torch.bfloat16)",
    r"model/cuda/test_sampling\.py::test_every_way_of_drawing.*\[dtype[12]",
    r"e2e/test_demo_vision\.py::",
    r"e2e/test_images\.py::.*\[(text|parts)\]",
    r"e2e/test_exactness\.py::test_greedy.*\[([2-5]-|0-True|1-False)",
    r"e2e/test_real_weights\.py::test_(a_seed|an_answer_is_whole|.*\[no leap)",
    r"terminal/test_(serving|colours)\.py::test_(no_line|a_dumb|a_terminal_shows|.*\[settings[01])",
    r"model/checkpoints/test_progress\.py::test_a_model_of_the_hub",
    r"e2e/test_streams\.py::.*\[leapjson-demo",
    r"browser/test_reach\.py::test_axe.*\[(wide-dark|narrow)",
    r"browser/test_reach\.py::test_nothing_moves.*\[narrow",
    r"browser/test_streaming\.py::test_however_many.*\[a burst",
    r"browser/test_editor\.py::test_a_schema_of_5000",
    # Tests with their own servers, or with a second or third way to show the same as another.
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
    # ``make test`` runs two or three of ten seeds.
    r"engine/test_(same_answers|overlap|predictions|drafting|token_sources|choices|images)\.py"
    r"::test_(whatever|answers_that|any_batching|under|an_engine|the_sources|scores|whenever"
    r"|requests_that_arrive|drafting_what|aborting).*[-\[]\d*[1-35-79]\]",
    r"engine/test_choices\.py::test_(an_exact_choice|the_temperature|a_list_whose).*\[serial",
    r"engine/test_engine\.py::.*\[(serial-recurrent|overlapped-attention)[-\]]",
    r"engine/test_engine\.py::test_the_first_value.*\[(?!serial-attention-0|overlapped-recurrent-16)",
    r"http/test_responses_stream\.py::test_the_deltas_join.*[-\[]\d*[1-35-79]\]",
    r"engine/test_drawn_again\.py::test_a_long_ranking.*\[(?!a ranking of 70-1\])",
    r"model/cuda/test_graphs\.py::test_graphs_of_a_model_with_states_alone",
    r"model/parallel/test_fused_layers\.py::test_fused_layers_of_two.*\[(?!llama)",
    r"conformance/test_maskbench\.py::.*(\[llama3_2|o9906)",
    r"conformance/test_suite\.py::test_the_official_suite.*\[draft7",
    r"constraint/test_budget_walks\.py::test_the_number_of.*\[(gpt2-many texts|small-many names)",
    r"constraint/test_formats\.py::test_of_two_formats.*\[(hostname|uri)",
    r"constraint/test_schema_logic\.py::test_conditions_of_twenty.*\[its own-False-behind all",
    r"constraint/test_spelling\.py::test_(masks_hold.*\[(regex|composite)|quoted_pieces.*\[False)",
    r"text/test_real_tokenizers\.py::test_the_tokenizers.*\[(?!gpt2)",
    r"e2e/test_alone_or_among_others\.py::.*\[all tokens",
    r"browser/test_code\.py::test_(a_long_program|the_typescript)",
    r"browser/test_confidence\.py::test_(a_quote|where_nothing)",
    r"browser/test_editor\.py::test_(a_mark_goes|format_lays|undo)",
    r"browser/test_failures\.py::test_a_request_that_wanted_a_key",
    r"browser/test_graph\.py::test_(a_regular_expression|search_goes|the_drawing_moves)",
    r"browser/test_operations\.py::test_(on_a_telephone|what_was_answered)",
    r"browser/test_playground\.py::test_(a_broken_link|a_race|markup_in_a_schema|.*\[size1)",
    r"browser/test_policy\.py::test_(the_documentation|the_page_works)",
    r"browser/test_reach\.py::test_nothing_moves",
    r"model/vision/test_seeing_answers\.py::test_(prefixes_are|images_cut).*\[(?!gemma3|qwen2_5_vl-True)",
)
EVERY_THIRD = (
    r"answer/test_(parameters|plan|reasoning_formats|tool_templates)\.py::test_what",
    r"constraint/test_whitespace\.py::test_(what_is_forbidden|no_place)",
    r"constraint/test_counted\.py::test_(masks_are|counters_are|any_budget)",
    r"constraint/test_(budget_walks|composite|distinct|maps|masks|spelling|whitespace)\.py"
    r"::test_.*(walk|composite|tokens)",
    r"constraint/test_verbatim\.py::test_masks",
    r"engine/test_(drawn_again|drafting|engine|overlap|predictions|same_answers|states|stop_tokens)\.py"
    r"::test_(an_engine_that|answers_are|any|every|in_random|under|what(?!_a_longer)|whenever)",
    r"engine/test_(images|prompt_scores|same_answers)\.py::test_(many|whenever|answers_that_share)",
    r"engine/test_token_sources\.py::test_the_sources",
    r"http/test_begun_answers\.py::test_what_was_begun",
    r"k8s/test_(agreement|schemas)\.py::test_(every_pod|what_an_overlay_builds_is_valid)",
    r"kv/test_kv\.py::test_no_sequence",
    r"model/checkpoints/gguf/test_gguf_loading\.py::test_(a_file_of|so_do|weights_stay)",
    r"model/checkpoints/test_language_part\.py::test_the_language_part",
    r"model/layers/test_(recurrent|own_attention)\.py::test_random",
    r"model/test_hybrid_answers\.py::test_leaps",
    r"model/test_sampling\.py::test_draws_follow",
    r"model/vision/test_spec\.py::test_kinds_that",
)
"""Tests of which ``make test`` runs every third set of parameters; the others are wide."""
ONE_OF_EACH = (
    r"engine/test_same_answers\.py::test_leaping_gives",
    r"engine/test_stop_tokens\.py::test_(a_stop_string_across|nothing_is_kept)",
    r"model/cpu/test_attention\.py::test_(short_and_long|a_token_has_the_same)",
    r"model/cpu/test_layers\.py::test_random_batches",
    r"model/cpu/test_quantized_products\.py::test_a_product_is_that_of",
    r"model/cpu/test_two_way\.py::test_tokens_of_an_image",
    r"model/cuda/test_attention\.py::test_(images_whose|the_kernels_(give|read))",
    r"model/vision/test_seeing_answers\.py::test_(images_cut|a_sequence_that_lost)",
)
"""Tests of which ``make test`` runs each value of a parameter once; other combinations are wide."""


def many(number: int, part: int = 8) -> int:
    """Number of random inputs of a test: ``number`` in ``make test-all``, else a fraction of it,
    one in ``part``."""
    return number if "LEAPJSON_TEST_ALL" in os.environ else max(1, number // part)


def mark(items: Sequence[pytest.Item], *, whole_files: bool) -> None:
    """Add the marker ``wide`` to tests that the patterns match.

    Raises ``pytest.UsageError`` for a pattern without a test, if all tests of files are collected.
    """
    by_id = {item.nodeid.removeprefix("tests/"): item for item in items}
    files: dict[str, list[str]] = defaultdict(list)
    for name in by_id:
        files[name.partition("::")[0]].append(name)
    for pattern in (*INSTRUMENTS, *GPU_KERNELS, *SWEEPS):
        for name in _fitting(pattern, files, whole_files):
            by_id[name].add_marker("wide")
    for pattern in EVERY_THIRD:
        counts = Counter[str]()
        for name in _fitting(pattern, files, whole_files):
            if "[" in name and not by_id[name].get_closest_marker("wide"):
                test = name.partition("[")[0]
                if counts[test] % 3:
                    by_id[name].add_marker("wide")
                counts[test] += 1
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
