from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import lark
import llguidance
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from app.constraint.automaton.automaton import START, Automaton
from app.constraint.compiler import Compiler
from app.constraint.program import compile_program
from app.core.constraint import ConstraintState, Mask
from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    RejectedToken,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import Grammar
from tests.constraint.walks import Walker
from tests.fakes import ByteVocabulary
from tests.wide import many

LETTERS = "ab"
LONGEST = 5
UNIVERSE = ["".join(t) for size in range(LONGEST + 1) for t in product(LETTERS, repeat=size)]
NAMES = ["root", "x", "y"]

Tree = tuple[Any, ...]
"""The right side of a rule: (form, operands...)."""
Language = frozenset[str]


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(
        st.sampled_from(["", "a", "b", "ab"]).map(lambda text: ("text", text)),
        st.sampled_from(["[ab]", "[^b-z]", "."]).map(lambda text: ("set", text)),
        st.sampled_from(NAMES).map(lambda name: ("rule", name)),
        st.sampled_from(NAMES).map(lambda name: ("rule", name)),
    )

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
        several = st.lists(inner, min_size=2, max_size=4)
        return st.one_of(
            several.map(lambda parts: ("series", *parts)),
            several.map(lambda parts: ("any", *parts)),
            st.tuples(inner, counts).map(lambda pair: ("repeat", pair[0], *pair[1])),
        )

    return st.recursive(leaves, grow, max_leaves=7)


def spelled(tree: Tree) -> str:
    form, *inside = tree
    if form == "text":
        return f'"{inside[0]}"'
    if form in ("set", "rule"):
        return str(inside[0])
    if form == "repeat":
        body, low, high = inside
        quantifier = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
        return f"({spelled(body)})" + (quantifier or f"{{{low},{'' if high is None else high}}}")
    return "(" + (" | " if form == "any" else " ").join(map(spelled, inside)) + ")"


def joined(left: Language, right: Language) -> Language:
    return frozenset(a + b for a in left for b in right if len(a) + len(b) <= LONGEST)


def texts_of(tree: Tree, rules: dict[str, Language]) -> Language:
    """Texts of up to ``LONGEST`` characters, by set algebra over the known texts of the rules."""
    form, *inside = tree
    if form == "text":
        return frozenset(inside)
    if form == "set":
        return frozenset({"[ab]": "ab", "[^b-z]": "a", ".": "ab"}[inside[0]])
    if form == "rule":
        return rules[inside[0]]
    if form == "repeat":
        body, low, high = inside
        once = texts_of(body, rules)
        power, found = frozenset([""]), frozenset[str]()
        for times in range((LONGEST + low if high is None else high) + 1):
            found |= power if times >= low else frozenset()
            power = joined(power, once)
        return found
    parts = [texts_of(part, rules) for part in inside]
    if form == "any":
        return frozenset().union(*parts)
    result = frozenset([""])
    for part in parts:
        result = joined(result, part)
    return result


def languages(bodies: dict[str, Tree]) -> dict[str, Language]:
    """The texts that each rule derives: a least fixpoint, so recursion needs no special case."""
    known = dict.fromkeys(bodies, frozenset[str]())
    while True:
        grown = {name: texts_of(body, known) for name, body in bodies.items()}
        if grown == known:
            return known
        known = grown


@settings(max_examples=many(400, 16))
@given(st.tuples(trees(), trees(), trees()))
def test_a_gbnf_grammar_has_the_texts_that_its_rules_derive(
    bodies: tuple[Tree, Tree, Tree],
) -> None:
    rules = dict(zip(NAMES, bodies, strict=True))
    text = "\n".join(f"{name} ::= {spelled(body)}" for name, body in rules.items())
    expected = languages(rules)["root"]
    try:
        walker = Walker.of(Grammar(text))
    except UnsatisfiableSchema:
        assert not expected
    except InvalidSchema:
        assert not all(productive(rules).values())
    except ConstraintTooComplex:  # too many derivations of one text
        reject()
    else:
        assert {t for t in UNIVERSE if walker.accepts(t)} == expected, text


