"""Functions that look something up."""

from typing import Final

from tools.demo_model.functions.task import Argument, Task, phrase
from tools.demo_model.records import INTEGER, STRING
from tools.demo_model.words import Words, split_of

_CITIES: Final = (
    "Amsterdam Athens Berlin Bern Boston Cairo Chicago Copenhagen Delhi Dublin Geneva Hamburg "
    "Helsinki Istanbul Lima Lisbon London Madrid Milan Munich Nairobi Oslo Paris Prague Rome "
    "Seattle Seoul Singapore Stockholm Sydney Tokyo Toronto Vienna Warsaw Zurich"
)
_LONG_CITIES: Final = (
    "San Francisco", "New York", "Los Angeles", "Hong Kong", "Buenos Aires", "Cape Town",
    "Mexico City", "Rio de Janeiro", "San Diego", "Las Vegas", "Tel Aviv", "New Delhi",
)  # fmt: skip
_SKIES: Final = ("sunny", "cloudy", "rainy", "windy", "foggy", "clear", "snowy")
_LANGUAGES: Final = ("French", "German", "Spanish", "Italian", "Dutch", "Greek", "Polish")


def weather(words: Words) -> Task:
    """The weather in a city, perhaps in a unit."""
    city, unit = _city(words), words.pick("celsius", "fahrenheit") if words.chance(0.25) else None
    degrees, sky = words.rng.randint(-9, 38), words.pick(*_SKIES)
    now = words.pick("today", "now", "right now", "this week")
    request = words.pick(
        f"What is the weather in {city}", f"What's the weather like in {city}",
        f"How is the weather in {city}",
        f"What is the weather like in {city} {now}",
        f"What is the temperature in {city}",
        f"Tell me the weather in {city}", f"Weather in {city}", f"Is it warm in {city}",
    )  # fmt: skip
    mark = "" if request.startswith("Weather") else "." if request.startswith("Tell") else "?"
    asked = f"{request}{f' in {unit}' if unit else ''}{mark}"
    heat = words.pick("temperature", "temp", "degrees", "temperature_c")
    state = words.pick("condition", "conditions", "sky", "description", "weather")
    both = f"{degrees} degrees and {sky}"
    result, said = words.pick(
        (both, both),
        ({heat: degrees, state: sky}, both),
        ({words.pick("city", "location"): city, heat: degrees, state: sky}, both),
        (f"{sky}, {degrees} degrees", both), (f"{degrees}°C, {sky}", both),
        (sky, sky), ({heat: degrees}, f"{degrees} degrees"),
    )  # fmt: skip
    return Task(
        "weather",
        ("get_weather", "get_weather", "get_current_weather", "weather", "fetchWeather"),
        ("Get the weather in a city.", "Get the current weather", "Current weather of a place",
         "Returns the weather for a location."),
        (
            Argument(("city", "location", "place", "city_name"), STRING, city, "The city"),
            Argument(("unit", "units"), {"type": "string", "enum": ["celsius", "fahrenheit"]},
                     unit, "Unit of the temperature", optional=True),
        ),
        asked,
        result,
        f"It is {said} in {city}.",
        "What is the weather in {}?",
    )  # fmt: skip


def time(words: Words) -> Task:
    """The time in a city."""
    city, now = _city(words), f"{words.rng.randint(0, 23):02}:{words.rng.randint(0, 59):02}"
    return Task(
        "time",
        ("get_time", "get_current_time", "current_time", "getTime", "time_in"),
        ("Get the current time in a city.", "Current local time", "Returns the time of a place."),
        (Argument(("city", "location", "place", "timezone"), STRING, city, "Where"),),
        words.pick(f"What time is it in {city}?", f"What is the time in {city}?",
                   f"Tell me the time in {city}.", f"How late is it in {city}?"),
        words.pick(now, {"time": now}, {"city": city, "time": now}),
        f"It is {now} in {city}.",
        "What time is it in {}?",
    )  # fmt: skip


def search(words: Words) -> Task:
    """A search for a few words."""
    query, found = phrase(words), f"{words.name()} {phrase(words)}"
    return Task(
        "search",
        ("search", "search", "web_search", "search_web", "lookup", "search_docs"),
        ("Search the web.", "Search for a text", "Finds pages.", "Search the documents."),
        (
            Argument(("query", "query", "q", "text", "term"), STRING, query, "What to look for"),
            Argument(("limit", "max_results", "count"), INTEGER, None, "How many results", True),
        ),
        words.pick(f"Search for {query}.", f"Look up {query}.", f"Search the web for {query}",
                   f"Find pages about {query}.", f'Search "{query}".', f"Google {query}."),
        words.pick(found, [found], {"results": [found]}, {"title": found}),
        f"I found this: {found}.",
    )  # fmt: skip


