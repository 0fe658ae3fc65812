"""Draws conversations in which the model may call functions."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.answer.tools import FunctionTool
from tools.demo_model.chat import talk
from tools.demo_model.functions import FUNCTIONS, Argument, Task, sibling, task
from tools.demo_model.kinds import KINDS, person
from tools.demo_model.prompts import Ask, Shown, messages
from tools.demo_model.records import Json, JsonSchema, Record, arrange
from tools.demo_model.scene import Scene, Turn, calls_as_text
from tools.demo_model.schema_variants import schema_variant
from tools.demo_model.words import Words

_NO_FUNCTION: Final = "I have no function for that."

_SMALL_TALK_TOPICS: Final = ("add", "weather")
"""Topics that small talk may mention: the functions beside it are never of these."""

_SYSTEMS: Final = (
    "You are a helpful assistant.", "You are a helpful assistant.", "Use the functions.",
    "Be brief.", "You are an agent that calls functions.", "Answer the user's questions.",
)  # fmt: skip

_FORMS: Final = {
    "character": 1, "city": 2, "contact": 6, "event": 4, "invoice": 2, "notes": 4, "review": 4,
    "person": 3,
}  # fmt: skip
"""Shares of the kinds of record that a function takes."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A function as in the prompt, and its arguments from the request."""

    tool: FunctionTool
    arguments: dict[str, Json]


def call(words: Words) -> Scene:
    """A request that needs one of the functions, sometimes two."""
    tasks, request = _tasks_and_request(words)
    calls = _calls_of(tasks, words)
    tools = [each.tool for each in calls]
    if words.chance(0.25):
        near = sibling(words, tasks[0])
        if near.topic not in _topics(tasks):
            tasks = [*tasks, near]
            tools.append(_tool_for(near, words))
    turns = [_user(request)]
    if words.chance(0.08):
        earlier = task(words, *(each.topic for each in tasks))
        before = _calls_of([earlier], words)
        tools += [each.tool for each in before]
        said = {"role": "assistant", "content": earlier.statement}
        turns = [*_exchange([earlier], before, earlier.request), said, *turns]
    return _scene(turns, _with_other_tools(tools, words, _topics(tasks)), words, calls)


def form(words: Words) -> Scene:
    """A text, and a function whose parameters are the facts in it."""
    drawn = _form(words)
    record, tool = drawn.record, drawn.call.tool
    turns: list[Turn] = [*messages(Ask(record, drawn.schema, Shown.NOTHING), words)]
    if words.chance(0.25):
        order = words.pick(f"Save this {record.noun}: ", f"Use {tool.name}. ", "Fill this in: ")
        turns = [_user(order + record.text)]
    tools = [tool]
    if words.chance(0.25):
        other = _form(words)
        if other.record.kind != record.kind and drawn.is_named and other.is_named:
            tools.append(other.call.tool)
    elif words.chance(0.4):
        tools = _with_other_tools(tools, words, ())
    words.rng.shuffle(tools)
    return _scene(turns, tools, words, [drawn.call])


def result(words: Words) -> Scene:
    """Results of functions; the answer has a sentence for each."""
    if words.chance(0.15):
        return _saved(words)
    tasks, request = _tasks_and_request(words)
    calls = _calls_of(tasks, words)
    if words.chance(0.2):
        tasks = [replace(each, result=each.statement) for each in tasks]
    tools = _with_other_tools([each.tool for each in calls], words, _topics(tasks))
    text = " ".join(each.statement for each in tasks)
    return _scene(_exchange(tasks, calls, request), tools, words, text=text)


def no_call(words: Words) -> Scene:
    """Small talk, or a request that no function fits."""
    if words.chance(0.5):
        turns, text = talk(words)
        tools = [_form(words).call.tool]
        if words.chance(0.6):
            tools = [_tool_for(task(words, *_SMALL_TALK_TOPICS), words)]
        return _scene(turns, _with_other_tools(tools, words, _SMALL_TALK_TOPICS), words, text=text)
    asked = task(words)
    other = sibling(words, asked)
    tools = _with_other_tools([_tool_for(other, words)], words, _topics([asked, other]))
    return _scene([_user(asked.request)], tools, words, text=_NO_FUNCTION)


@dataclass(frozen=True, slots=True)
class _Form:
    """A record, and a call of a function that takes it."""

    record: Record
    schema: JsonSchema
    call: _Call

    @property
    def is_named(self) -> bool:
        """Whether the function's name contains the noun of the record."""
        return self.record.noun.split(" ")[0] in self.call.tool.name.lower()


