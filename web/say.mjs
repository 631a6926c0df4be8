// What the page says of reports, without a browser: `node say.mjs FILE.json...` prints the title, the figures and the
// charts of each document (a list of reports with their names). tests/report.rs holds it against what it should say.
import { readFileSync } from "node:fs";
import { createServer } from "vite";

const server = await createServer({ root: import.meta.dirname, appType: "custom", logLevel: "error", server: { middlewareMode: true, hmr: false, ws: false, watch: null } });
try {
  const [{ headline, tiles }, { charts }] = await Promise.all(["/src/headline.ts", "/src/charts/index.ts"].map((file) => server.ssrLoadModule(file)));
  const said = process.argv.slice(2).map((file) => {
    const reports = JSON.parse(readFileSync(file, "utf8"));
    return { title: headline(reports), tiles: tiles(reports[0].report), charts: charts(reports) };
  });
  process.stdout.write(JSON.stringify(said).replaceAll("\u00a0", " "));
} finally {
  await server.close();
}
