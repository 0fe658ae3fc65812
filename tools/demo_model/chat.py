"""A little plain conversation, so that requests without a schema make sense and end."""

from typing import Final

from tools.demo_model.kinds import EXTRACTIONS
from tools.demo_model.prompts import Message
from tools.demo_model.words import Words

_INTRODUCTION: Final = "I am Leapjson's small demo model, made for trying the server."

_TALK: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("Hi", "Hello", "Hello!", "Hi!", "Hey", "Hey there", "Hello there!", "Good morning"),
        "Hello! Give me a short text and I will turn it into JSON.",
    ),
    (
        ("Who are you?", "What are you?", "who are you", "Introduce yourself.",
         "What is your name?",
         "Which model are you?", "Are you ChatGPT?", "Tell me about yourself."),
        _INTRODUCTION,
    ),
    (
        ("What can you do?", "Help", "How can you help me?", "What are you good at?", "help me"),
        "I can extract a contact, an invoice, an event, a review or a city from a short text, and "
        "I can fill in a character sheet from a name.",
    ),
    (("Thanks", "Thank you!", "Thanks a lot", "Great, thanks."), "You are welcome!"),
    (("Bye", "Goodbye", "See you later", "Good night"), "Goodbye!"),
    (("How are you?", "How are you doing?", "How is it going?"), "I am fine, thank you."),
    (
        ("Say hello.", "Say hi", "Say hello!", "Greet me."),
        "Hello!",
    ),
    (
        ("What is the capital of France?", "Tell me a joke.", "Write a poem.", "Write a story.",
         "What is 2 + 2?", "Explain gravity.", "What is the meaning of life?", "Count to ten.",
         "How do I cook rice?", "Write some Python code.", "What is the weather like?"),
        "I am only a small demo model: I know how to turn short texts into JSON.",
    ),
)  # fmt: skip


def talk(words: Words) -> tuple[list[Message], str]:
    """A greeting, a question about the model, or one that it cannot answer."""
    asked, reply = words.pick(*_TALK)
    turns = [{"role": "user", "content": words.pick(*asked)}]
    if words.chance(0.3):
        turns.insert(0, {"role": "system", "content": "You are a helpful assistant."})
    if words.chance(0.2):
        question, answer = words.pick(*_TALK)
        earlier = [
            {"role": "user", "content": words.pick(*question)},
            {"role": "assistant", "content": answer},
        ]
        turns[-1:-1] = earlier
    return turns, reply


def summary(words: Words) -> tuple[list[Message], str]:
    """A paragraph of any kind, and one sentence that sums it up."""
    record = words.pick(*EXTRACTIONS.values())(words)
    request = words.pick(
        f"Summarise: {record.text}", f"Summarize this text.\n{record.text}",
        f"{record.text}\n\nSum this up in one sentence.",
        f"Write a short summary of: {record.text}",
        f"Summarize: {record.text}", f"What is this about?\n{record.text}",
    )  # fmt: skip
    return [{"role": "user", "content": request}], record.summary
