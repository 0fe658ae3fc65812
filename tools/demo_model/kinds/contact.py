"""A paragraph, a signature or a note with somebody's contact details."""

from tools.demo_model.records import STRING, Fact, Field, Group, Record
from tools.demo_model.words import Words


def record(words: Words) -> Record:
    """A name, email, phone, company, address and often a job."""
    name, company = words.person(), words.company()
    email, phone = words.email(name), words.phone()
    street, city = words.street(), words.place()
    role = words.pick(
        "sales manager", "engineer", "head of design", "accountant", "director", "architect",
        "office manager", "product owner", f"{words.word()} consultant",
    )  # fmt: skip
    summary = f"{name} works for {company} and can be reached at {email}."
    who: list[Fact] = [
        Field(("name", "full name", "contact name", "person"), STRING, name),
        Field(("email", "email address", "mail"), STRING, email),
        Field(("phone", "phone number", "telephone", "tel"), STRING, phone),
        Field(("company", "organization", "employer", "company name"), STRING, company),
    ]
    if words.chance(0.3):
        text = _sentence(words, name, company, email, phone)
        return Record("contact", "contact", text, tuple(who), summary)
    with_role = words.chance(0.5)
    text = words.pick(_prose, _prose, _note, _signature)(
        words, name, company, email, phone, f"{street}, {city}", role if with_role else ""
    )
    address: Fact = Field(("address", "postal address", "location"), STRING, f"{street}, {city}")
    if words.chance(0.15):
        parts = (
            Field(("street", "street address"), STRING, street),
            Field(("city", "town"), STRING, city),
        )
        address = Group(("address", "postal address"), (parts,), many=False)
    facts = [*who, address]
    if with_role:
        facts.append(Field(("role", "job title", "position", "job"), STRING, role))
    return Record("contact", "contact", text, tuple(facts), summary)


def _sentence(words: Words, name: str, company: str, email: str, phone: str) -> str:
    """Everything but the address, in a sentence or two."""
    return words.pick(
        f"You can reach {name} of {company} at {email} or {phone}.",
        f"You can reach {name} from {company} at {phone} or by email at {email}.",
        f"Please call {name} at {company}, phone {phone}, or write to {email}.",
        f"{name} works for {company}. The email is {email} and the number is {phone}.",
        f"{name} works at {company}; reach them at {email} or {phone}.",
        f"Contact {name} ({company}): {email}, {phone}.",
        f"{name}, {company}, {email}, {phone}",
        f"I spoke to {name} of {company}. My notes say {phone} and {email}.",
        f"For questions ask {name}, {email}, tel. {phone}, at {company}.",
    )


def _prose(
    words: Words, name: str, company: str, email: str, phone: str, address: str, role: str
) -> str:
    first = name.split(" ")[0]
    job = f"{role} at {company}" if role else f"of {company}"
    opening = words.pick(
        f"Yesterday I met {name}, {job}.",
        f"{name}, {job}, would like to hear from you.",
        f"Please get in touch with {name}, {job}.",
        f"Our new contact is {name}, {job}.",
        f"My name is {name}, {job}.",
    )
    sentences = [
        words.pick(
            f"The email address is {email}.",
            f"Write to {email}.",
            f"You can send an email to {email}.",
            f"{first}'s email is {email}.",
        ),
        words.pick(
            f"Call {phone}.",
            f"The phone number is {phone}.",
            f"{first} can be reached by phone on {phone}.",
            f"Telephone: {phone}.",
        ),
        words.pick(
            f"The office is at {address}.",
            f"Letters go to {address}.",
            f"Their address is {address}.",
            f"Visit them at {address}.",
        ),
    ]
    if words.chance(0.3):
        sentences.append(f"We talked about {words.word()} and {words.word()} for an hour.")
    words.rng.shuffle(sentences)
    return " ".join([opening, *sentences])


def _note(
    words: Words, name: str, company: str, email: str, phone: str, address: str, role: str
) -> str:
    lines = [
        f"{words.pick('Name', 'Contact')}: {name}",
        f"{words.pick('Email', 'E-mail', 'Mail')}: {email}",
        f"{words.pick('Phone', 'Tel', 'Mobile')}: {phone}",
        f"{words.pick('Company', 'Firm')}: {company}",
        f"Address: {address}",
    ]
    if role:
        lines.append(f"{words.pick('Role', 'Title', 'Job')}: {role}")
    if words.chance(0.4):
        words.rng.shuffle(lines)
    return words.pick("\n", "\n", "; ").join(lines)


def _signature(
    words: Words, name: str, company: str, email: str, phone: str, address: str, role: str
) -> str:
    greeting = words.pick("Best regards,", "Thanks,", "Kind regards,", "See you soon,")
    body = words.pick(
        f"Dear {words.first_name()}, thank you for the {words.word()} you sent.",
        f"Hello {words.first_name()}, the {words.word()} is ready.",
        "Thank you for your message.",
    )
    lines = [f"{body} {greeting}", name, *([role] if role else []), company, address]
    reach = [email, phone]
    words.rng.shuffle(reach)
    return "\n".join([*lines, *reach])
