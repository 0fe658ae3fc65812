"""Conversations in which the model may call functions.

`Scene` is such a conversation in OpenAI's form. `written_out` is what the server makes of it for a
chat template that knows no tools (`app.answer.prompt`, plain form; a test holds the two together).
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.answer.tools import FunctionTool
from app.demo.chat import talk
from app.demo.dressing import dress
from app.demo.functions import FUNCTIONS, Argument, Task, sibling, task
from app.demo.kinds import KINDS, person
from app.demo.prompts import Ask, Message, Shown, messages
from app.demo.records import Json, JsonSchema, Record, arrange
from app.demo.words import Words

Turn = Mapping[str, Any]
"""A message in OpenAI's form."""

_INSTRUCTIONS: Final = """\
You can call functions. These are the functions, one in a line, with their parameters as JSON Schema:
{functions}

To call functions, answer with one JSON object of this form and with nothing else:
{{"tool_calls": [{{"name": "NAME", "arguments": {{ARGUMENTS}}}}]}}
Otherwise, answer with text."""  # noqa: E501

_NO_FUNCTION: Final = "I have no function for that."

_MENTIONED: Final = ("add", "weather")
"""Topics that small talk may ask for."""

_SYSTEMS: Final = (
    "You are a helpful assistant.", "You are a helpful assistant.", "Use the functions.",
    "Be brief.", "You are an agent that calls functions.", "Answer the user's questions.",
)  # fmt: skip

