// Utilisation against the number of accelerators, and throughput against nodes.
import { type Chart, kinds, type Line, type Limit, type Panel } from "../chart";
import { figure, percent, percentTick, rate } from "../format";
import { answer, curves, judged, passMark, together } from "../judge";
import { isInvalid, job, type Named, places, type Point, type Report, sample } from "../report";

const joined = (...words: string[]) => words.filter((word) => word !== "").join(", ");

interface Curve {
  label: string;
  colour: number;
  points: Point[];
}

/// Reports of one number of accelerators each are a curve where they are many, of the figures that they are judged by.
function single(reports: Named[]): Curve[] {
  const found = new Map<string, Curve>();
  for (const [colour, { report }] of reports.entries()) {
    const own = judged(report);
    if (curves(report).length || !report.accelerators || !own || isInvalid(report)) continue;
    const bounds = (report.epochs ?? []).flatMap((epoch) => epoch.bound_percent ?? []);
    const all = (report.epochs ?? []).map((epoch) => epoch.au_percent);
    const at = { au_percent_low: Math.min(...all), au_percent_high: Math.max(...all) };
    const point: Point = { accelerators: report.accelerators, au_percent: own.percent, bytes_per_second: 0, seconds: 0, at };
    if (bounds.length) point.bound_percent = Math.min(...bounds);
    const curve = found.get(alike(report)) ?? { label: joined(report.target, report.kind === "simulated" ? "simulated" : ""), colour, points: [] };
    curve.points.push(point);
    found.set(alike(report), curve);
  }
  // Two of one target are of different jobs, and say of which.
  const drawn = [...found.values()].filter(isCurve);
  const twice = (label: string) => drawn.filter((curve) => curve.label === label).length > 1;
  return drawn.map((curve) => (twice(curve.label) ? { ...curve, label: joined(curve.label, reports[curve.colour]!.name) } : curve));
}

/// What is the same in runs that differ by the number of accelerators, and of ranks that drive them, alone.
function alike(report: Report): string {
  const rest = (settings: unknown): unknown => {
    if (typeof settings !== "object" || settings === null || Array.isArray(settings)) return settings;
    const kept = Object.entries(settings).filter(([name]) => !["accelerators", "arguments", "seed", "seeds"].includes(name));
    return kept.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, rest(value)]);
  };
  return JSON.stringify([report.command, report.kind, report.target, report.workload, report.accelerator, rest(report.settings)]);
}

const isCurve = ({ points }: Curve) => new Set(points.map((point) => point.accelerators)).size > 1;

/// All curves of the reports, tries of one number together. One colour a report, or a curve of the only one.
function curvesOf(reports: Named[]): Curve[] {
  const many = reports.length > 1;
  const mixed = kinds(reports).length > 1;
  const found = reports.flatMap(({ name, report }, index) =>
    [...places(report)].map(([place, points], at): Curve => ({
      label: joined(many ? name : "", place, mixed ? report.kind : "") || "utilisation",
      colour: many ? index : at,
      points: together(points),
    })),
  );
  return [...found.filter(isCurve), ...single(reports)];
}

/// The most accelerators' worth of work that a target fed, where more of them got no more: it is spent there.
function spent(points: Point[]): number | undefined {
  const [least, most] = [Math.min(...points.map((point) => point.au_percent)), Math.max(...points.map((point) => point.au_percent))];
  return least < 0.9 * most ? Math.max(...points.map((point) => (point.accelerators * point.au_percent) / 100)) : undefined;
}

/// Intervals of points that were repeated.
function band(points: Point[]): [number, number, number][] {
  return points.flatMap(({ accelerators, at }): [number, number, number][] => {
    const [low, high] = [at?.["au_percent_low"], at?.["au_percent_high"]];
    return low === undefined || high === undefined ? [] : [[accelerators, Math.max(0, low), Math.min(100, high)]];
  });
}

/// The most accelerators at each number of nodes.
function full(points: Point[]): [number, number][] {
  // A node for each accelerator is what a simulation assumes unless it is told otherwise: that is the other chart.
  if (points.every((point) => point.at?.["nodes"] === point.accelerators)) return [];
  const found = new Map<number, Point>();
  for (const point of points) {
    const count = point.at?.["nodes"];
    if (count && point.accelerators >= (found.get(count)?.accelerators ?? 0)) found.set(count, point);
  }
  return [...found].map(([count, point]) => [count, point.bytes_per_second]);
}