def _form(words: Words) -> _Form:
    kind = words.rng.choices(list(_FORMS), list(_FORMS.values()))[0]
    record = (person.record if kind == "person" else KINDS[kind])(words)
    arranged = arrange(record.facts, words, words.chance(0.6), keep_spaces=False)
    tool = _form_tool(record.noun, arranged.schema, words)
    return _Form(record, arranged.schema, _Call(tool, arranged.answer))


def _saved(words: Words) -> Scene:
    """The result of a function that took a record."""
    drawn = _form(words)
    record, number = drawn.record, words.rng.randint(1, 999)
    returned = words.pick("saved", "ok", f"saved as number {number}", {"id": number}, number,
                          {"status": "ok"}, "done")  # fmt: skip
    save = Task(record.kind, (), (), (), record.text, returned, "Done, I have saved it.")
    request = words.pick(f"Extract the {record.noun} from: ", "", "Save this: ") + record.text
    turns = _exchange([save], [drawn.call], request)
    return _scene(turns, [drawn.call.tool], words, text=save.statement)


def _topics(tasks: Iterable[Task]) -> list[str]:
    return [each.topic for each in tasks]


def _tasks_and_request(words: Words) -> tuple[list[Task], str]:
    """One task or two, and a request for all of them."""
    first = task(words)
    if first.shared and words.chance(0.3):
        pair = [_without_optional(first), _without_optional(FUNCTIONS[first.topic](words))]
        values = [each.arguments[0].value for each in pair]
        if values[0] != values[1]:
            return pair, first.shared.format(" and ".join(values))
    if words.chance(0.12):
        second = task(words, first.topic)
        joined = words.pick("{} {}", "{} And then: {}", "{}\n{}")
        return [first, second], joined.format(first.request, second.request)
    return [first], first.request


def _without_optional(single: Task) -> Task:
    """The task without its optional arguments: a request shared by two tasks omits them."""
    arguments = tuple(
        replace(each, value=None) if each.optional else each for each in single.arguments
    )
    return replace(single, arguments=arguments)


def _calls_of(tasks: Sequence[Task], words: Words) -> list[_Call]:
    """The calls of the tasks. Two of the same topic have the same function."""
    seed = words.rng.random()
    calls = [_call_of(each, Words(random.Random(seed), words.split)) for each in tasks]
    assert len({each.tool.name for each in calls}) == len({each.topic for each in tasks})
    return calls


def _tool_for(single: Task, words: Words) -> FunctionTool:
    """A function that the task's request needs."""
    return _calls_of([single], words)[0].tool


def _call_of(single: Task, words: Words) -> _Call:
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
    return _Call(FunctionTool(name, about, schema_variant(schema, name, words)), arguments)


def _property(argument: Argument, described: bool, nullable: bool) -> JsonSchema:
    schema = argument.schema
    if argument.optional and nullable:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "description": argument.about} if described else dict(schema)


def _form_tool(noun: str, schema: JsonSchema, words: Words) -> FunctionTool:
    """A function that takes a record, named like a class or by its purpose."""
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
    return FunctionTool(name, about, schema_variant(schema, name, words))


def _with_other_tools(
    tools: Sequence[FunctionTool], words: Words, without: Iterable[str]
) -> list[FunctionTool]:
    """The tools, and up to two of topics not in `without`, in random order."""
    shown = {tool.name: tool for tool in tools}
    avoided = set(without)
    for _ in range(words.pick(0, 0, 1, 1, 2)):
        other = task(words, *avoided)
        avoided.add(other.topic)
        tool = _tool_for(other, words)
        shown.setdefault(tool.name, tool)
    order = list(shown.values())
    words.rng.shuffle(order)
    return order


def _exchange(tasks: Sequence[Task], calls: Sequence[_Call], request: str) -> list[Turn]:
    """The request, the calls, and their results."""
    ids = [f"call_{number}" for number in range(len(calls))]
    made = [
        {
            "id": id,
            "type": "function",
            "function": {
                "name": each.tool.name,
                "arguments": each.arguments,
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
    """The scene; if it has no system message, sometimes one is added."""
    if turns[0]["role"] != "system" and words.chance(0.3):
        turns = [{"role": "system", "content": words.pick(*_SYSTEMS)}, *turns]
    made = tuple((each.tool.name, each.arguments) for each in calls)
    return Scene(tuple(turns), tuple(tools), made, text or calls_as_text(made))