_FORMS: Final = {
    "character": 1, "city": 2, "contact": 6, "event": 4, "invoice": 2, "notes": 4, "review": 4,
    "person": 3,
}  # fmt: skip
"""Kinds of records to be handed to a function, with their shares."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Messages and tools as a client sends them, and what the model should answer.

    `calls` are names with arguments; empty for an answer in text.
    """

    turns: tuple[Turn, ...]
    tools: tuple[FunctionTool, ...]
    calls: tuple[tuple[str, dict[str, Json]], ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A function as it is shown, and the arguments that the request gives it."""

    tool: FunctionTool
    arguments: dict[str, Json]


def call(words: Words) -> Scene:
    """A request that one of the functions fits, now and then two."""
    tasks, request = _asked(words)
    calls = _laid_out(tasks, words)
    tools = [each.tool for each in calls]
    if words.chance(0.25):
        near = sibling(words, tasks[0])
        if near.topic not in _topics(tasks):
            tasks = [*tasks, near]
            tools += [each.tool for each in _laid_out([near], words)]
    turns = [_user(request)]
    if words.chance(0.08):
        earlier = task(words, *(each.topic for each in tasks))
        before = _laid_out([earlier], words)
        tools += [each.tool for each in before]
        said = {"role": "assistant", "content": earlier.statement}
        turns = [*_round([earlier], before, earlier.request), said, *turns]
    return _scene(turns, _among_others(tools, words, _topics(tasks)), words, calls)


def form(words: Words) -> Scene:
    """A text, and a function whose parameters are what is to be found in it."""
    blank = _blank(words)
    record, tool = blank.record, blank.filled.tool
    turns: list[Turn] = [*messages(Ask(record, blank.schema, Shown.NOTHING), words)]
    if words.chance(0.25):
        order = words.pick(f"Save this {record.noun}: ", f"Use {tool.name}. ", "Fill this in: ")
        turns = [_user(order + record.text)]
    tools = [tool]
    if words.chance(0.25):
        other = _blank(words)
        if other.record.kind != record.kind and blank.is_named and other.is_named:
            tools.append(other.filled.tool)
    elif words.chance(0.4):
        tools = _among_others(tools, words, ())
    words.rng.shuffle(tools)
    return _scene(turns, tools, words, [blank.filled])


def result(words: Words) -> Scene:
    """What functions returned: the answer says it, in a sentence for each."""
    if words.chance(0.15):
        return _saved(words)
    tasks, request = _asked(words)
    calls = _laid_out(tasks, words)
    if words.chance(0.2):
        tasks = [replace(each, result=each.statement) for each in tasks]
    tools = _among_others([each.tool for each in calls], words, _topics(tasks))
    text = " ".join(each.statement for each in tasks)
    return _scene(_round(tasks, calls, request), tools, words, text=text)


def no_call(words: Words) -> Scene:
    """Small talk, or a request that no function fits."""
    if words.chance(0.5):
        turns, text = talk(words)
        tools = [_blank(words).filled.tool]
        if words.chance(0.6):
            tools = [_laid_out([task(words, *_MENTIONED)], words)[0].tool]
        return _scene(turns, _among_others(tools, words, _MENTIONED), words, text=text)
    asked = task(words)
    other = sibling(words, asked)
    tools = _among_others([_laid_out([other], words)[0].tool], words, _topics([asked, other]))
    return _scene([_user(asked.request)], tools, words, text=_NO_FUNCTION)


@dataclass(frozen=True, slots=True)
class _Blank:
    """A record, and a function that takes it."""

    record: Record
    schema: JsonSchema
    filled: _Call

    @property
    def is_named(self) -> bool:
        """Whether the function's name says what it takes."""
        return self.record.noun.split(" ")[0] in self.filled.tool.name.lower()


def _blank(words: Words) -> _Blank:
    kind = words.rng.choices(list(_FORMS), list(_FORMS.values()))[0]
    record = (person.record if kind == "person" else KINDS[kind])(words)
    arranged = arrange(record.facts, words, words.chance(0.6), keep_spaces=False)
    tool = _form_tool(record.noun, arranged.schema, words)
    return _Blank(record, arranged.schema, _Call(tool, arranged.answer))


def _saved(words: Words) -> Scene:
    """A record that a function has taken."""
    blank = _blank(words)
    record, number = blank.record, words.rng.randint(1, 999)
    returned = words.pick("saved", "ok", f"saved as number {number}", {"id": number}, number,
                          {"status": "ok"}, "done")  # fmt: skip
    save = Task(record.kind, (), (), (), record.text, returned, "Done, I have saved it.")
    request = words.pick(f"Extract the {record.noun} from: ", "", "Save this: ") + record.text
    turns = _round([save], [blank.filled], request)
    return _scene(turns, [blank.filled.tool], words, text=save.statement)


def written_out(scene: Scene) -> list[Message]:
    """The scene as text: what the server shows a model whose template knows no tools."""
    names: dict[str, str] = {}
    written: list[Message] = []
    for turn in scene.turns:
        content = turn["content"] or ""
        if turn["role"] == "tool":
            content = f"Result of {names[turn['tool_call_id']]}:\n{content}"
            if written[-1]["role"] == "user":
                content = f"{written.pop()['content']}\n\n{content}"
            written.append({"role": "user", "content": content})
            continue
        calls = turn.get("tool_calls", ())
        names.update((each["id"], each["function"]["name"]) for each in calls)
        if calls:
            functions = [each["function"] for each in calls]
            content = spelled([(one["name"], json.loads(one["arguments"])) for one in functions])
        written.append({"role": turn["role"], "content": content})
    lines = "\n".join(_line(tool) for tool in scene.tools)
    instructions = _INSTRUCTIONS.format(functions=lines)
    if written[0]["role"] == "system":
        instructions = f"{written.pop(0)['content']}\n\n{instructions}"
    return [{"role": "system", "content": instructions}, *written]


def spelled(calls: Sequence[tuple[str, dict[str, Json]]]) -> str:
    """Calls as the model writes them."""
    return json.dumps(answer_of(calls), ensure_ascii=False)


def answer_of(calls: Sequence[tuple[str, dict[str, Json]]]) -> dict[str, Json]:
    """The object that holds the calls."""
    return {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]}


def _topics(tasks: Iterable[Task]) -> list[str]:
    return [each.topic for each in tasks]


def _asked(words: Words) -> tuple[list[Task], str]:
    """One task or two, and a request for all of them."""
    first = task(words)
    if first.shared and words.chance(0.3):
        pair = [_unsaid(first), _unsaid(FUNCTIONS[first.topic](words))]
        values = [each.arguments[0].value for each in pair]
        if values[0] != values[1]:
            return pair, first.shared.format(" and ".join(values))
    if words.chance(0.12):
        second = task(words, first.topic)
        joined = words.pick("{} {}", "{} And then: {}", "{}\n{}")
        return [first, second], joined.format(first.request, second.request)
    return [first], first.request


def _unsaid(single: Task) -> Task:
    """The task without the optional arguments, which a shared request does not say."""
    arguments = tuple(
        replace(each, value=None) if each.optional else each for each in single.arguments
    )
    return replace(single, arguments=arguments)


