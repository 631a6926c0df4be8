// The JSON document of `docs/report.md`, as far as the page draws it. Reports are written by others and by other
// versions: what is free-form there (`cells`, `sections`) is read with care.

export type Kind = "measured" | "simulated";

export interface Mean {
  mean: number;
  low?: number;
  high?: number;
  count: number;
}

export interface Process {
  node: string;
  rank: number;
  epoch: number;
  samples: number;
  seconds: number;
  samples_per_second: number;
  wait_seconds_by_cause?: Record<string, number>;
}

export interface Epoch {
  repetition: number;
  epoch: number;
  cold: boolean;
  seconds: number;
  steps: number;
  samples: number;
  au_percent: number;
  au_dlio_percent: number;
  ceiling_percent: number;
  bound_percent?: number;
  share_of_bound_percent?: number;
  samples_per_second: number;
  bytes_per_second: number;
  wait_seconds_by_cause: Record<string, number>;
  bytes: Record<string, number>;
  step_seconds: Record<string, number>;
  processes?: Process[];
  /// Of each machine, where the target tells.
  nodes?: { node: string; asked_bytes: number; bytes_by_tier: Record<string, number>; hit_percent?: number }[];
  hit_percent?: number;
}

export interface Point {
  accelerators: number;
  au_percent: number;
  bound_percent?: number;
  bytes_per_second: number;
  seconds: number;
  at?: Record<string, number>;
}

export interface Second {
  second: number;
  requests: number;
  bytes: number;
  throttled: number;
  errors: number;
  disk?: Record<string, number>;
}

export interface Summary {
  cold_au_percent?: Mean;
  warm_au_percent?: Mean;
  min_au_percent: number;
  samples_per_second: Mean;
  pass_au_percent: number;
  passed: boolean;
  /// Absent of a run that did not come to its end.
  verdict?: "passed" | "fails" | "invalid" | "ceiling";
  reason?: string;
  limited_by: string;
}

export interface Report {
  schema: number;
  kind: Kind;
  command: string;
  finished: boolean;
  started: number;
  environment: {
    version: string;
    commit?: string;
    kernel: string;
    processor?: string;
    processors: number;
    memory_bytes: number;
    file_system?: string;
    mount_options?: string;
    ranks: number;
  };
  settings: unknown;
  target: string;
  seed: number;
  workload?: string;
  accelerator?: string;
  accelerators?: number;
  epochs?: Epoch[];
  summary?: Summary;
  points?: Point[];
  cells?: unknown[];
  timeline?: Second[];
  sections?: Record<string, unknown>;
  warnings?: string[];
}

/// Whether the run doesn't tell if accelerators were busy: it was too short, or its figures contradict each other.
export const isInvalid = (report: Report): boolean => report.summary?.verdict === "invalid" || failed(report).length > 0;

/// Whether nothing was read: a target that moves nothing has no verdict, and says what the loop itself reaches.
export const isCeiling = (report: Report): boolean =>
  report.target === "null:" && !fields(report.settings)["shape_disk"];

/// The workload, and how the job was otherwise: `resnet50 (batch 40, step 0.5ms)`.
export function job(report: Report): string | undefined {
  const changes = fields(report.settings)["changes"];
  const told = Array.isArray(changes) && changes.length ? ` (${changes.map(String).join(", ")})` : "";
  return report.workload && report.workload + told;
}

/// The error that ended a run before its end.
export function broken(report: Report): string | undefined {
  const error = report.sections?.["error"];
  return error === undefined ? undefined : String(error);
}

export interface Named {
  name: string;
  report: Report;
}

export interface Ratio {
  ratio: number;
  low?: number;
  high?: number;
}

export interface Row {
  measure: string;
  unit: string;
  better: "more" | "less";
  entries: ({ mean: Mean; ratio?: Ratio } | null)[];
}

export interface Document {
  reports: Named[];
  comparison?: { rows: Row[]; warnings: string[] } | null;
}

