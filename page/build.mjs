// Builds src/ into ../app/page/static/, whose files are committed and served as they are. The same sources give
// the same bytes: names carry hashes of what is in them, and nothing of this machine gets in.
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = process.argv[2] ?? join(HERE, "../app/page/static");

rmSync(OUT, { recursive: true, force: true });
mkdirSync(join(OUT, "docs"), { recursive: true });

const result = await build({
  absWorkingDir: HERE,
  entryPoints: [{ in: "src/main.tsx", out: "page" }],
  outdir: join(OUT, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "part-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2023", "chrome120", "firefox121", "safari17.2"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
  define: { "process.env.NODE_ENV": '"production"' },
});

writeIndex();
copyDocs();
writeLicenses();
writeManifest();

function written(suffix) {
  const entry = Object.entries(result.metafile.outputs).find(([, output]) => output.entryPoint === "src/main.tsx");
  const path = suffix === ".css" ? entry[1].cssBundle : entry[0];
  return path.split("/").pop();
}

function writeIndex() {
  const page = readFileSync(join(HERE, "src/index.html"), "utf8")
    .replace("{{script}}", `page/assets/${written(".js")}`)
    .replace("{{style}}", `page/assets/${written(".css")}`);
  writeFileSync(join(OUT, "index.html"), page);
  cpSync(join(HERE, "src/icon.svg"), join(OUT, "icon.svg"));
}

/** Swagger UI for /docs, without its own inline script, which a strict policy forbids. */
function copyDocs() {
  const from = join(HERE, "node_modules/swagger-ui-dist");
  for (const name of ["swagger-ui.css", "swagger-ui-bundle.js"]) {
    const text = readFileSync(join(from, name), "utf8").replace(/\n?\/[/*]# sourceMappingURL=.*$/m, "");
    writeFileSync(join(OUT, "docs", name), text);
  }
  for (const name of ["index.html", "start.js", "docs.css"]) cpSync(join(HERE, "src/docs", name), join(OUT, "docs", name));
}

/** The licences of all packages that have code in the built files. */
function writeLicenses() {
  const packages = new Set(["swagger-ui-dist"]);
  for (const output of Object.values(result.metafile.outputs)) {
    for (const [input, { bytesInOutput }] of Object.entries(output.inputs)) {
      const found = input.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//);
      if (found && bytesInOutput > 0) packages.add(found[1]);
    }
  }
  const texts = [...packages].sort().map((name) => {
    const folder = join(HERE, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.|$)/i.test(entry));
    if (!file) throw new Error(`${name} has no licence file`);
    const notice = readdirSync(folder).find((entry) => /^notice(\.|$)/i.test(entry));
    const parts = [file, notice].filter(Boolean).map((entry) => readFileSync(join(folder, entry), "utf8").trim());
    return `${name} ${version} (${license})\n\n${parts.join("\n\n")}\n`;
  });
  writeFileSync(join(OUT, "licenses.txt"), texts.join(`\n${"-".repeat(80)}\n\n`).replace(/\r\n/g, "\n"));
}

/** What was built from what, as hashes: whoever has no Node can tell whether both belong together. */
function writeManifest() {
  const sources = ["package.json", "package-lock.json", "tsconfig.json", "build.mjs", ...filesOf(join(HERE, "src")).map((path) => relative(HERE, path))];
  const built = filesOf(OUT).map((path) => relative(OUT, path));
  const hashes = (folder, paths) => Object.fromEntries(paths.sort().map((path) => [path.replaceAll("\\", "/"), sha256(join(folder, path))]));
  const manifest = { sources: hashes(HERE, sources), built: hashes(OUT, built) };
  writeFileSync(join(OUT, "manifest.json"), JSON.stringify(manifest, null, 1) + "\n");
}

function filesOf(folder) {
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .flatMap((path) => (statSync(path).isDirectory() ? filesOf(path) : [path]));
}

function sha256(path) {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}