def _laid_out(tasks: Sequence[Task], words: Words) -> list[_Call]:
    """The calls of the tasks. Two of the same topic have the same function."""
    seed = words.rng.random()
    calls = [_lay_out(each, Words(random.Random(seed), words.split)) for each in tasks]
    assert len({each.tool.name for each in calls}) == len({each.topic for each in tasks})
    return calls


def _lay_out(single: Task, words: Words) -> _Call:
    name, about = words.pick(*single.names), words.pick(*single.about)
    described, nullable = words.chance(0.35), words.chance(0.3)
    camel = words.chance(0.15)
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    arguments: dict[str, Json] = {}
    for argument in single.arguments:
        key, hidden = words.pick(*argument.names), words.chance(0.5)
        if camel:
            key = key[0] + key.title().replace("_", "")[1:]
        if argument.value is None and hidden:
            continue
        properties[key] = _property(argument, described, nullable)
        if nullable or not argument.optional:
            required.append(key)
        if nullable or argument.value is not None:
            arguments[key] = argument.value
    schema: JsonSchema = {"type": "object", "properties": properties, "required": required}
    return _Call(FunctionTool(name, about, dress(schema, name, words)), arguments)


def _property(argument: Argument, described: bool, nullable: bool) -> JsonSchema:
    schema = argument.schema
    if argument.optional and nullable:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "description": argument.about} if described else dict(schema)


def _form_tool(noun: str, schema: JsonSchema, words: Words) -> FunctionTool:
    """A function that takes a record: named like a class, or for what it does."""
    kind = noun.title().replace(" ", "")
    name = words.pick(
        kind, kind, kind, f"{kind}{words.pick('Info', 'Details', 'Data', 'Model')}",
        f"extract_{noun}", f"save_{noun}", f"create_{noun}", f"submit_{noun}",
        "final_result", "extract", "submit", "answer", "Extraction", "respond", "json", "format",
        words.name().encode("ascii", "ignore").decode() or "record",
    ).replace(" ", "_")  # fmt: skip
    about = words.pick(
        "",
        f"Correctly extracted `{name}` with all the required parameters with correct types",
        "The final response which ends this conversation",
        f"Save a {noun}.",
        f"Extract the {noun} from the text.",
        f"The {noun}.",
        f"Details of a {noun}.",
    )
    return FunctionTool(name, about, dress(schema, name, words))


def _among_others(
    tools: Sequence[FunctionTool], words: Words, without: Iterable[str]
) -> list[FunctionTool]:
    """The tools, and up to two of topics not in `without`, in any order."""
    shown = {tool.name: tool for tool in tools}
    avoided = set(without)
    for _ in range(words.pick(0, 0, 1, 1, 2)):
        other = task(words, *avoided)
        avoided.add(other.topic)
        (drawn,) = _laid_out([other], words)
        shown.setdefault(drawn.tool.name, drawn.tool)
    order = list(shown.values())
    words.rng.shuffle(order)
    return order


def _round(tasks: Sequence[Task], calls: Sequence[_Call], request: str) -> list[Turn]:
    """The request, the calls, and their results."""
    ids = [f"call_{number}" for number in range(len(calls))]
    made = [
        {
            "id": id,
            "type": "function",
            "function": {
                "name": each.tool.name,
                "arguments": json.dumps(each.arguments, ensure_ascii=False),
            },
        }
        for id, each in zip(ids, calls, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": id, "content": _returned(each.result)}
        for id, each in zip(ids, tasks, strict=True)
    ]
    return [_user(request), {"role": "assistant", "content": None, "tool_calls": made}, *results]


def _returned(result: Json) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _user(text: str) -> Turn:
    return {"role": "user", "content": text}


def _scene(
    turns: Sequence[Turn],
    tools: Sequence[FunctionTool],
    words: Words,
    calls: Sequence[_Call] = (),
    text: str = "",
) -> Scene:
    """The scene, now and then with a system message where it has none."""
    if turns[0]["role"] != "system" and words.chance(0.3):
        turns = [{"role": "system", "content": words.pick(*_SYSTEMS)}, *turns]
    made = tuple((each.tool.name, each.arguments) for each in calls)
    return Scene(tuple(turns), tuple(tools), made, text or spelled(made))


def _line(tool: FunctionTool) -> str:
    """A function as the server shows it."""
    shown = {"name": tool.name, "description": tool.description or ""}
    return json.dumps({**shown, "parameters": tool.parameters}, ensure_ascii=False)