/// A cell of a sweep.
export interface Cell {
  repetition: number;
  phase: string;
  file_bytes: number;
  threads: number;
  ranks: number;
  bytes_per_second: number;
  files_per_second: number;
  seconds: number;
  /// Whether nothing of its files was in memory, proven.
  cold: boolean;
  latency: Record<string, number>;
}

export interface Sync {
  store: string;
  seconds: number;
  bytes: number;
  requests: number;
}

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);

/// The numbers of a free-form object.
export function numbers(value: unknown): Record<string, number> {
  return Object.fromEntries(
    Object.entries(fields(value)).filter((entry): entry is [string, number] => typeof entry[1] === "number"),
  );
}

export function cells(report: Report): Cell[] {
  const found = (report.cells ?? []).map(fields).map((cell) => ({
    repetition: number(cell["repetition"]) || 1,
    phase: String(cell["phase"] ?? ""),
    file_bytes: number(cell["file_bytes"]),
    threads: number(cell["threads"]),
    ranks: number(cell["ranks"]) || 1,
    bytes_per_second: number(cell["bytes_per_second"]),
    files_per_second: number(cell["files_per_second"]),
    seconds: number(cell["seconds"]),
    cold: cell["cold"] === true,
    latency: numbers(cell["latency_seconds"]),
  }));
  return found.filter((cell) => cell.phase !== "" && cell.threads > 0);
}

/// A shorter phase says more about starting threads than about storage; looking names up and removing is short by nature.
const TELLING_SECONDS = 0.1;
export const isShort = (cell: Cell): boolean => cell.bytes_per_second > 0 && cell.seconds > 0 && cell.seconds < TELLING_SECONDS;

/// What `bench data` did.
export interface Step {
  step: string;
  target: string;
  seconds: number;
  bytes: number;
  files: number;
  bytes_per_second: number;
  /// Of what was verified.
  wrong_files: number;
}

export function steps(report: Report): Step[] {
  const found = report.sections?.["steps"];
  const list = Array.isArray(found) ? found.map(fields) : [];
  return list.map((step) => ({
    step: String(step["step"] ?? ""),
    target: String(step["target"] ?? report.target),
    seconds: number(step["seconds"]),
    bytes: number(step["bytes"]),
    files: number(step["files"]),
    bytes_per_second: number(step["bytes_per_second"]),
    wrong_files: number(step["wrong_files"]),
  }));
}

export function syncs(report: Report): Sync[] {
  const found = report.sections?.["sync"];
  const list = Array.isArray(found) ? found.map(fields) : [];
  return list.map((sync) => ({
    store: String(sync["store"] ?? ""),
    seconds: number(sync["seconds"]),
    bytes: number(sync["bytes"]),
    requests: number(sync["requests"]),
  }));
}

/// The mean; of nothing it is 0.
export const average = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/// Least and most, where there are several.
export const range = (values: number[]): { low?: number; high?: number } => (values.length > 1 ? { low: Math.min(...values), high: Math.max(...values) } : {});

/// Checks of the figures against each other that failed.
export function failed(report: Report): string[] {
  const checks = report.sections?.["failed_checks"];
  return Array.isArray(checks) ? checks.map(String) : [];
}

/// A write or a read of the state of a model.
export interface Pass {
  what: string;
  number: number;
  seconds: number;
  bytes: number;
  bytes_per_second: number;
  /// Of the processes, times their number; 0 in reports of earlier programs.
  mean_bytes_per_second: number;
  /// Of a read; absent in reports of earlier programs.
  cold?: boolean;
}

/// A rule of a benchmark, and whether a run keeps it.
export interface Rule {
  number: string;
  rule: string;
  judgement: string;
  figures: string;
}

export function closed(report: Report): { document: string; rules: Rule[] } | undefined {
  const section = fields(report.sections?.["closed"]);
  const list = Array.isArray(section["rules"]) ? section["rules"].map(fields) : [];
  const text = (value: unknown) => String(value ?? "");
  const rules = list.map((rule) => ({ number: text(rule["number"]), rule: text(rule["rule"]), judgement: text(rule["judgement"]), figures: text(rule["figures"]) }));
  return rules.length ? { document: text(section["document"]), rules } : undefined;
}

