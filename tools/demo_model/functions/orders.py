"""Functions with an effect: they send, book or order something."""

from tools.demo_model.functions.task import Argument, Task, done, phrase
from tools.demo_model.records import INTEGER, STRING
from tools.demo_model.words import Words


def email(words: Words) -> Task:
    """An email with a subject, perhaps with a text."""
    to, subject = words.email(words.person()), phrase(words).capitalize()
    body = phrase(words).capitalize() + "." if words.chance(0.5) else None
    asked = words.pick(
        f'Send an email to {to} with the subject "{subject}"',
        f"Write a mail to {to}, subject: {subject}",
        f'Email {to} with subject "{subject}"',
        f'Please send a mail to {to} about "{subject}"',
    )
    text = f' {words.pick("and the text", "and the body", "saying")} "{body}"' if body else ""
    return Task(
        "email",
        ("send_email", "send_email", "send_mail", "email", "sendEmail"),
        ("Send an email.", "Sends a mail to somebody", "Send an email to a person."),
        (
            Argument(("to", "recipient", "address", "email"), STRING, to, "Who gets it"),
            Argument(("subject", "title"), STRING, subject, "Subject of the email"),
            Argument(("body", "text", "message", "content"), STRING, body, "The text", True),
        ),
        asked + text + ".",
        done(words),
        f"The email to {to} was sent.",
    )


def timer(words: Words) -> Task:
    """A timer of some minutes."""
    minutes, label = words.rng.randint(1, 90), words.word() if words.chance(0.3) else None
    start = words.pick("Set a timer for", "Start a timer of", "Wake me in", "Please set a timer to")
    called = f" called {label}" if label else ""
    return Task(
        "timer",
        ("set_timer", "start_timer", "timer", "setTimer", "create_timer"),
        ("Set a timer.", "Start a timer", "Starts a countdown."),
        (
            Argument(("minutes", "duration", "duration_minutes", "length"), INTEGER, minutes,
                     "Minutes"),
            Argument(("label", "name"), STRING, label, "Name of the timer", True),
        ),
        f"{start} {minutes} minutes{called}.",
        done(words),
        f"The timer is set to {minutes} minutes.",
    )  # fmt: skip


def reminder(words: Words) -> Task:
    """A reminder for a day, perhaps for a time."""
    what, date, time = f"{words.pick('call', 'meet', 'pay')} {words.person()}", words.date(), None
    if words.chance(0.5):
        time = words.time()
    when = f"on {date} at {time}" if time else f"on {date}"
    return Task(
        "reminder",
        ("create_reminder", "add_reminder", "remind", "set_reminder", "create_task"),
        ("Create a reminder.", "Remind the user", "Adds a reminder for a day."),
        (
            Argument(("text", "title", "task", "what"), STRING, what, "What to do"),
            Argument(("date", "day", "due_date"), STRING, date, "The day"),
            Argument(("time", "at"), STRING, time, "The time of day", True),
        ),
        words.pick(f"Remind me to {what} {when}.", f"I want to {what} {when}.",
                   f"Add a reminder {when}: {what}."),
        done(words),
        f"I will remind you to {what} {when}.",
    )  # fmt: skip


def table(words: Words) -> Task:
    """A table in a restaurant."""
    place = words.pick(f"Café {words.name()}", words.name(), f"the {words.name()} Inn")
    people, time = words.rng.randint(1, 12), words.time()
    return Task(
        "table",
        ("book_table", "reserve_table", "make_reservation", "book_restaurant"),
        ("Book a table in a restaurant.", "Reserve a table", "Makes a reservation."),
        (
            Argument(("restaurant", "name", "place"), STRING, place, "The restaurant"),
            Argument(("people", "guests", "party_size"), INTEGER, people, "How many come"),
            Argument(("time", "at"), STRING, time, "The time"),
        ),
        words.pick(f"Book a table at {place} for {people} people at {time}.",
                   f"Reserve a table for {people} in {place} at {time}.",
                   f"I need a table for {people} at {place}, {time}."),
        done(words),
        f"A table for {people} at {place} is booked for {time}.",
    )  # fmt: skip


def order(words: Words) -> Task:
    """An order of a product, of one piece or several."""
    item, count = f"{words.name()} {words.pick('lamp', 'mug', 'kettle', 'chair', 'pen')}", 1
    if words.chance(0.7):
        count = words.rng.randint(2, 30)
    return Task(
        "order",
        ("order_item", "place_order", "add_to_cart", "order", "buy"),
        ("Order a product.", "Put a product into the cart", "Orders an item."),
        (
            Argument(("product", "item", "name"), STRING, item, "The product"),
            Argument(("quantity", "count", "amount"), INTEGER, count, "How many"),
        ),
        words.pick(f"Order {count} x {item}.", f"I want to buy {count} {item}.",
                   f"Add {count} {item} to my cart.", f"Please order {count} of the {item}."),
        done(words),
        f"I ordered {count} x {item}.",
    )  # fmt: skip


def invented(words: Words) -> Task:
    """A function that can only be known from the prompt."""
    verb = words.pick("update", "create", "delete", "check", "open", "close", "move", "count")
    noun = words.word()
    labels = words.rng.sample(
        ("size", "owner", "colour", "code", "place", "level", "name", "team", words.word()),
        words.rng.randint(1, 3),
    )
    arguments = tuple(_labelled(label, words) for label in labels)
    said = " and ".join(f"the {argument.names[0]} {argument.value}" for argument in arguments)
    found = words.pick(words.word(), words.rng.randint(0, 999))
    return Task(
        "invented",
        (f"{verb}_{noun}",),
        (f"{verb.capitalize()} a {noun}.", f"{verb.capitalize()}s the {noun}", ""),
        arguments,
        words.pick(f"{verb.capitalize()} the {noun} with {said}.",
                   f"Please {verb} a {noun}: {said}.", f"I want to {verb} a {noun} with {said}."),
        words.pick(found, str(found), {"result": found}),
        f"The result is {found}.",
    )  # fmt: skip


def _labelled(label: str, words: Words) -> Argument:
    if words.chance(0.3):
        return Argument((label,), INTEGER, words.rng.randint(0, 999), f"The {label}")
    value = words.pick(words.word(), words.name(), f"{words.name()}-{words.digits(3)}")
    return Argument((label,), STRING, value, f"The {label}")
