// What Node's scripts share: checks that report one JSON line each, and what they ask for.

import { readFileSync } from "node:fs";

export const BASE_URL = process.env.BASE_URL; // with /v1 at its end
export const MODEL = process.env.MODEL;
// A file with the card below, where the server's model sees: the checks of images are for it alone.
const PICTURE = process.env.PICTURE;
const SECONDS = 90;

export const CONTACT_TEXT =
  "Extract the contact from: Daniel Okafor works for Northwind Traders. " +
  "His email is daniel@northwind.org and his number is (212) 555-0187.";
export const REVIEW_TEXT =
  "Extract the review from: I bought the Greenford lamp last week. Bad. 2 stars. " +
  "It has a weak battery and a noisy screen. Verified buyer.";
export const CARD_TEXT = "Read this card.";
export const CARD = {
  name: "George Skouyea",
  house: "Queajei",
  level: 40,
  wand: { wood: "beech", core: "wolf" },
};
export const CONTACT = [{ role: "user", content: CONTACT_TEXT }];
export const REVIEW = [{ role: "user", content: REVIEW_TEXT }];
// Valid, and refused with a 400: that an item is there twice cannot be enforced.
export const UNSUPPORTED_SCHEMA = {
  type: "object",
  properties: { numbers: { type: "array", items: { type: "integer" }, not: { uniqueItems: true } } },
  required: ["numbers"],
  additionalProperties: false,
};

export const pictureBytes = () => readFileSync(PICTURE);
export const pictureBase64 = () => readFileSync(PICTURE, "base64");
export const pictureUrl = () => `data:image/png;base64,${pictureBase64()}`;

const checks = [];

/** Registers a check of `feature`; it passes if it returns, and a text it returns is a remark. */
export function check(feature, name, run) {
  checks.push({ feature, name, run });
}

export async function runChecks() {
  for (const { feature, name, run } of checks) {
    if (!name.includes(process.env.CHECK ?? "")) continue;
    if ((feature === "images") !== Boolean(PICTURE)) continue;
    console.error(`--- ${feature}: ${name}`);
    if (process.env.RECORDER) {
      await fetch(`${process.env.RECORDER}/-/label?${encodeURIComponent(`${feature}: ${name}`)}`);
    }
    const { ok, detail } = await outcome(run);
    console.log(JSON.stringify({ feature, check: name, ok, detail }));
  }
  process.exit(0);
}

async function outcome(run) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${SECONDS} seconds`)), SECONDS * 1000);
  });
  try {
    return { ok: true, detail: (await Promise.race([run(), late])) ?? "" };
  } catch (error) {
    console.error(error);
    const [, line] = error.stack?.match(/client\.mjs:(\d+)/) ?? [];
    const where = error.name === "AssertionError" ? `(line ${line})` : "";
    return { ok: false, detail: `${error.name}: ${error.message.split("\n")[0]} ${where}`.trim() };
  } finally {
    clearTimeout(timer);
  }
}

// The runner reads lines that begin with {"feature"; whatever is thrown elsewhere is a failure of its own.
process.on("unhandledRejection", (error) => console.error("unhandled", error));