export function checkpoints(report: Report): Pass[] {
  const found = report.sections?.["checkpoint"];
  const list = Array.isArray(found) ? found.map(fields) : [];
  return list.map((pass) => ({
    what: String(pass["what"] ?? ""),
    number: number(pass["number"]),
    seconds: number(pass["seconds"]),
    bytes: number(pass["bytes"]),
    bytes_per_second: number(pass["bytes_per_second"]),
    mean_bytes_per_second: number(pass["mean_bytes_per_second"]),
    ...(typeof pass["cold"] === "boolean" ? { cold: pass["cold"] } : {}),
  }));
}

/// What the disk and the target can give, by the names of what they gave, where it is known.
export function limits(report: Report): Record<string, number> {
  return numbers(report.sections?.["limits"]);
}

/// What a probe got of the target with the streams of the job; more of them may get more.
export function probed(report: Report): { figures: Record<string, number>; streams: number } {
  const probe = fields(report.sections?.["probe"]);
  // What a probe found in caches says nothing of the storage.
  const is = probe["no_bound"] === undefined || probe["no_bound"] === null;
  return { figures: is ? numbers(probe["supply"]) : {}, streams: number(probe["streams"]) };
}

/// Latency and bandwidth that a fit found for one phase and number of threads, and the size of file between them.
export interface Regime {
  phase: string;
  threads: number;
  ranks: number;
  figures: Record<string, number>;
}

export function regimes(report: Report): Regime[] {
  const found = report.sections?.["regimes"];
  const list = Array.isArray(found) ? found.map(fields) : [];
  return list.map((regime) => ({
    phase: String(regime["phase"] ?? ""),
    threads: number(regime["threads"]),
    ranks: number(regime["ranks"]) || 1,
    figures: numbers(regime),
  }));
}

/// From how many threads on more don't help, at one size of file.
export interface Saturation {
  phase: string;
  file_bytes: number;
  threads: number;
  /// False: more threads than were tried may still help.
  reached: boolean;
}

export function saturations(report: Report): Saturation[] {
  const found = report.sections?.["saturation"];
  const list = Array.isArray(found) ? found.map(fields) : [];
  return list.map((place) => ({
    phase: String(place["phase"] ?? ""),
    file_bytes: number(place["file_bytes"]),
    threads: number(place["threads"]),
    reached: place["reached"] === true,
  }));
}

/// `8 × V100`.
export function accelerators(report: Report): string {
  const name = report.accelerator ?? "";
  // Names of chips are letters and figures; others are words of a user.
  const shown = /^[a-z]+[0-9]+[a-z]*$/.test(name) ? name.toUpperCase() : name;
  if (!report.accelerators) return shown;
  return `${report.accelerators.toLocaleString("en")}\u00a0×\u00a0${shown || "accelerators"}`;
}

/// What a sample of this workload is called.
export function sample(report: Report): string {
  return /resnet|imagenet|retinanet|image/i.test(report.workload ?? "") ? "images" : "samples";
}

/// Points by what else varies, in words: cold or warm epochs, where there are both, and the share of hits, where one number
/// of accelerators has several. What else stands in `at` was found, not chosen. Of a run that doesn't tell there are none.
export function places(report: Report): Map<string, Point[]> {
  const points = [...(isInvalid(report) ? [] : (report.points ?? []))].sort((a, b) => a.accelerators - b.accelerators);
  const hit = (point: Point) => Math.round(point.at?.["hit_percent"] ?? 0);
  const kind = (point: Point) => (point.at?.["cold"] ? "cold" : "warm");
  const both = points.some((point) => kind(point) !== kind(points[0]!));
  const beside = (point: Point, other: Point) => other.accelerators === point.accelerators && kind(other) === kind(point);
  const varies = points.some((point) => points.some((other) => beside(point, other) && hit(other) !== hit(point)));
  const found = new Map<string, Point[]>();
  for (const point of points) {
    const place = [both ? kind(point) : "", varies ? `${hit(point)} % hits` : ""].filter(Boolean).join(", ");
    found.set(place, [...(found.get(place) ?? []), point]);
  }
  return found;
}
