"""A customer's review of a product."""

from typing import Final

from tools.demo_model.records import BOOLEAN, INTEGER, STRING, STRINGS, Fact, Field, Record
from tools.demo_model.words import Words, listing

_SENTIMENTS: Final = {1: "negative", 2: "negative", 3: "neutral", 4: "positive", 5: "positive"}
_GOOD: Final = ("sturdy", "quiet", "bright", "fast", "soft", "light", "clever", "long", "lovely")
_BAD: Final = ("loose", "noisy", "dim", "slow", "rough", "heavy", "fragile", "short", "ugly")
_PARTS: Final = (
    "hinge", "motor", "screen", "battery", "handle", "lid", "cable", "fabric", "manual", "box",
    "colour", "sound",
)  # fmt: skip


def record(words: Words) -> Record:
    """A product, rating, sentiment, pros, cons and whether the purchase is verified."""
    product, rating, verified = _product(words), words.rng.randint(1, 5), words.chance(0.5)
    sentiment = _SENTIMENTS[rating]
    pros = [_feature(words, _GOOD) for _ in range(words.rng.randint(0 if rating < 3 else 1, 3))]
    cons = [_feature(words, _BAD) for _ in range(words.rng.randint(0 if rating > 3 else 1, 3))]
    feeling = {
        "positive": words.pick("I love it.", "A great buy.", "Very happy with it!", "Excellent."),
        "negative": words.pick("I regret it.", "A waste of money.", "Very disappointed.", "Bad."),
        "neutral": words.pick(
            "It is okay.", "Neither good nor bad.", "Average.", "It does the job."
        ),
    }[sentiment]
    stars = words.pick(
        f"{rating} out of 5 stars.", f"Rating: {rating}/5.", f"I give it {rating} stars.",
        f"{rating} of 5.", f"{rating} stars.",
    )  # fmt: skip
    sentences = [feeling, stars]
    if pros:
        sentences.append(words.pick("I liked the {}.", "Pros: {}.", "Good: {}.", "It has a {}.")
                         .format(listing(pros)))  # fmt: skip
    if cons:
        sentences.append(words.pick("I disliked the {}.", "Cons: {}.", "Bad: {}.",
                                    "On the downside, a {}.").format(listing(cons)))  # fmt: skip
    opening = words.pick(
        f"I bought the {product} last month.", f"Review of the {product}.", f"Product: {product}.",
        f"The {product} arrived on Monday.", f"We have used the {product} for a while.",
    )  # fmt: skip
    proof = (
        ("Verified purchase.", "Verified buyer.") if verified else ("Not a verified purchase.", "")
    )
    name = words.person()
    facts: list[Fact] = [
        Field(("product", "product name", "item", "name"), STRING, product),
        Field(("rating", "stars", "score"), INTEGER, rating),
        Field(("sentiment", "feeling"), _enum(words), sentiment),
        Field(("pros", "positives", "advantages"), STRINGS, pros),
        Field(("cons", "negatives", "disadvantages"), STRINGS, cons),
        Field(("verified", "verified purchase", "is verified"), BOOLEAN, verified),
    ]
    if words.chance(0.3):
        sentences.append(words.pick(f"Written by {name}.", f"Reviewer: {name}.", f"- {name}"))
        facts.append(Field(("reviewer", "author", "reviewer name"), STRING, name))
    text = " ".join(part for part in [opening, *sentences, words.pick(*proof)] if part)
    return Record("review", "review", text, tuple(facts), f"A {sentiment} review of the {product}.")


def _enum(words: Words) -> dict[str, object]:
    values = ["positive", "negative", "neutral"]
    if words.chance(0.5):
        words.rng.shuffle(values)
    return {"type": "string", "enum": values}


def _product(words: Words) -> str:
    kind = words.pick(
        "kettle", "headphones", "Backpack", "Blender", "desk lamp", "Phone", "tent", "Keyboard",
        "coffee maker", "vacuum", "Watch",
    )  # fmt: skip
    return words.pick(
        f"{words.name()} {kind}", f"{words.name()} {words.digits(3)}", f"{words.name()} {kind}",
        f"{words.name()} {words.pick('X', 'Pro', 'Mini')}{words.rng.randint(1, 9)} {kind}",
    )  # fmt: skip


def _feature(words: Words, qualities: tuple[str, ...]) -> str:
    part = words.pick(*_PARTS) if words.chance(0.7) else words.word()
    return f"{words.pick(*qualities)} {part}"
