"""Sources of tokens: each token has one, and the counts add up to the usage."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from app.answer.choice import OriginReader
from app.core.events import OriginToken, TokenChunk
from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from tests.engine import harness
from tests.engine.harness import (
    GREEDY,
    HOT,
    LANGUAGES,
    VOCABULARY,
    Answer,
    answer_of,
    answers_of,
    constraint,
    make_engine,
    random_config,
    random_ends,
    random_layers,
    random_request,
    request,
    step,
    templates,
    varied,
)
from tests.fakes import ScriptedModel
from tests.integrity import check_engine


class Client:
    """The tokens of one answer, as a client collects them from chunks with origins."""

    def __init__(self) -> None:
        self.reader = OriginReader()
        self.tokens: list[OriginToken] = []
        self.text = b""
        self.usage: dict[str, int] = {}

    def take(self, chunk: TokenChunk) -> None:
        if (origins := self.reader.read([chunk])) is not None:
            assert origins.index <= len(self.tokens)
            self.tokens[origins.index :] = origins.tokens
        self.text += chunk.data
        told = b"".join([token.data for token in self.tokens])
        assert self.text.startswith(told), "the tokens are ahead of the text"
        if chunk.finish_reason is not None:
            assert told == self.text
        usage = chunk.usage
        self.usage = {
            "leapt": usage.leapt_tokens,
            "drafted": usage.drafted_tokens,
            "held": usage.held_tokens,
        }
        self.usage["sampled"] = usage.completion_tokens - sum(self.usage.values())

    def check(self, answer: Answer | None = None) -> Counter[str]:
        counts = Counter(token.source for token in self.tokens)
        assert {source: counts[source] for source in self.usage} == self.usage  # type: ignore[index]
        if answer is not None:
            ids = [token.token_id for token in self.tokens]
            assert ids[: len(answer.tokens)] == answer.tokens
        return Counter({str(source): count for source, count in counts.items()})


def clients_of(engine: Engine, requests: list[EngineRequest]) -> dict[str, Client]:
    """Run ``requests`` to their ends; return the client of each."""
    clients = {one.request_id: Client() for one in requests}
    for one in requests:
        engine.add(one)
    for _ in range(20_000):
        if not engine.has_work:
            return clients
        for chunk in step(engine):
            clients[chunk.request_id].take(chunk)
        check_engine(engine)
    raise AssertionError("the engine does not finish")


@pytest.mark.parametrize("seed", range(120))
def test_the_sources_of_any_answers_add_up_to_their_usage(seed: int) -> None:
    rng = random.Random(seed)
    requests = [
        varied(random_ends(rng, random_request(rng, index)), origins=True)
        for index in range(rng.randint(1, 8))
    ]
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]))
    block_size = rng.choice([1, 2, 4, 16])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    config = random_config(rng)
    groups, states = random_layers(rng, longest, block_size, config.max_batch_tokens)
    engine = make_engine(config, model=model, block_size=block_size, groups=groups, states=states)
    for client in clients_of(engine, requests).values():
        client.check()


def test_all_sources_come_about() -> None:
    """Also, an answer with origins has the tokens of the answer without."""
    found = Counter[str]()
    engine = make_engine(model=ScriptedModel(VOCABULARY, by_bytes=True))
    for seed in range(4):
        for number, language in enumerate(LANGUAGES):
            one = request(f"{number}", allowed=language, sampling=HOT, seed=seed, max_tokens=60)
            client = clients_of(engine, [varied(one, origins=True)])[f"{number}"]
            found += client.check(answer_of(engine, one))
    assert set(found) == {"sampled", "drafted", "held", "leapt"}
    assert min(found.values()) > 5


def test_disabled_features_are_no_sources() -> None:
    requests = [
        request(f"{i}", allowed=language, sampling=HOT, max_tokens=60)
        for i, language in enumerate(LANGUAGES * 3)
    ]
    plain = [varied(one, origins=True, leap=False, draft=False) for one in requests]
    config = EngineConfig(max_draft_tokens=0)
    sources = {
        "plain": clients_of(make_engine(config), plain),
        "leaps": clients_of(make_engine(config), [varied(one, origins=True) for one in requests]),
        "drafts": clients_of(
            make_engine(), [varied(one, origins=True, leap=False) for one in requests]
        ),
    }
    found = {
        name: set().union(*(client.check() for client in clients.values()))
        for name, clients in sources.items()
    }
    assert found["plain"] == {"sampled"}
    assert found["leaps"] == {"sampled", "held", "leapt"}
    # Sequences launched ahead have no drafts.
    assert found["drafts"] == ({"sampled"} if harness.OVERLAP else {"sampled", "drafted"})


def test_held_tokens_are_of_bytes_that_were_forced() -> None:
    """The oracle: bytes that are the same in all answers of the language with the same prefix."""
    held = 0
    for seed in range(80):
        language = LANGUAGES[seed % len(LANGUAGES)]
        one = request("r", allowed=language, sampling=HOT, seed=seed, max_tokens=60)
        client = clients_of(make_engine(), [varied(one, origins=True)])["r"]
        at = 0
        for token in client.tokens:
            end = at + len(token.data)
            if token.source == "held":
                held += 1
                before = client.text[:at]
                ways = {each[at:end] for each in language.answers if each.startswith(before)}
                assert ways == {token.data}
            at = end
    assert held > 10


def test_logprobs_are_told_of_what_was_drawn() -> None:
    asked = replace(GREEDY, logprobs=2)
    language = constraint(*templates('{"name": "', ["ab", "abab", "anana"], '", "me": 12}'))
    one = varied(request(allowed=language, sampling=asked), origins=True)
    (client,) = clients_of(make_engine(), [one]).values()
    for token in client.tokens:
        if token.source == "leapt":
            assert token.logprob == 0.0
        elif token.logprob is not None:
            assert token.logprob <= 0.0
            assert token.top
    entries = answer_of(make_engine(), one).entries
    drawn = [token.logprob for token in entries if token.source == "sampled"]
    told = [token.logprob for token in client.tokens if token.top]
    assert set(told) <= set(drawn)
    assert told


def test_a_request_without_origins_gets_none() -> None:
    engine = make_engine()
    engine.add(request(allowed=LANGUAGES[0]))
    while engine.has_work:
        assert all(chunk.origins is None for chunk in step(engine))


def test_usage_is_the_same_whether_it_is_asked_or_not() -> None:
    requests = [request(f"{i}", allowed=each, sampling=HOT) for i, each in enumerate(LANGUAGES)]
    asked = clients_of(make_engine(), [varied(one, origins=True) for one in requests])
    for name, answer in answers_of(make_engine(), requests).items():
        usage = answer.usage
        assert asked[name].usage["leapt"] == usage.leapt_tokens
        assert asked[name].usage["drafted"] == usage.drafted_tokens
