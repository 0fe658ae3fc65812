/** Example requests. The demo models only know their own tasks (app/demo/README.md). */

import { computed, type ReadonlySignal } from "@preact/signals";

import { model, seesImages, type ConstraintKind } from "../state";

export interface Example {
  id: string;
  label: string;
  prompt: string;
  system?: string;
  kind: ConstraintKind;
  /** The constraint: a JSON Schema, a regular expression, or a grammar. */
  constraint: unknown;
  confidence?: boolean;
  /** The models that it is for; all by default. */
  suits?: "demo" | "others";
  /** The user has to add pictures; it is only shown if the model accepts images. */
  seen?: true;
}

const text = { type: "string" };

export const EXAMPLES: readonly Example[] = [
  {
    id: "contact",
    label: "Contact from a note",
    prompt:
      "Extract the contact from: Daniel Okafor works for Northwind Traders. His email is daniel@northwind.org and his number is (212) 555-0187.",
    kind: "schema",
    constraint: {
      title: "Contact",
      type: "object",
      properties: { name: text, email: { type: "string", format: "email" }, phone: text, company: text },
      required: ["name", "email", "phone", "company"],
    },
  },
  {
    id: "review",
    suits: "demo",
    label: "Review with confidence",
    prompt:
      "Extract the review from: I bought the Greenford lamp last week. Bad. 2 stars. It has a weak battery and a noisy screen. Verified buyer.",
    kind: "schema",
    constraint: {
      title: "Review",
      type: "object",
      properties: {
        product: { type: "string", "x-verbatim": "words", minLength: 1 },
        rating: { type: "integer", minimum: 1, maximum: 5 },
        sentiment: { enum: ["positive", "negative", "neutral"] },
        cons: { type: "array", items: { type: "string", maxLength: 40 }, maxItems: 4 },
        verified: { type: "boolean" },
      },
      required: ["product", "rating", "sentiment", "cons", "verified"],
    },
    confidence: true,
  },
  {
    id: "invoice",
    suits: "demo",
    label: "Invoice with its items",
    prompt:
      "Extract the invoice from: Invoice INV-2041 of 2026-03-14 from Brightwater Supplies: 3 desk lamps at $24.50 each, 2 office chairs at $129.00 each. Total due: $331.50.",
    kind: "schema",
    constraint: {
      title: "Invoice",
      type: "object",
      properties: {
        number: { type: "string", maxLength: 20 },
        date: { type: "string", format: "date" },
        vendor: { type: "string", maxLength: 60 },
        items: { type: "array", items: { $ref: "#/$defs/Item" }, maxItems: 5 },
        total: { type: "number", minimum: 0 },
        currency: { enum: ["USD", "EUR", "GBP"] },
      },
      required: ["number", "date", "vendor", "items", "total", "currency"],
      $defs: {
        Item: {
          title: "Item",
          type: "object",
          properties: {
            description: { type: "string", maxLength: 40 },
            quantity: { type: "integer", minimum: 1, maximum: 999 },
            price: { type: "number", minimum: 0 },
          },
          required: ["description", "quantity", "price"],
        },
      },
    },
  },
  {
    id: "event",
    suits: "demo",
    label: "Event from an invitation",
    prompt:
      "Extract the event from: You are invited to the Spring Concert on 2026-04-18 at 19:30 in the Riverside Hall. Anna Keller and Tom Brandt will be there.",
    kind: "schema",
    constraint: {
      title: "Event",
      type: "object",
      properties: {
        title: { type: "string", maxLength: 60 },
        date: { type: "string", maxLength: 20 },
        time: { type: "string", maxLength: 10 },
        location: { type: "string", maxLength: 60 },
        attendees: { type: "array", items: { type: "string", maxLength: 40 }, maxItems: 4 },
      },
      required: ["title", "date", "time", "location", "attendees"],
    },
  },
  {
    id: "character",
    suits: "demo",
    label: "A character, made up",
    prompt: "Create a character sheet for Rowan Ashdown.",
    kind: "schema",
    constraint: {
      title: "Character",
      type: "object",
      properties: {
        name: { type: "string", maxLength: 40 },
        house: { enum: ["Gryffindor", "Hufflepuff", "Ravenclaw", "Slytherin"] },
        blood_status: { enum: ["Pure-blood", "Half-blood", "Muggle-born"] },
        occupation: { type: "string", maxLength: 40 },
        wand: {
          title: "Wand",
          type: "object",
          properties: { wood: { type: "string", maxLength: 20 }, core: { type: "string", maxLength: 30 }, length: { type: "number", minimum: 5, maximum: 20 } },
          required: ["wood", "core", "length"],
        },
        alive: { type: "boolean" },
        patronus: { type: "string", maxLength: 20 },
      },
      required: ["name", "house", "blood_status", "occupation", "wand", "alive", "patronus"],
    },
  },
  {
    id: "card",
    label: "A card in a picture (docs/images/card.png)",
    prompt: "Read this card.",
    kind: "schema",
    seen: true,
    constraint: {
      title: "Card",
      type: "object",
      properties: {
        name: text,
        house: text,
        level: { type: "integer" },
        wand: { type: "object", properties: { wood: text, core: text }, required: ["wood", "core"] },
      },
      required: ["name", "house", "level", "wand"],
    },
  },
  {
    id: "phone",
    suits: "demo",
    label: "A regular expression: a phone number",
    prompt: "Extract the phone from: Mina Park, Acme Labs, mina@acme.example, (415) 555-0132.",
    kind: "regex",
    constraint: String.raw`\{"phone": "\(\d{3}\) \d{3}-\d{4}"\}`,
  },
  {
    id: "grammar",
    suits: "demo",
    label: "A Lark grammar: a verdict in a sentence",
    prompt: "Extract the review from: I love the Nordlicht kettle. 5 stars. Great handle.",
    kind: "grammar",
    constraint: `start: "The review is " verdict ", with " stars "."
verdict: "good" | "bad" | "mixed"
stars: /[1-5]/ (" star" | " stars")
`,
  },
  {
    id: "sentiment",
    suits: "others",
    label: "Review with confidence",
    prompt: "Is this review positive or negative? The battery died after two days and nobody answers my mails.",
    kind: "schema",
    constraint: { title: "Review", type: "object", properties: { sentiment: { enum: ["positive", "negative"] } }, required: ["sentiment"] },
    confidence: true,
  },
  {
    id: "order",
    suits: "others",
    label: "Order, quoted from a mail",
    prompt: "Extract the order from: Please send 3 desk lamps and 2 office chairs to Maria Lopez in Madrid.",
    kind: "schema",
    constraint: {
      title: "Order",
      type: "object",
      properties: {
        customer: { type: "string", "x-verbatim": "words", minLength: 1 },
        city: { type: "string", "x-verbatim": "words", minLength: 1 },
        items: { type: "array", items: { $ref: "#/$defs/Item" }, minItems: 1, maxItems: 2 },
      },
      required: ["customer", "city", "items"],
      $defs: {
        Item: {
          title: "Item",
          type: "object",
          properties: { product: { type: "string", "x-verbatim": "words", minLength: 1 }, quantity: { type: "integer", minimum: 1, maximum: 99 } },
          required: ["product", "quantity"],
        },
      },
    },
  },
  {
    id: "place",
    suits: "others",
    label: "A question, answered as JSON",
    prompt: "Describe the Sahara in one sentence, and say on which continent it is.",
    kind: "schema",
    constraint: {
      title: "Place",
      type: "object",
      properties: {
        description: { type: "string", maxLength: 160 },
        continent: { enum: ["Africa", "Antarctica", "Asia", "Australia", "Europe", "North America", "South America"] },
      },
      required: ["description", "continent"],
    },
  },
  {
    id: "prose",
    suits: "others",
    label: "A question, answered in prose",
    prompt: "What is the capital of Italy?",
    kind: "none",
    constraint: null,
  },
  {
    id: "because",
    suits: "others",
    label: "A regular expression: yes or no, and why",
    prompt: "Can penguins fly?",
    kind: "regex",
    constraint: "The answer is (yes|no), because [a-zA-Z ,']{10,80}\\.",
  },
  {
    id: "sides",
    suits: "others",
    label: "A Lark grammar: pros and cons",
    prompt: "What are pros and cons of working from home?",
    kind: "grammar",
    constraint: `start: "Pros: " item ", " item ". Cons: " item ", " item "."
item: /[a-z][a-z ]{3,30}[a-z]/
`,
  },
];

/** The examples for the chosen model. */
export const examples: ReadonlySignal<readonly Example[]> = computed(() => {
  const others = /^(leapjson-demo|$)/.test(model.value) ? "others" : "demo";
  return EXAMPLES.filter(({ suits, seen }) => suits !== others && (!seen || seesImages.value));
});
