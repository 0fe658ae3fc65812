"""A paragraph about an invented city."""

from tools.demo_model.records import INTEGER, NUMBER, STRING, Fact, Field, Record
from tools.demo_model.words import Words, listing


def record(words: Words) -> Record:
    """A city's name, country, latitude, population and landmarks, and some optional facts."""
    rng = words.rng
    name, country = words.place(), words.place()
    latitude = round(rng.uniform(-60, 70), words.pick(1, 2, 2, 2, 3, 4))
    population = rng.randint(9_000, 99_000) if words.chance(0.3) else rng.randint(10**5, 2 * 10**7)
    landmarks = [_landmark(words) for _ in range(3)]
    opening = words.pick(
        f"{name} is a city in {country}.",
        f"{name} is the capital of {country}.",
        f"{name}, in the country of {country}, is a well-known city.",
        f"The city of {name} lies in the north of {country}.",
        f"{name} ({country}) is an old harbour town.",
        f"Welcome to {name}, the largest city of {country}.",
    )
    people = words.pick(f"{population:,}", f"{population:,}", str(population))
    sentences = [
        words.pick(
            f"It lies at a latitude of {latitude}.",
            f"Its latitude is {latitude}.",
            f"The city lies at latitude {latitude} degrees.",
            f"Latitude: {latitude}°.",
            f"It is found at {latitude}° of latitude.",
        ),
        words.pick(
            f"It has a population of {people}.",
            f"About {people} people live there.",
            f"Its {people} inhabitants call it home.",
            f"The population was {people} at the last count.",
            f"Population: {people}.",
        ),
        words.pick(
            f"Visitors come for {listing(landmarks)}.",
            f"Its landmarks are {listing(landmarks)}.",
            f"The top sights are {listing(landmarks)}.",
            f"Famous landmarks include {listing(landmarks)}.",
            f"Do not miss {listing(landmarks)}.",
        ),
    ]
    facts: list[Fact] = [
        Field(("name", "city", "city name"), STRING, name),
        Field(("country", "country name", "nation"), STRING, country),
        Field(("latitude", "lat"), NUMBER, latitude),
        Field(("population", "inhabitants", "number of people"), INTEGER, population),
        Field(
            ("top 3 landmarks", "landmarks", "sights", "top landmarks"),
            {"type": "array", "items": STRING, "minItems": 3, "maxItems": 3},
            landmarks,
        ),
    ]
    for sentence, fact in _extras(words):
        sentences.append(sentence)
        facts.append(fact)
    rng.shuffle(sentences)
    summary = f"{name} is a city in {country} with {people} inhabitants."
    return Record("city", "city", " ".join([opening, *sentences]), tuple(facts), summary)


def _landmark(words: Words) -> str:
    kind = words.pick(
        "Tower", "Museum", "Bridge", "Cathedral", "Palace", "Market", "Garden", "Castle", "Square",
        "Temple", "Harbour", "Gate",
    )  # fmt: skip
    return words.pick(
        f"{words.name()} {kind}", f"{words.name()} {kind}", f"the {words.name()} {kind}",
        f"{kind} of {words.name()}", f"{words.name()} {words.name()} {kind}",
    )  # fmt: skip


def _extras(words: Words) -> list[tuple[str, Field]]:
    """Facts that only some paragraphs have."""
    mayor, river, founded = words.person(), words.name(), words.rng.randint(700, 1990)
    language, symbol = words.name(), words.word()
    extras = [
        (
            words.pick(f"Its mayor is {mayor}.", f"The mayor, {mayor}, was elected last year."),
            Field(("mayor", "mayor name"), STRING, mayor),
        ),
        (
            words.pick(f"The river {river} runs through it.", f"It stands on the {river} river."),
            Field(("river",), STRING, river),
        ),
        (
            words.pick(f"It was founded in {founded}.", f"The city dates from {founded}."),
            Field(("founded", "founding year", "year founded"), INTEGER, founded),
        ),
        (f"People speak {language} there.", Field(("language",), STRING, language)),
        (f"The symbol of the city is a {symbol}.", Field(("symbol",), STRING, symbol)),
    ]
    return [extra for extra in extras if words.chance(0.2)]
