// Calls functions of the page with arguments from a file, and prints what comes back.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [callsPath, folder] = process.argv.slice(2);
const { build } = createRequire(join(process.cwd(), "package.json"))("esbuild");
const parts = ["exposition", "quantile", "history", "plots", "poll"].map((name) => `operations/${name}`);
const contents = [...parts, "server/access", "confidence/place", "ui/number"].map((name) => `export * from "./${name}";`).join("\n");
const outfile = join(folder, "page.mjs");
await build({ stdin: { contents, resolveDir: join(process.cwd(), "src"), loader: "ts" }, bundle: true, format: "esm", outfile });
const page = await import(pathToFileURL(outfile).href);

const told = (sample) => [sample.name, Object.fromEntries(sample.labels), sample.value];
// JSON has no numbers for these.
const number = (value) => (typeof value !== "number" || Number.isFinite(value) ? value : String(value));

const CALLS = {
  place: (schema, pointer, value) => page.placeInSchema(schema, pointer, value),
  written: (unit, value) => page[unit](value),
  samples(text) {
    try {
      return page.samplesOf(text).map((sample) => told(sample).map(number));
    } catch (error) {
      return error.message;
    }
  },
  quantile: (q, buckets) => page.quantile(q, buckets.map(([bound, count]) => ({ bound: bound === null ? Infinity : bound, count }))),
  /** `scrapes`: [text, time, gap]. */
  history(scrapes, keys, seconds) {
    const history = new page.History(page.columnOf);
    for (const [text, time, gap] of scrapes) history.add(page.samplesOf(text), time, gap);
    const points = history.points.map((_, point) => point);
    const last = points.length - 1;
    return {
      rates: Object.fromEntries(keys.map((key) => [key, points.map((point) => history.rate(key, point))])),
      rises: Object.fromEntries(keys.map((key) => [key, history.rise(key, 0, last)])),
      values: Object.fromEntries(keys.map((key) => [key, points.map((point) => history.value(key, point))])),
      medians: points.map((point) => history.recentQuantile("first", 0.5, point)),
      overall: history.quantile("first", 0.5, 0, last),
      slots: history.slots(seconds),
      gaps: history.points.map(({ gap }) => gap),
      restarts: history.points.map(({ restarted }) => restarted),
      plotted: page.PLOTS.map((plot) => [plot.title, plot.lines(history).map((line) => [line.label, line.at(history, last), line.over(history, 0, last)])]),
    };
  },
  /** `answers`: what the server does at each attempt. Waiting takes no time here: it is written down. */
  async poll(answers, key) {
    globalThis.document = { baseURI: "http://127.0.0.1:1/" };
    page.apiKey.value = key;
    page.keyWanted.value = false;
    const [ended, waits, said] = [new AbortController(), [], []];
    const { setTimeout } = globalThis;
    const { now } = performance;
    let giveUp; // what happens when the patience for an answer has ended
    globalThis.fetch = async (_address, { signal }) => {
      const answer = answers.shift();
      if (answer === undefined) return ended.abort(), new Response("");
      if (answer === "no connection") throw new TypeError("Failed to fetch");
      if (answer !== "silence") return new Response(answer[1], { status: answer[0] });
      queueMicrotask(giveUp);
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    performance.now = () => 0;
    globalThis.setTimeout = (then, milliseconds) => {
      if (milliseconds === 10_000) return void (giveUp = then);
      waits.push(milliseconds / 1000);
      return setTimeout(then, 0);
    };
    await page.poll({ took: (samples) => said.push(samples.length), failed: (trouble) => said.push(trouble) }, ended.signal);
    Object.assign(globalThis, { setTimeout });
    Object.assign(performance, { now });
    return { waits, said, keyWanted: page.keyWanted.value };
  },
};

const results = [];
for (const [name, ...given] of JSON.parse(readFileSync(callsPath, "utf8"))) results.push(await CALLS[name](...given));
console.log(JSON.stringify(results));
