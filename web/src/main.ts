// The page of one report or of several: what Rust put into the element `reports`, drawn.
import { mount } from "svelte";
import App from "./App.svelte";
import type { Document } from "./report";
import "./style.css";

const target = document.getElementById("page")!;
const text = document.getElementById("reports")?.textContent ?? "";
let found: Document | undefined;
try {
  found = JSON.parse(text) as Document;
} catch {
  target.textContent = "This page has no report in it: write one with `stoker bench ... --report FILE.html`.";
}
if (found) {
  target.replaceChildren();
  mount(App, { target, props: { document: found } });
}
document.documentElement.dataset["state"] = "drawn";
