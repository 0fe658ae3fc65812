// Reads [name, ...arguments] of calls to the graph's own logic from a file, and prints what each gives.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [callsPath, folder] = process.argv.slice(2);
const page = process.cwd();
const { build } = createRequire(join(page, "package.json"))("esbuild");
const parts = ["camera", "index_of", "place", "search", "shapes", "walk"];
const contents = parts.map((part) => `export * from "./${part}";`).join("\n");
await build({ stdin: { contents, resolveDir: join(page, "src/graph") }, bundle: true, format: "esm", outfile: join(folder, "graph.mjs") });
const own = await import(pathToFileURL(join(folder, "graph.mjs")).href);

const calls = {
  ...own,
  outlinesOf: (graph) => Object.fromEntries(own.outlinesOf(graph)),
  search: (graph, wanted) => own.matchesOf(graph, own.indexOf(graph), wanted),
  place: (graph, id) => own.placeOf(own.indexOf(graph), id),
  /** What a walk has passed, and what the picture is told to change from one walk to the next. */
  walks: (graph, walks, length) => {
    let [before, steps] = [own.NOTHING_PASSED, []];
    return walks.map((walk) => {
      steps = own.stepsAfter(steps, walk);
      const passed = own.passedBy(walk, steps, own.indexOf(graph), length);
      const ids = [...own.changed(before, passed)];
      before = passed;
      return { ...passed, visits: Object.fromEntries(passed.visits), changed: ids };
    });
  },
};
console.log(JSON.stringify(JSON.parse(readFileSync(callsPath, "utf8")).map(([name, ...given]) => calls[name](...given))));