def price(words: Words) -> Task:
    """The price of a share."""
    symbol = words.word().upper()[:4] if words.chance(0.6) else words.company()
    price = round(words.rng.uniform(1, 900), 2)
    return Task(
        "price",
        ("get_stock_price", "stock_price", "get_price", "get_quote", "getPrice"),
        ("Get the price of a share.", "Current stock price", "Returns a quote."),
        (Argument(("symbol", "ticker", "stock", "company"), STRING, symbol, "The share"),),
        words.pick(f"What is the price of {symbol}?", f"How much is {symbol}?",
                   f"What is the stock price of {symbol}?", f"Get the price of {symbol}."),
        words.pick(price, str(price), {"price": price}, {"symbol": symbol, "price": price}),
        f"The price of {symbol} is {price}.",
        "What is the price of {}?",
    )  # fmt: skip


def tracking(words: Words) -> Task:
    """The status of an order."""
    number = words.pick(
        f"{words.pick(*'ABCDEFGHKLMNPRSTVWXZ')}-{words.digits(5)}", words.digits(6),
        f"ORD-{words.digits(4)}",
    )  # fmt: skip
    state = words.pick("shipped", "delivered", "packed", "late", "lost", "on the way")
    return Task(
        "tracking",
        ("get_order", "order_status", "track_order", "get_order_status", "track_parcel"),
        ("Get the status of an order.", "Where an order is", "Looks up an order."),
        (Argument(("order_id", "id", "number", "order_number"), STRING, number, "The order"),),
        words.pick(f"Where is my order {number}?", f"What is the status of order {number}?",
                   f"Track order {number}.", f"Has {number} been shipped?"),
        words.pick(state, {"status": state}, {"id": number, "status": state}),
        f"The order {number} is {state}.",
    )  # fmt: skip


def translation(words: Words) -> Task:
    """A few words in another language."""
    text, language, found = phrase(words), words.pick(*_LANGUAGES), phrase(words)
    return Task(
        "translation",
        ("translate", "translate", "translate_text", "translation"),
        ("Translate a text.", "Translates into another language"),
        (
            Argument(("text", "phrase", "sentence"), STRING, text, "What to translate"),
            Argument(("language", "target_language", "to"), STRING, language, "The language"),
        ),
        words.pick(f'Translate "{text}" to {language}.', f'What is "{text}" in {language}?',
                   f'How do you say "{text}" in {language}?', f"Translate into {language}: {text}"),
        words.pick(found, {"translation": found}),
        f'In {language} it is "{found}".',
    )  # fmt: skip


def person(words: Words) -> Task:
    """A telephone number by a name."""
    name, phone = words.person(), words.phone()
    return Task(
        "person",
        ("find_contact", "get_contact", "lookup_person", "get_phone_number", "find_user"),
        ("Find a person in the address book.", "Look up a contact by name", "Finds a user."),
        (Argument(("name", "person", "full_name", "user"), STRING, name, "Who"),),
        words.pick(f"What is the number of {name}?", f"Find the phone number of {name}.",
                   f"How can I call {name}?", f"Look up {name}."),
        words.pick(phone, {"phone": phone}, {"name": name, "phone": phone}),
        f"The number of {name} is {phone}.",
    )  # fmt: skip


def listing(words: Words) -> Task:
    """A list, by a function without parameters."""
    what = words.pick("contacts", "orders", "files", "tasks", words.word() + "s")
    found = ", ".join(words.name() for _ in range(words.rng.randint(1, 3)))
    return Task(
        "listing",
        (f"list_{what}", f"get_{what}", f"all_{what}", f"show_{what}"),
        (f"List the {what}.", f"Returns all {what}", ""),
        (),
        words.pick(f"List my {what}.", f"Show all {what}.", f"Which {what} are there?"),
        words.pick(found, found.split(", "), {what: found}),
        f"The {what} are {found}.",
    )


def _city(words: Words) -> str:
    known = [city for city in (*_CITIES.split(), *_LONG_CITIES) if split_of(city) == words.split]
    return words.pick(*known) if words.chance(0.4) else words.place()