export function utilisation(reports: Named[]): Chart[] {
  const named = curvesOf(reports);
  if (!named.length) return [];
  const lone = named.length === 1;
  const lines = named.flatMap(({ label, colour, points }): Line[] => {
    const bound = points.filter((point) => point.bound_percent !== undefined);
    const found: Line[] = [{ label, colour, dots: points.length < 40, points: points.map((point) => [point.accelerators, point.au_percent]), band: band(points) }];
    if (bound.length)
      found.push({ label: lone ? "bound" : `bound of ${label}`, colour: lone ? "ink" : colour, dashed: true, quiet: !lone, points: bound.map((point) => [point.accelerators, point.bound_percent!]) });
    return found;
  });
  const pass = [...new Set(reports.flatMap(({ report }) => passMark(report) ?? []))];
  const limits: Limit[] = pass.map((value) => ({ label: `passes at ${figure(value)} %`, value }));
  const counts = named.flatMap(({ points }) => points.map((point) => point.accelerators));
  const log2 = Math.max(...counts) / Math.max(1, Math.min(...counts)) > 24;
  const panels: Panel[] = [{ label: "utilisation", format: percent, tick: percentTick, lines, limits, knees: marks(reports, named), tall: true, min: 0, max: 100 }, ...hits(named)];
  const banded = lines.some((line) => line.band?.length) ? ` Shaded: ${reports.every(({ report }) => report.kind === "simulated") ? "the interval of 95 %" : "least to most of what was repeated"}.` : "";
  return [
    {
      type: "lines",
      id: "utilisation",
      title: "Utilisation by number of accelerators",
      sub: `Share of their time in which accelerators compute. Dashed: what the target could give at best.${banded}`,
      kinds: kinds(reports),
      wide: true,
      x: { label: `accelerators (${log2 ? "logarithmic" : "linear"})`, format: figure, log2, whole: true },
      panels,
    },
  ];
}

/// Where the target is spent, and the answer of a search; of many curves they would crowd the chart.
function marks(reports: Named[], named: Curve[]): Limit[] {
  const [only] = named;
  if (named.length !== 1 || !only) return [];
  const [value, found] = [spent(only.points), answer(reports[0]!.report)?.count];
  const spentAt = value === undefined ? [] : [{ label: `target full at ${figure(value)}`, value }];
  return [...spentAt, ...(found && reports.length === 1 ? [{ label: `keeps ${figure(found)} busy`, value: found }] : [])];
}

/// The share of hits at each point, where it was reported and no curve has it in its name.
function hits(named: Curve[]): Panel[] {
  const lines = named.flatMap(({ label, colour, points }): Line[] => {
    const found = points.flatMap((point): [number, number][] => (point.at?.["hit_percent"] === undefined ? [] : [[point.accelerators, point.at["hit_percent"]]]));
    return found.some(([, hit]) => hit > 0) && !label.endsWith("% hits") ? [{ label: named.length > 1 ? label : "hits", colour: named.length > 1 ? colour : 2, dots: true, points: found }] : [];
  });
  return lines.length ? [{ label: "hits in the cache", format: percent, tick: percentTick, lines, limits: [], min: 0, max: 100 }] : [];
}

type Formats = [((value: number) => string), ((value: number) => string)];

/// Throughput by number of nodes, beside the first times the nodes.
export function nodes(reports: Named[]): Chart[] {
  const byBytes = reports.flatMap(({ name, report }) =>
    [...places(report)].map(([place, points]): [string, [number, number][]] => [joined(reports.length > 1 ? name : "", place), full(points)]),
  );
  const bytes = chart(reports, "nodes", "Throughput by number of nodes", [rate, rate], byBytes);
  const groups = new Map<string, { name: string; points: [number, number][] }>();
  for (const { report } of reports) {
    const inProcesses = new Set((report.epochs ?? []).flatMap((epoch) => (epoch.processes ?? []).map((process) => process.node)));
    const count = Math.max(inProcesses.size, 1);
    const mean = report.summary?.samples_per_second.mean;
    const group = groups.get(alike(report)) ?? { name: joined(job(report) ?? "", report.target), points: [] };
    if (mean) groups.set(alike(report), { ...group, points: [...group.points, [count, mean]] });
  }
  const unit = reports[0] ? `${sample(reports[0].report)}/s` : "samples/s";
  const title = `${unit[0]!.toUpperCase()}${unit.slice(1)} by number of nodes`;
  return [...bytes, ...chart(reports, "nodes-samples", title, [(value) => `${figure(value)} ${unit}`, figure], [...groups.values()].map(({ name, points }) => [name, points]))];
}

function chart(reports: Named[], id: string, title: string, [format, tick]: Formats, named: [string, [number, number][]][]): Chart[] {
  const lines = named.flatMap(([name, points], colour): Line[] => {
    const sorted = [...points].sort((a, b) => a[0] - b[0]);
    const first = sorted[0];
    if (!first || sorted[sorted.length - 1]![0] === first[0]) return [];
    const label = named.length > 1 ? name : "reached";
    const ideal: [number, number][] = sorted.map(([count]) => [count, (first[1] / first[0]) * count]);
    return [
      { label, colour, dots: true, points: sorted },
      { quiet: named.length > 1, label: named.length > 1 ? `ideal of ${name}` : "ideal", colour: named.length > 1 ? colour : "ink", dashed: true, points: ideal },
    ];
  });
  if (!lines.length) return [];
  return [
    {
      type: "lines",
      id,
      title,
      sub: "Dashed: the smallest run, times the nodes.",
      kinds: kinds(reports),
      x: { label: "nodes", format: figure, whole: true },
      panels: [{ label: "throughput", format, tick, lines, limits: [], min: 0 }],
    },
  ];
}
