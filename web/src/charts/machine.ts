// Second by second: what was asked of the target, and what the disk did, against their limits.
import { type Chart, kinds, type Limit, type Line, type Panel } from "../chart";
import { clock, figure, percent, percentTick, rate } from "../format";
import { limits, type Named, probed, type Report, type Second } from "../report";

/// More points than pixels hide nothing but cost time: mean of each stretch.
const POINTS_MAX = 720;
/// A row that is shorter counts with the one before it: rates of an instant are none.
const SHORT_SECONDS = 0.25;

/// What a line says of a row: of so many seconds.
type Value = (second: Second, lasted: number) => number | undefined;

interface Stretch {
  begin: number;
  lasted: number;
  rows: [Second, number][];
}

const sum = (values: number[]) => values.reduce((sum, value) => sum + value, 0);

/// Epochs one after another, as the timeline has them.
function begun(report: Report): { label: string; value: number }[] {
  let at = 0;
  const repeated = (report.epochs ?? []).some((epoch) => epoch.repetition > 1);
  return (report.epochs ?? []).map(({ repetition, epoch, seconds: lasted }) => {
    const begin = { label: `${at ? "" : "epoch "}${repeated ? `${repetition}.` : ""}${epoch}`, value: at };
    at += lasted;
    return begin;
  });
}

/// Rows of a report with the time that each took, few enough to draw.
function stretches(report: Report): Stretch[] {
  const rows = report.timeline ?? [];
  const all = sum((report.epochs ?? []).map((epoch) => epoch.seconds));
  const last = rows[rows.length - 1]?.second ?? 0;
  const end = all > last ? all : last + 1;
  const found: Stretch[] = [];
  const step = rows.length > POINTS_MAX ? (end - (rows[0]?.second ?? 0)) / POINTS_MAX : 0;
  rows.forEach((row, at) => {
    const lasted = (rows[at + 1]?.second ?? end) - row.second;
    const before = found[found.length - 1];
    const joins = before && (lasted < SHORT_SECONDS || before.lasted < step);
    if (joins) Object.assign(before, { lasted: before.lasted + lasted, rows: [...before.rows, [row, lasted]] });
    else found.push({ begin: row.second, lasted, rows: [[row, lasted]] });
  });
  return found;
}

/// A line of steps: what was counted in a stretch holds until the next.
function line(report: Report, label: string, colour: number | string, value: Value, more: Partial<Line> = {}): Line {
  const found = stretches(report);
  const points = found.flatMap(({ begin, lasted, rows }): [number, number][] => {
    const known = rows.flatMap(([row, took]) => {
      const rate = value(row, took);
      return rate === undefined ? [] : [rate * took];
    });
    return known.length && lasted > 0 ? [[begin, sum(known) / lasted]] : [];
  });
  const [end, tip] = [found[found.length - 1], points[points.length - 1]];
  if (end && tip) points.push([end.begin + end.lasted, tip[1]]);
  return { label, colour, points, steps: true, ...more };
}

const TIME = { label: "time since the run began", format: clock, clock: true };

/// What the target or the disk gave or can give; of several reports each one's own in its colour, where they differ.
function limit(reports: Timed[], names: string[], format: (value: number) => string): Limit[] {
  const own = reports.map(({ report }) => reach(report, names, format));
  const [first] = own;
  if (first && own.every((other) => other?.label === first.label)) return [first];
  return own.flatMap((found, at): Limit[] => (found ? [{ ...found, colour: reports[at]!.run }] : []));
}

/// A limit where it is known; else what the streams of the probe got, which is named so: more of them may get more.
function reach(report: Report, names: string[], format: (value: number) => string): Limit | undefined {
  const { figures, streams } = probed(report);
  for (const name of names) {
    const [known, got] = [limits(report)[name], figures[name]];
    if (known) return { label: `limit ${format(known)}`, value: known };
    if (got) return { label: `probe, ${figure(streams)} ${streams === 1 ? "stream" : "streams"}: ${format(got)}`, value: got };
  }
  return undefined;
}

/// A value of each second, of a panel of its own or beside others.
interface Trace {
  label: string;
  colour: number | string;
  value: Value;
}

/// A line for each trace; of several reports a line for each of them, which needs a panel for each trace.
function lines(reports: Timed[], traces: Trace[]): Line[] {
  const [only] = reports;
  if (reports.length === 1 && only) return traces.map((trace, at) => line(only.report, trace.label, trace.colour, trace.value, { area: at === 0 }));
  return traces.slice(0, 1).flatMap((trace) => reports.map(({ name, report, run }) => line(report, name, run, trace.value)));
}

