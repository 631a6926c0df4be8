// Utilisation against the number of accelerators, and throughput against nodes.
import { type Chart, kinds, type Line, type Limit } from "../chart";
import { figure, percent, percentTick, rate } from "../format";
import { type Named, places, type Point, type Report, sample } from "../report";

const together = (...words: string[]) => words.filter((word) => word !== "").join(", ");

/// Reports that were measured at one number of accelerators each are a curve where they are many.
function single(reports: Named[]): [string, Point[]][] {
  const found = new Map<string, Point[]>();
  for (const { report } of reports) {
    const mean = report.summary?.warm_au_percent ?? report.summary?.cold_au_percent;
    if (report.points?.length || !report.accelerators || !mean) continue;
    const bounds = (report.epochs ?? []).flatMap((epoch) => epoch.bound_percent ?? []);
    const point: Point = { accelerators: report.accelerators, au_percent: mean.mean, bytes_per_second: 0, seconds: 0 };
    if (bounds.length) point.bound_percent = Math.min(...bounds);
    const name = together(report.target, report.kind === "simulated" ? "simulated" : "");
    found.set(name, [...(found.get(name) ?? []), point]);
  }
  const curve = ([, points]: [string, Point[]]) => new Set(points.map((point) => point.accelerators)).size > 1;
  return [...found].filter(curve);
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
  const found = new Map<number, Point>();
  for (const point of points) {
    const count = point.at?.["nodes"];
    if (count && point.accelerators >= (found.get(count)?.accelerators ?? 0)) found.set(count, point);
  }
  return [...found].map(([count, point]) => [count, point.bytes_per_second]);
}

export function utilisation(reports: Named[]): Chart[] {
  const many = reports.length > 1;
  const mixed = kinds(reports).length > 1;
  const named: [string, Point[]][] = reports.flatMap(({ name, report }) =>
    [...places(report)].map(([place, points]): [string, Point[]] => [
      together(many ? name : "", place, mixed ? report.kind : "") || "utilisation",
      points,
    ]),
  );
  named.push(...single(reports));
  const lines = named.flatMap(([label, points], colour): Line[] => {
    const bound = points.filter((point) => point.bound_percent !== undefined);
    const found: Line[] = [{ label, colour, dots: points.length < 40, points: points.map((point) => [point.accelerators, point.au_percent]), band: band(points) }];
    if (bound.length)
      found.push({
        label: named.length > 1 ? `bound of ${label}` : "bound",
        colour: named.length > 1 ? colour : "ink",
        dashed: true,
        quiet: named.length > 1,
        points: bound.map((point) => [point.accelerators, point.bound_percent!]),
      });
    return found;
  });
  if (!lines.some((line) => line.points.length > 1)) return [];
  const pass = [...new Set(reports.flatMap(({ report }) => report.summary?.pass_au_percent ?? []))];
  const limits: Limit[] = pass.map((value) => ({ label: `passes at ${figure(value)} %`, value }));
  const counts = named.flatMap(([, points]) => points.map((point) => point.accelerators));
  const span = Math.max(...counts) / Math.max(1, Math.min(...counts));
  return [
    {
      type: "lines",
      id: "utilisation",
      title: "Utilisation by number of accelerators",
      sub: "Share of their time in which accelerators compute. Dashed: what the target could give at best.",
      kinds: kinds(reports),
      wide: true,
      x: { label: "accelerators", format: figure, log2: span > 24, whole: true },
      panels: [{ label: "utilisation", format: percent, tick: percentTick, lines, limits, min: 0, max: 100 }],
    },
  ];
}

type Formats = [((value: number) => string), ((value: number) => string)];

/// Throughput by number of nodes, beside the first times the nodes.
export function nodes(reports: Named[]): Chart[] {
  const byBytes = reports.flatMap(({ name, report }) =>
    [...places(report)].map(([place, points]): [string, [number, number][]] => [together(reports.length > 1 ? name : "", place), full(points)]),
  );
  const bytes = chart(reports, "nodes", "Throughput by number of nodes", [rate, rate], byBytes);
  const groups = new Map<string, [number, number][]>();
  for (const { report } of reports) {
    const inProcesses = new Set((report.epochs ?? []).flatMap((epoch) => (epoch.processes ?? []).map((process) => process.node)));
    const count = Math.max(inProcesses.size, 1);
    const mean = report.summary?.samples_per_second.mean;
    const name = together(report.workload ?? "", report.target);
    if (mean) groups.set(name, [...(groups.get(name) ?? []), [count, mean]]);
  }
  const unit = reports[0] ? `${sample(reports[0].report)}/s` : "samples/s";
  const title = `${unit[0]!.toUpperCase()}${unit.slice(1)} by number of nodes`;
  return [...bytes, ...chart(reports, "nodes-samples", title, [(value) => `${figure(value)} ${unit}`, figure], [...groups])];
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
