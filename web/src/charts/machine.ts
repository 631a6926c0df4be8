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

function limit(report: Report, name: string, format: (value: number) => string): Limit[] {
  const value = limits(report)[name];
  return value ? [{ label: `limit ${format(value)}`, value }] : [];
}

const of = (reports: Named[], name: string) => (reports.length > 1 ? `: ${name}` : "");

export function requests(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }): Chart[] => {
    const seen = report.timeline ?? [];
    if (seen.length < 2 || !seen.some((second) => second.requests || second.bytes)) return [];
    const some = (value: (second: Second) => number) => seen.some((second) => value(second) > 0);
    const lines = [line(report, "requests", 0, (second) => second.requests, { area: true })];
    if (some((second) => second.throttled)) lines.push(line(report, "throttled (429, 503)", "bad", (second) => second.throttled));
    if (some((second) => second.errors)) lines.push(line(report, "errors", 3, (second) => second.errors));
    const panels: Panel[] = [
      { label: "requests/s", format: (value) => `${figure(value)}/s`, tick: figure, lines, limits: limit(report, "requests_per_second", (value) => `${figure(value)}/s`), min: 0 },
      {
        label: "bytes/s",
        format: rate,
        tick: rate,
        lines: [line(report, "bytes", 1, (second) => second.bytes, { area: true })],
        limits: limit(report, "bytes_per_second", rate),
        min: 0,
      },
    ];
    const throttled = seen.reduce((sum, second) => sum + second.throttled, 0);
    const sub = throttled ? `What was asked of the target each second; ${figure(throttled)} answers asked for patience` : "What was asked of the target each second; no answer asked for patience";
    return [{ type: "lines", id: "requests", title: "Requests and throttling", sub: `${sub}${of(reports, name)}.`, kinds: [report.kind], wide: true, x: TIME, panels }];
  });
}

export function disk(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }): Chart[] => {
    const seen = report.timeline ?? [];
    const has = (key: string) => seen.some((second) => (second.disk?.[key] ?? 0) > 0);
    const panels: Panel[] = [];
    if (has("utilisation_percent"))
      panels.push({
        label: "utilisation",
        format: percent,
        tick: percentTick,
        lines: [line(report, "utilisation", 0, (second) => second.disk?.["utilisation_percent"], { area: true })],
        limits: [],
        min: 0,
        max: 100,
      });
    for (const [label, suffix, format] of [
      ["throughput", "bytes_per_second", rate],
      ["IOPS", "iops", (value: number) => `${figure(value)} IOPS`],
    ] as const) {
      const lines: Line[] = [];
      for (const [side, colour] of [["read", 1], ["write", 2]] as const)
        if (has(`${side}_${suffix}`)) lines.push(line(report, side, colour, (second) => second.disk?.[`${side}_${suffix}`], { area: lines.length === 0 }));
      const tick = suffix === "iops" ? figure : format;
      const most = limit(report, `read_${suffix}`, format);
      if (lines.length) panels.push({ label, format, tick, lines, limits: most, min: 0 });
    }
    if (!panels.length) return [];
    return [{ type: "lines", id: "disk", title: "The disk", sub: `What it did each second, against what it can${of(reports, name)}.`, kinds: [report.kind], wide: true, x: TIME, panels }];
  });
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
