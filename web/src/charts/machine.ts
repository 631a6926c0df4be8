// Second by second: what was asked of the target, and what the disk did, against their limits. And syncs.
import { type Bar, type Chart, kinds, type Limit, type Line, type Panel } from "../chart";
import { bytes, clock, figure, percent, percentTick, rate, seconds } from "../format";
import { limits, type Named, type Report, type Second, syncs } from "../report";

/// More points than pixels hide nothing but cost time: mean of each stretch.
const POINTS_MAX = 720;

function thinned(points: [number, number][]): [number, number][] {
  const step = Math.ceil(points.length / POINTS_MAX);
  if (step < 2) return points;
  const found: [number, number][] = [];
  for (let at = 0; at < points.length; at += step) {
    const part = points.slice(at, at + step);
    found.push([part[0]![0], part.reduce((sum, [, value]) => sum + value, 0) / part.length]);
  }
  return found;
}

function line(report: Report, label: string, colour: number | string, value: (second: Second) => number | undefined, more: Partial<Line> = {}): Line {
  const points = (report.timeline ?? []).flatMap((second): [number, number][] => {
    const found = value(second);
    return found === undefined ? [] : [[second.second, found]];
  });
  return { label, colour, points: thinned(points), ...more };
}

const TIME = { label: "time since the run began", format: clock };

/// A limit that all reports have in common; others would crowd the chart.
function limit(reports: Named[], name: string, format: (value: number) => string): Limit[] {
  const values = new Set(reports.map(({ report }) => limits(report)[name]));
  const [value] = values;
  return value && values.size === 1 ? [{ label: `limit ${format(value)}`, value }] : [];
}

/// A value of each second, of a panel of its own or beside others.
interface Trace {
  label: string;
  colour: number | string;
  value: (second: Second) => number | undefined;
}

/// A line for each trace; of several reports a line for each of them, which needs a panel for each trace.
function lines(reports: Named[], traces: Trace[]): Line[] {
  const [only] = reports;
  if (reports.length === 1 && only) return traces.map((trace, at) => line(only.report, trace.label, trace.colour, trace.value, { area: at === 0 }));
  return traces.slice(0, 1).flatMap((trace) => reports.map(({ name, report }, colour) => line(report, name, colour, trace.value)));
}

const timed = (reports: Named[]) => reports.filter(({ report }) => (report.timeline ?? []).length > 1);
const some = (reports: Named[], value: (second: Second) => number | undefined) =>
  reports.some(({ report }) => (report.timeline ?? []).some((second) => (value(second) ?? 0) > 0));

export function requests(all: Named[]): Chart[] {
  const reports = timed(all);
  if (!some(reports, (second) => second.requests || second.bytes)) return [];
  const count = (value: number) => `${figure(value)}/s`;
  const asked: Trace = { label: "requests", colour: 0, value: (second) => second.requests };
  const troubles = [
    { label: "throttled (429, 503)", colour: "bad", value: (second: Second) => second.throttled },
    { label: "errors", colour: 3, value: (second: Second) => second.errors },
  ].filter((trace) => some(reports, trace.value));
  const panel = (label: string, traces: Trace[], most: Limit[]): Panel => ({ label, format: count, tick: figure, lines: lines(reports, traces), limits: most, min: 0 });
  const most = limit(reports, "requests_per_second", count);
  // Where each report has its line, trouble has a panel of its own.
  const panels = reports.length > 1 ? [panel("requests/s", [asked], most), ...troubles.map((trace) => panel(`${trace.label}/s`, [trace], []))] : [panel("requests/s", [asked, ...troubles], most)];
  const moved: Trace = { label: "bytes", colour: 1, value: (second) => second.bytes };
  panels.push({ label: "bytes/s", format: rate, tick: rate, lines: lines(reports, [moved]), limits: limit(reports, "bytes_per_second", rate), min: 0 });
  const throttled = reports.flatMap(({ report }) => report.timeline ?? []).reduce((sum, second) => sum + second.throttled, 0);
  const sub = `What was asked of the target each second; ${throttled ? figure(throttled) : "no"} ${throttled === 1 || !throttled ? "answer" : "answers"} asked for patience.`;
  return [{ type: "lines", id: "requests", title: "Requests and throttling", sub, kinds: kinds(reports), wide: true, x: TIME, panels }];
}

export function disk(all: Named[]): Chart[] {
  const reports = timed(all);
  const of = (key: string) => (second: Second) => second.disk?.[key];
  const panels: Panel[] = [];
  const add = (label: string, keys: string[], format: (value: number) => string, tick: (value: number) => string, max?: number) => {
    const present = keys.filter((key) => some(reports, of(key)));
    const traces = present.map((key, at): Trace => ({ label: key.startsWith("write") ? "write" : key.startsWith("read") ? "read" : label, colour: max ? 0 : at + 1, value: of(key) }));
    if (!traces.length) return;
    const panel: Panel = { label: reports.length > 1 && keys.length > 1 ? `${label}, ${traces[0]!.label}` : label, format, tick, lines: lines(reports, traces), limits: limit(reports, present[0]!, format), min: 0 };
    if (max) panel.max = max;
    panels.push(panel);
  };
  add("utilisation", ["utilisation_percent"], percent, percentTick, 100);
  add("throughput", ["read_bytes_per_second", "write_bytes_per_second"], rate, rate);
  add("IOPS", ["read_iops", "write_iops"], (value) => `${figure(value)} IOPS`, figure);
  if (!panels.length) return [];
  return [{ type: "lines", id: "disk", title: "The disk", sub: "What it did each second, against what it can.", kinds: kinds(reports), wide: true, x: TIME, panels }];
}

export function sync(reports: Named[]): Chart[] {
  const groups = reports.map(({ name, report }) => ({
    label: reports.length > 1 ? name : "",
    bars: syncs(report).map((found, colour): Bar => ({
      label: found.store,
      tag: found.seconds > 0 ? `${rate(found.bytes / found.seconds)}, ${figure(found.requests)} requests` : "",
      text: seconds(found.seconds),
      parts: [{ label: bytes(found.bytes), value: found.seconds, colour }],
    })),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (!shown.length) return [];
  const sub = "Time to bring the whole set from a store to the disk. Shorter is better.";
  return [{ type: "bars", id: "sync", title: "Sync time by store", sub, kinds: kinds(reports), groups: shown }];
}