def productive(bodies: dict[str, Tree]) -> dict[str, bool]:
    """Whether each rule derives any text, of any length."""
    known = dict.fromkeys(bodies, False)
    for _ in bodies:
        known = {name: _has_text(body, known) for name, body in bodies.items()}
    return known


def _has_text(tree: Tree, known: dict[str, bool]) -> bool:
    form, *inside = tree
    if form == "rule":
        return known[inside[0]]
    if form == "repeat":
        return inside[1] == 0 or _has_text(inside[0], known)
    if form in ("text", "set"):
        return True
    return (any if form == "any" else all)(_has_text(part, known) for part in inside)


JSON_GBNF = r"""
# JSON, as llama.cpp's users write it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def test_the_json_grammar_of_llama_cpp_yields_json_and_takes_it() -> None:
    walker = Walker.of(Grammar(JSON_GBNF))
    for seed in range(60):
        json.loads(walker.sample(random.Random(seed)))
    assert walker.accepts('{"a": [1, -2.5e3, {"b": "\\u00e9\\n"}], "c": null}')
    assert not walker.accepts('{"a": 01}')


@pytest.mark.parametrize(
    ("body", "inside", "outside"),
    [
        (r'"\x41\u00e9\U0001F600\n\t\r\"\\"', ['Aé😀\n\t\r"\\'], ["A"]),
        (r"[\]\[\\^-]+", ["]", "[", "\\^-"], ["a"]),
        ("[^\\n-z]", ["é", "{"], ["a", "\n", "z"]),
        ("[a-]", ["a", "-"], ["b"]),
        (".", ["\n", "😀"], ["", "ab"]),
        ('"ab"{2}', ["abab"], ["ab", "abb"]),
        ('"a"{2,}', ["aa", "aaaa"], ["a"]),
        ('"a"{1,2}', ["a", "aa"], ["", "aaa"]),
        ('"a" # comment | "b"\n | "c"', ["a", "c"], ["b"]),
        ('( "a"\n  "b"\n)', ["ab"], ["a"]),
        ('"a" |', ["a", ""], ["b"]),
        ('the-end_1\nthe-end_1 ::= "z"', ["z"], [""]),
    ],
)
def test_gbnf_notation(body: str, inside: list[str], outside: list[str]) -> None:
    walker = Walker.of(Grammar("root ::= " + body))
    assert [walker.accepts(text) for text in inside] == [True] * len(inside)
    assert [walker.accepts(text) for text in outside] == [False] * len(outside)


LARK_GRAMMARS = {
    "arithmetic": """
        ?start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom | product "/" atom
        ?atom: NUMBER -> number | "-" atom | "(" sum ")"
        %import common.NUMBER
        %import common.WS_INLINE
        %ignore WS_INLINE
    """,
    "ambiguous": """
        start: e
        e: e OP e | e "!" | "-" e | "(" e ")" | binary | /[0-9]+/
        binary: e "^" e
        OP.2: "+" | "*"
    """,
    "indirect": """
        start: a
        a: b "x" | "q"
        b: a "z" | c a "y" | "w"   // c may be empty: a hides behind it
        c: "c"*
    """,
    "json": r"""
        start: value
        value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: ESCAPED_STRING ":" value
        %import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
        %ignore WS
    """,
    "terminals": r"""
        !start: _sep{0} | "Select"i NAME~1..2 (";" | /x[^k]{2}/i) | HEX "0".."7" ["end"]
        _sep: "never"
        NAME: ("a".."z" | "_")+ " "
        HEX: /0x [0-9a-f]+/xi
    """.replace("_sep{0}", "_sep"),
}


@pytest.mark.parametrize("name", LARK_GRAMMARS)
def test_texts_of_a_lark_grammar_parse_in_lark(name: str) -> None:
    text = LARK_GRAMMARS[name]
    parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")
    walker = Walker.of(Grammar(text, syntax="lark"))
    for seed in range(60):
        sample = walker.sample(random.Random(seed), steps=12).decode()
        parser.parse(sample)


def lark_texts(
    parser: Any, alphabet: str, longest: int, error: type[Exception]
) -> Iterator[tuple[str, bool]]:
    for size in range(1, longest + 1):
        for letters in product(alphabet, repeat=size):
            text = "".join(letters)
            try:
                parser.parse(text)
            except error:
                yield text, False
            else:
                yield text, True


@pytest.mark.parametrize(
    ("name", "alphabet", "longest"),
    [("ambiguous", "1+^!-", 4), ("indirect", "cqwxyz", 4), ("arithmetic", "1+(*).", 4)],
)
def test_a_lark_grammar_takes_the_texts_that_lark_takes(
    name: str, alphabet: str, longest: int
) -> None:
    parser = lark.Lark(LARK_GRAMMARS[name], parser="earley", lexer="dynamic_complete")
    walker = Walker.of(Grammar(LARK_GRAMMARS[name]))
    for text, taken in lark_texts(parser, alphabet, longest, lark.exceptions.LarkError):
        assert walker.accepts(text) == taken, text


def test_ignored_text_stands_between_tokens_and_is_bounded() -> None:
    grammar = (
        'start: "a" b "c"?\nb: "b" | x\nx: x "," "d" | "d"\n%ignore " "\n%ignore /#[^\\n]*\\n/'
    )
    walker = Walker.of(Grammar(grammar))
    for text in ("ab", "a b", "a   b c", "a#x\nb", "ad , d c", "a" + " " * 32 + "b"):
        assert walker.accepts(text), text
    for text in (" ab", "ab ", "a" + " " * 33 + "b", "a#xb", "a d,, d"):
        assert not walker.accepts(text), text


def test_an_operator_grammar_comes_back_to_states_it_has_been_in() -> None:
    automaton = Automaton(compile_program(Grammar(LARK_GRAMMARS["ambiguous"])))
    after = [automaton.step(START, b"1" + b"+1" * times) for times in (2, 20, 200)]
    assert after[0] == after[1] == after[2]


def test_an_inline_schema_is_followed_between_the_rest() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    walker = Walker.of(Grammar(f'start: "<" %json {json.dumps(schema)} ">"'))
    assert walker.accepts('<{"n": 12}>')
    assert not walker.accepts('<{"n": "x"}>')
    assert not walker.accepts('<{"n": 12, "m": 1}>')


def test_common_terminals_are_texts_that_lark_reads_as_them() -> None:
    from app.constraint.grammar.lark import COMMON

    for name in COMMON:
        text = f"start: {name}\n%import common.{name}"
        parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")
        walker = Walker.of(Grammar(text))
        for seed in range(many(30, 3)):
            parser.parse(walker.sample(random.Random(seed), steps=15).decode())


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("[^k]s", "i"),
        ("[i-l]+", "i"),
        (r"(?P<n>a|\x62)\.[\]x-]", ""),
        (r"a b  [ c] \# # tail", "x"),
        (".", "s"),
        ("[^a-y]", "i"),
        (r"\u0041|\t", "i"),
        ("(?i)k.", ""),
    ],
)
def test_a_regular_expression_matches_what_python_matches(pattern: str, flags: str) -> None:
    walker = Walker.of(Grammar(f"start: /{pattern}/{flags}"))
    python = re.compile(pattern, sum(getattr(re, flag.upper()) for flag in flags))
    letters = "aAbBkKiIsSxXyZ. ]-#c\n\r\t\u0130\u0131\u212a\u017fé"
    for text in (
        *letters,
        *(a + b for a in letters for b in letters),
        "ab  ",
        "ab #",
        "a.x",
        "b.]",
    ):
        assert walker.accepts(text) == bool(python.fullmatch(text)), text


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ('root ::= "a" x', "x is not defined", "line 1, column 14"),
        ('root ::= "a"\nroot ::= "b"', "defined twice", "line 2, column 1"),
        ('root ::= ("a"', "not closed", "line 1, column 10"),
        ('root ::= "a")', "closes no group", "line 1, column 13"),
        ('root ::= "a', "not closed", "line 1, column 10"),
        (r'root ::= "\q"', "escape", "line 1, column 11"),
        ("root ::= [b-a]", "out of order", "line 1, column 11"),
        ("root ::= [", "not closed", "line 1, column 10"),
        ("root ::= *", "nothing to repeat before", "line 1, column 10"),
        ('root ::= "a"' + "*" * 100_000, "nothing to repeat before", "line 1, column 14"),
        ('root ::= "a"{2,1}', "out of order", "line 1, column 13"),
        ('x ::= "a"', "no rule named root", "line 1, column 1"),
        ('root ::= "y" | a\na ::= a "x"', "a has no finite text", "line 2, column 1"),
        ('a: "b"', "no rule named start", "line 1, column 1"),
        ('start: "a" X', "X is not defined", "line 1, column 12"),
        ('start: X\nX: X "a" | "b"', "refers to itself", "line 2, column 1"),
        ('start: X\nX: start "a"', "cannot refer to a rule", "line 2, column 4"),
        ('start: ["a")', "closes no group", "line 1, column 12"),
        ('start: ""', "empty", "line 1, column 8"),
        ("start: /a(/", "pattern", "line 1, column 8"),
        ("start: %json {", "not JSON", "line 1, column 15"),
        ('%import common.WS\nWS: " "', "defined twice", "line 2, column 1"),
        ('"a"', "a rule", "line 1, column 1"),
    ],
)
def test_an_error_names_its_place_and_quotes_the_line(text: str, reason: str, place: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_program(Grammar(text))
    assert reason in str(caught.value)
    assert caught.value.pointer == place
    *_, quoted, mark, _ = str(caught.value).split("\n")
    assert quoted.strip() in text
    assert mark.strip() == "^"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("start: A\n%declare A", "%declare"),
        ('start: "a"\n%override start: "b"', "%override"),
        ("start: A\n%import python.A", "%import"),
        ("start: A\n%import common.NOPE -> A", "%import"),
        ('start: sep{"a"}', "template"),
        ('sep{x}: x\nstart: "a"', "template"),
        ("start: /a(?=b)/", "regex"),
        ("start: /^a/", "regex"),
        (r"start: /\ba/", "regex"),
        (r"start: /(a)\1/", "regex"),
        ('start: "é"i', "i"),
        ("root ::= <[1000]>", "token reference"),
    ],
)
def test_unsupported_syntax_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compile_program(Grammar(text))
    assert caught.value.keyword == what
    assert caught.value.pointer.startswith("line ")


DENSE = '"a" | ' + " | ".join(f'r{j} "x"' for j in range(60))


@pytest.mark.parametrize(
    "text",
    [
        "root ::= " + "(" * 30_000,
        "start: " + "[" * 30_000,
        "start: %json " + "[" * 100_000,
        "start: /" + "(" * 30_000 + "/",
        'root ::= "' + "a" * 300_000 + '"',
        'root ::= "a"{9999999999}',
        "root ::= ([a-z]{1,1000}){1,1000}",
        "root ::= " + '("a"? ' * 60 + ")*" * 60 + ' "b"',
        "\n".join(
            ["root ::= r40", *(f"r{i} ::= r{i - 1} r{i - 1}" for i in range(1, 41)), 'r0 ::= "x"']
        ),
        "\n".join(
            ["root ::= r0", *(f'r{i} ::= r{i + 1} "x" | "b"' for i in range(2000)), "r2000 ::= r0"]
        ),
        "\n".join(
            [
                "root ::= r0",
                *(f'r{i} ::= ("c" | r{i + 1}) "x"' for i in range(2000)),
                'r2000 ::= "d"',
            ]
        ),
        "\n".join(['root ::= "a" | r0', *(f"r{i} ::= {DENSE}" for i in range(60))]),
    ],
    ids=range(12),
)
def test_a_hostile_grammar_is_refused(text: str) -> None:
    with pytest.raises(ConstraintTooComplex):
        compile_program(Grammar(text))


def test_counts_up_to_a_million_cost_no_states() -> None:
    program = compile_program(Grammar("root ::= [a-z]{1,1000000} | [0-9]{1000000}"))
    assert len(program.derivatives.pool) < 300


def test_a_long_chain_of_rules_is_followed() -> None:
    chain = [f'r{i} ::= "a{i}" [0-9]? r{i + 1}' for i in range(1500)]
    walker = Walker.of(Grammar("\n".join(["root ::= r0", *chain, 'r1500 ::= "end"'])))
    assert walker.accepts("".join(f"a{i}7" for i in range(1500)) + "end")


def test_the_empty_text_is_an_answer_where_the_grammar_says_so() -> None:
    walker = Walker.of(Grammar('root ::= x*\nx ::= "a" root "b"'))
    assert [walker.accepts(t) for t in ("", "ab", "aabbab", "a")] == [True, True, True, False]


def test_a_grammar_without_any_text_is_unsatisfiable() -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_program(Grammar('root ::= "(" root ")"'))


@pytest.mark.parametrize(
    "grammar",
    [
        """!start: (x* | "a"+ "aa"~2) | "ab" "a"i | (x | x "1")?
        x: ("ab"?)~2 y | (x+ /\\w/ | x | x y*) x ["b1"* "B"i /\\w?/]
        y: start""",
        """start: s
        s: "a" s s | s s "a"? | "b" """,
    ],
)
def test_a_grammar_whose_readings_multiply_is_refused_when_it_is_compiled(grammar: str) -> None:
    """The first grammar took 100 s for 40 tokens."""
    with pytest.raises(ConstraintTooComplex, match=r"an ambiguous grammar: after '.*' it has"):
        compile_program(Grammar(grammar))


def test_grammars_of_many_rules_and_of_few_readings_are_taken() -> None:
    many = [f'r{number}: "a" "{number}" start?' for number in range(300)]
    ways = " | ".join(f"r{number}" for number in range(300))
    assert Walker.of(Grammar("\n".join([f"start: {ways}", *many]))).accepts("a7a299")
    sums = 'root ::= x\nx ::= x x | x "+" x | "(" x ")" | "a"'
    assert Walker.of(Grammar(sums)).accepts("a+a(aa+a)a")


def test_an_unknown_syntax_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="auto, gbnf or lark"):
        compile_program(Grammar('root ::= "a"', syntax="abnf"))


def test_lark_texts_are_taken_by_llguidance() -> None:
    tokenizer = llguidance.LLTokenizer("byte")
    for name in ("arithmetic", "indirect", "json"):
        text = LARK_GRAMMARS[name]
        walker = Walker.of(Grammar(text))
        for seed in range(20):
            sample = walker.sample(random.Random(seed), steps=12)
            matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(text))
            assert matcher.consume_tokens(list(sample)), (name, sample, matcher.get_error())
            assert matcher.is_accepting(), (name, sample)


@pytest.mark.parametrize("name", LARK_GRAMMARS)
def test_masks_are_what_can_follow_and_answers_end_within_their_budget(name: str) -> None:
    vocabulary = ByteVocabulary()
    texts = vocabulary.token_bytes
    constraint = Compiler(vocabulary).compile(Grammar(LARK_GRAMMARS[name]))
    for seed in range(many(25, 4)):
        rng = random.Random(seed)
        state = constraint.start()
        budget = state.shortest_tokens() + rng.randrange(20)
        while budget:
            free = _allowed(state.mask(), vocabulary.size)
            assert free - {vocabulary.eos} == {
                token for token, text in enumerate(texts) if _can_follow(state, text)
            }
            allowed = sorted(_allowed(state.mask(budget=budget), vocabulary.size))
            token = rng.choice(allowed)
            if token == vocabulary.eos:
                break
            state.accept(token)
            budget -= 1
        assert state.is_complete


def _allowed(mask: Mask, size: int) -> set[int]:
    return {token for token in range(size) if mask[token // 32] >> (token % 32) & 1}


def _can_follow(state: ConstraintState, text: bytes | None) -> bool:
    if text is None:
        return False
    try:
        state.copy().accept_bytes(text)
    except RejectedToken:
        return False
    return True