/// Those with a timeline, and which of all they are: a run has one colour in all charts.
interface Timed extends Named {
  run: number;
}

const timed = (reports: Named[]): Timed[] => reports.map((named, run) => ({ ...named, run })).filter(({ report }) => (report.timeline ?? []).length > 1);
const some = (reports: Named[], value: Value) => reports.some(({ report }) => (report.timeline ?? []).some((second) => (value(second, 1) ?? 0) > 0));
/// Of one report: the epochs of several would crowd the chart.
const divided = (reports: Named[], panels: Panel[]) => {
  const [only] = reports;
  return reports.length === 1 && only ? panels.map((panel, at) => ({ ...panel, begins: begun(only.report).map((begin) => (at ? { ...begin, label: "" } : begin)) })) : panels;
};
const per = (count: (second: Second) => number): Value => (second, lasted) => (lasted > 0 ? count(second) / lasted : undefined);

export function requests(all: Named[]): Chart[] {
  const reports = timed(all);
  if (!some(reports, (second) => second.requests || second.bytes)) return [];
  const count = (value: number) => `${figure(value)}/s`;
  const asked: Trace = { label: "requests", colour: 0, value: per((second) => second.requests) };
  const troubles = [
    { label: "throttled (429, 503)", colour: "bad", value: per((second) => second.throttled) },
    { label: "errors", colour: 3, value: per((second) => second.errors) },
  ].filter((trace) => some(reports, trace.value));
  const panel = (label: string, traces: Trace[], most: Limit[]): Panel => ({ label, format: count, tick: figure, lines: lines(reports, traces), limits: most, min: 0 });
  const most = limit(reports, ["requests_per_second"], count);
  // Where each report has its line, trouble has a panel of its own.
  const panels = reports.length > 1 ? [panel("requests/s", [asked], most), ...troubles.map((trace) => panel(`${trace.label}/s`, [trace], []))] : [panel("requests/s", [asked, ...troubles], most)];
  const moved: Trace = { label: "bytes", colour: 1, value: per((second) => second.bytes) };
  panels.push({ label: "bytes/s", format: rate, tick: rate, lines: lines(reports, [moved]), limits: limit(reports, ["bytes_per_second"], rate), min: 0 });
  const throttled = reports.flatMap(({ report }) => report.timeline ?? []).reduce((sum, second) => sum + second.throttled, 0);
  const sub = `What was asked of the target each second; ${throttled ? figure(throttled) : "no"} ${throttled === 1 || !throttled ? "answer" : "answers"} asked for patience.`;
  return [{ type: "lines", id: "requests", title: "Requests and throttling", sub, kinds: kinds(reports), wide: true, x: TIME, panels: divided(reports, panels) }];
}

/// Whether reads of the target are waited for as those of a disk.
const isDisk = (report: Report) => (report.settings as { transfer?: unknown } | null)?.transfer === "disk";

export function disk(all: Named[]): Chart[] {
  const reports = timed(all);
  const of = (key: string) => (second: Second) => second.disk?.[key];
  const panels: Panel[] = [];
  // Where a disk is the target, it can give what the probe got of it.
  const isTarget = reports.every(({ report }) => isDisk(report));
  const limitsOf = (key: string) => (isTarget && key === "read_bytes_per_second" ? [key, "bytes_per_second"] : [key]);
  const add = (label: string, keys: string[], format: (value: number) => string, tick: (value: number) => string, max?: number) => {
    const present = keys.filter((key) => some(reports, of(key)));
    const traces = present.map((key, at): Trace => ({ label: key.startsWith("write") ? "write" : key.startsWith("read") ? "read" : label, colour: max ? 0 : at + 1, value: of(key) }));
    if (!traces.length) return;
    const panel: Panel = { label: reports.length > 1 && keys.length > 1 ? `${label}, ${traces[0]!.label}` : label, format, tick, lines: lines(reports, traces), limits: limit(reports, limitsOf(present[0]!), format), min: 0 };
    if (max) panel.max = max;
    panels.push(panel);
  };
  add("utilisation", ["utilisation_percent"], percent, percentTick, 100);
  add("throughput", ["read_bytes_per_second", "write_bytes_per_second"], rate, rate);
  add("IOPS", ["read_iops", "write_iops"], (value) => `${figure(value)} IOPS`, figure);
  if (!panels.length) return [];
  return [{ type: "lines", id: "disk", title: "The disk", sub: "What it did each second, against what it can.", kinds: kinds(reports), wide: true, x: TIME, panels: divided(reports, panels) }];
}
