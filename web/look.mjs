// Pictures of pages in a real browser, for people to look at: narrow and wide, light and dark. It also says what no page
// may do: ask for anything, fail, or be wider than its window.
// Use: node look.mjs OUT PAGE.html...   (CHROMIUM names the browser, else chromium)
import { mkdirSync } from "node:fs";
import { basename, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [out, ...pages] = process.argv.slice(2);
if (!out || pages.length === 0) {
  console.error("use: node look.mjs OUT PAGE.html...");
  process.exit(2);
}
mkdirSync(out, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
let wrong = 0;
for (const width of [390, 1280]) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, deviceScaleFactor: 1 });
    for (const path of pages) {
      const page = await context.newPage();
      const name = `${basename(path, ".html")}-${width}-${colorScheme}`;
      const url = pathToFileURL(resolve(path)).href;
      const complain = (what) => {
        wrong += 1;
        console.error(`${name}: ${what}`);
      };
      page.on("pageerror", (error) => complain(error.message));
      page.on("console", (message) => message.type() === "error" && complain(message.text()));
      page.on("request", (request) => request.url() !== url && !request.url().startsWith("data:") && complain(`asks for ${request.url()}`));
      await page.goto(url);
      await page.waitForSelector("html[data-state=drawn]");
      await page.waitForTimeout(150);
      for (const found of await page.evaluate(overflowing)) complain(found);
      await page.screenshot({ path: `${out}/${name}.png`, fullPage: true });
      await page.close();
    }
    await context.close();
  }
}
await browser.close();
console.log(`${pages.length * 4} pictures in ${out}, ${wrong} complaints`);
process.exit(wrong === 0 ? 0 : 1);

/// What is wider than its place, unless that scrolls.
function overflowing() {
  const found = [];
  const window_ = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > window_) found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${window_}`);
  for (const element of document.querySelectorAll("h1, h2, h3, dd, dt, .label, .value, .badge, li")) {
    const box = element.getBoundingClientRect();
    if (box.right > window_ + 0.5 && !element.closest(".scroll")) found.push(`"${element.textContent.slice(0, 40)}" ends at ${Math.round(box.right)}`);
  }
  return found;
}
