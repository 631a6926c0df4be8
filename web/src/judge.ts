// What a report is judged by: the mark, the epoch that decides, the number that was asked for.
import { average, type Epoch, isInvalid, numbers, places, type Point, type Report } from "./report";

type Fields = Record<string, unknown>;
const inner = (value: unknown, ...path: string[]): unknown =>
  path.reduce((found, name) => (typeof found === "object" && found !== null ? (found as Fields)[name] : undefined), value);
const positive = (value: unknown): number | undefined => (typeof value === "number" && value > 0 ? value : undefined);

/// What was asked for: settings of `train`, or of `simulate`.
const asked = (report: Report): unknown => inner(report.settings, "question") ?? report.settings;

/// The utilisation that passes, in percent; of curves it stands in the settings alone.
export function passMark(report: Report): number | undefined {
  return report.summary?.pass_au_percent ?? positive(inner(asked(report), "workload", "read", "pass_au_percent"));
}

/// Samples a second that accelerators would take if nothing ever kept them.
export function demanded(report: Report, count = report.accelerators): number | undefined {
  const [step, batch] = [positive(inner(asked(report), "step_seconds")), positive(inner(asked(report), "workload", "read", "batch"))];
  return step && batch && count ? (count * batch) / step : undefined;
}

export interface Judged {
  percent: number;
  /// Which figure it is: `in its worst epoch, cold`.
  where: string;
}

/// The figure that the verdict is about: the worst epoch, of a simulation in the mean of its seeds.
export function judged(report: Report): Judged | undefined {
  const epochs = report.epochs ?? [];
  if (!epochs.length || isInvalid(report)) return undefined;
  const seeds = (epoch: Epoch) => epochs.filter((other) => other.epoch === epoch.epoch).map((other) => other.au_percent);
  const means = report.kind === "simulated" ? epochs.map((epoch) => ({ ...epoch, au_percent: average(seeds(epoch)) })) : epochs;
  const worst = means.reduce((worst, epoch) => (epoch.au_percent < worst.au_percent ? epoch : worst));
  const is = worst.cold ? "cold" : "warm";
  return { percent: worst.au_percent, where: epochs.length > 1 ? `in its worst epoch, ${is}` : `(${is})` };
}

/// Whether a search for the most accelerators was asked for, and its answer: null if not even one was busy.
export function answer(report: Report): { count: number | null } | undefined {
  const found = report.sections?.["find_max"];
  if (found === undefined) return undefined;
  return { count: numbers(found)["accelerators"] ?? null };
}

/// Tries of one number of accelerators as one: the mean, and the least and most of them.
export function together(points: Point[]): Point[] {
  const found = new Map<number, Point[]>();
  for (const point of points) found.set(point.accelerators, [...(found.get(point.accelerators) ?? []), point]);
  return [...found.values()].map((tries) => {
    const [first] = tries;
    if (!first || tries.length === 1) return first!;
    const all = tries.map((point) => point.au_percent);
    const at = { ...first.at, au_percent_low: Math.min(...all), au_percent_high: Math.max(...all) };
    return { ...first, at, au_percent: average(all), bytes_per_second: average(tries.map((point) => point.bytes_per_second)) };
  });
}

/// The most accelerators that pass on a curve, as long as all fewer of them do.
export function most(points: Point[], pass: number): number | undefined {
  const sorted = together(points).sort((a, b) => a.accelerators - b.accelerators);
  const failing = sorted.findIndex((point) => point.au_percent < pass);
  const passing = failing < 0 ? sorted : sorted.slice(0, failing);
  return passing[passing.length - 1]?.accelerators;
}

/// Whether a report has one verdict: curves have one a point.
export function isOne(report: Report): boolean {
  return (report.epochs ?? []).length > 0;
}

/// Curves: several numbers of accelerators, of each share of hits.
export function curves(report: Report): [string, Point[]][] {
  return [...places(report)].filter(([, points]) => new Set(points.map((point) => point.accelerators)).size > 1);
}
