"""Leaps on their own: confirmed tokens, tokens that are held back, and leaps that are given up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from app.core.constraint import ConstraintState
from app.engine.draft_statistics import DraftStatistics
from app.engine.leap import Change, Leaper
from tests.engine.harness import LANGUAGES, TOKENIZER, VOCABULARY, constraint, templates
from tests.fakes import ByteTokenizer, ByteVocabulary, FiniteConstraint

LEAPER = Leaper(VOCABULARY, TOKENIZER)
ROOM = 1000


def propose(
    state: ConstraintState,
    answer: Sequence[int] = (),
    prompt: Sequence[int] = (),
    limit: int = ROOM,
) -> tuple[Change, ConstraintState] | None:
    return LEAPER.propose([*prompt, *answer], len(prompt), state, limit, finish=True)


def leapt(state: ConstraintState, answer: Sequence[int] = (), prompt: Sequence[int] = ()) -> Change:
    """The change of the leap from ``state``, which there must be."""
    leap = propose(state, answer, prompt)
    assert leap is not None
    return leap[0]


def state_after(language: FiniteConstraint, tokens: Sequence[int]) -> ConstraintState:
    state = language.start()
    for token in tokens:
        state.accept(token)
    return state


def ids(*pieces: bytes) -> tuple[int, ...]:
    return tuple(VOCABULARY.ids[piece] for piece in pieces)


def test_nothing_is_leapt_at_a_branch() -> None:
    assert propose(constraint("a1", "b1").start()) is None


def test_forced_text_at_the_start_is_split_as_the_tokenizer_splits_it() -> None:
    change = leapt(constraint("name12").start())
    assert change.tokens == ids(b"name", b"12")
    assert change.added == (b"name", b"12")
    assert (change.dropped, change.held_back.tokens) == (0, ())


def test_the_prompt_is_never_tokenized_again() -> None:
    prompt = ids(b"n")
    change = leapt(constraint("ame").start(), prompt=prompt)
    assert change.dropped == 0
    assert change.tokens == ids(b"a", b"me")


def test_the_last_tokens_give_way_to_a_merge_with_the_forced_text() -> None:
    language = constraint("xname12", "xnbb")
    answer = ids(b"x", b"n", b"a")
    change = leapt(state_after(language, answer), answer)
    assert change.dropped == 2
    assert change.tokens == ids(b"name", b"12")
    assert change.added == (b"me", b"12")


def test_tokens_inside_the_old_text_add_nothing() -> None:
    language = constraint("na12", "n")
    answer = ids(b"n", b"a")
    change = leapt(state_after(language, answer), answer)
    assert change.tokens == ids(b"na", b"12")
    assert change.added == (b"", b"12")


def test_the_end_that_a_longer_token_could_continue_is_held_back() -> None:
    language = constraint("12na", "12name", "12nab")
    leap = propose(language.start())
    assert leap is not None
    change, after = leap
    assert change.tokens == ids(b"12")
    assert change.held_back.tokens == ids(b"na")
    assert after.shortest_completion() == b"na"


def test_the_end_is_confirmed_where_no_token_can_continue_it() -> None:
    change = leapt(constraint("12na", "12nab").start())
    assert change.tokens == ids(b"12", b"na")
    assert change.held_back.tokens == ()


def test_a_token_gives_way_to_no_merge_that_what_follows_could_undo() -> None:
    merges = ((b"}", b"]"), (b'"', b"}"))  # the tokenizer splits "}] into " and }]
    vocabulary = ByteVocabulary(merges)
    leaper = Leaper(vocabulary, ByteTokenizer(vocabulary))
    state = state_after(FiniteConstraint([b'"}]', b'"},'], vocabulary), b'"')
    leap = leaper.propose(b'"', 0, state, ROOM, finish=True)
    assert leap is not None
    change, _ = leap
    assert (change.dropped, change.tokens, change.held_back.tokens) == (0, (), ())
    state = state_after(FiniteConstraint([b'"}.', b'"},'], vocabulary), b'"')
    leap = leaper.propose(b'"', 0, state, ROOM, finish=True)
    assert leap is not None
    change, _ = leap
    assert (change.dropped, change.tokens) == (1, (vocabulary.ids[b'"}'],))


def test_text_that_is_all_held_back_changes_nothing_and_is_drafted() -> None:
    change = leapt(constraint("name", "nab").start())
    assert (change.dropped, change.tokens) == (0, ())
    assert change.held_back.tokens == ids(b"na")


def test_a_leap_past_the_budget_is_given_up() -> None:
    language = constraint("x12name", "y")
    answer = ids(b"x")
    state = state_after(language, answer)
    assert propose(state, answer, limit=3) is not None
    assert propose(state, answer, limit=2) is None


def test_a_character_that_the_forced_text_leaves_open_is_left_to_the_model() -> None:
    change = leapt(constraint("12é", "12è").start())
    assert b"".join(change.added) == b"12"


def test_a_character_that_the_forced_text_completes_is_one_token_again() -> None:
    language = FiniteConstraint(["é12".encode(), b"x"], VOCABULARY)
    answer = ids(b"\xc3")
    change = leapt(state_after(language, answer), answer)
    assert change.tokens == ids("é".encode(), b"12")
    assert change.added == (b"\xa9", b"12")


class _Normalising(ByteTokenizer):
    def encode(self, text: str) -> list[int]:
        return super().encode(text.lower())


class _FindsSpecialTokens(ByteTokenizer):
    def encode(self, text: str) -> list[int]:
        return [*super().encode(text.replace("<s>", "")), VOCABULARY.special]


@pytest.mark.parametrize("tokenizer", [_Normalising(VOCABULARY), _FindsSpecialTokens(VOCABULARY)])
def test_a_tokenizer_that_would_change_the_text_gives_no_leap(tokenizer: ByteTokenizer) -> None:
    state = constraint("Name<s>").start()
    assert Leaper(VOCABULARY, tokenizer).propose([], 0, state, ROOM, finish=True) is None


def test_the_window_widens_until_its_start_lines_up() -> None:
    language = constraint("ab" * 20 + "12", "c")
    answer = ids(b"a", b"b") * 20
    change = leapt(state_after(language, answer), answer)
    assert change.dropped == len(answer)
    assert change.tokens == tuple(TOKENIZER.encode("ab" * 20 + "12"))


@pytest.mark.parametrize("seed", range(200))
def test_leaps_only_ever_add_forced_text_split_canonically(seed: int) -> None:
    rng = random.Random(seed)
    language = rng.choice([*LANGUAGES, constraint(*templates(["é", "a"], "name", ["m", "me"]))])
    whole = rng.choice(language.answers)
    answer: list[int] = []
    text = whole[: rng.randint(0, len(whole))]
    while rest := text[len(VOCABULARY.spell(answer)) :]:
        fitting = [token for piece, token in VOCABULARY.ids.items() if rest.startswith(piece)]
        answer.append(rng.choice(fitting))
    state = state_after(language, answer)
    leap = propose(state, answer)
    if leap is None:
        return
    change, _ = leap
    forced = state.forced()
    confirmed = b"".join(change.added)
    assert forced.startswith(confirmed + VOCABULARY.spell(change.held_back.tokens))
    after = [*answer[: len(answer) - change.dropped], *change.tokens]
    assert VOCABULARY.spell(after) == text + confirmed
    if confirmed:
        assert change.dropped == 0 or answer[-change.dropped] != change.tokens[0]
        tail = [token for token, added in zip(change.tokens, change.added, strict=True) if added]
        spelled = VOCABULARY.spell([*change.tokens, *change.held_back.tokens]).decode()
        assert tuple(TOKENIZER.encode(spelled)) == change.tokens + change.held_back.tokens
        assert len(tail) >= 1


class _Recording(ByteTokenizer):
    def __init__(self, vocabulary: ByteVocabulary) -> None:
        super().__init__(vocabulary)
        self.seen: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.seen.append(text)
        return super().encode(text)


@pytest.mark.parametrize(
    ("merges", "seen"),
    [(((b'"', b","),), '", 1'), (((b'"', b","), (b"b", b'"')), 'ab", 1')],
    ids=["no token spans the seam", "a token spans it"],
)
def test_the_window_ends_at_a_mark_behind_a_word_that_no_token_spans(
    merges: tuple[tuple[bytes, bytes], ...], seen: str
) -> None:
    vocabulary = ByteVocabulary(merges)
    tokenizer = _Recording(vocabulary)
    state = state_after(FiniteConstraint([b'ab", 1', b"b"], vocabulary), b'ab"')
    leap = Leaper(vocabulary, tokenizer).propose(b'ab"', 0, state, ROOM, finish=True)
    assert leap is not None
    change, _ = leap
    assert tokenizer.seen == [seen]
    assert change.added[-3:] == (b",", b" ", b"1")


@pytest.mark.parametrize("seed", range(50))
def test_a_leap_that_is_known_is_the_one_that_would_be_found(seed: int) -> None:
    rng = random.Random(seed)
    language = constraint(*templates(['é", "', 'ab", "', 'b", "'], "name", ["m", "me"]))
    known = DraftStatistics().changes
    found = 0
    for _ in range(60):
        whole = rng.choice(language.answers)
        answer = TOKENIZER.encode(whole.decode())[: rng.randint(0, len(whole))]
        state = state_after(language, answer)
        before = len(known)
        again = LEAPER.propose(answer, 0, state, ROOM, finish=True, known=known)
        fresh = propose(state, answer)
        assert (again and again[0]) == (fresh and fresh[0])
        if again is not None and fresh is not None:
            assert again[1].state_id == fresh[1].state_id
            found += len(known) == before
    assert found, "no leap was cached"


def test_the_cache_of_leaps_is_bounded() -> None:
    change = leapt(constraint("name12" * 20).start())
    known = DraftStatistics().changes
    for place in range(10_000):
        known.keep(place, change)
    assert len(known) * len(change.tokens) <= 1 << 12
    assert known.get(9_999) is change
    assert known.get(0) is None


def test_forced_text_that_cannot_fit_is_not_even_tokenized() -> None:
    class Refusing(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            raise AssertionError("tokenized")

    longest = max(len(data) for data in VOCABULARY.token_bytes if data)
    state = constraint("x" * (10 * longest + longest + 1)).start()
    leaper = Leaper(VOCABULARY, Refusing(VOCABULARY))
    assert leaper.propose((), 0, state, 10, finish=False) is None
