// The result in one sentence, and its most telling figures.
import { binary, bytes, figure, percent, rate, seconds } from "./format";
import { accelerators, cells, type Mean, type Named, places, type Point, type Report, sample, syncs } from "./report";

export interface Tile {
  label: string;
  value: string;
  note: string;
}

/// Whether the report has one verdict: curves have a verdict a point.
export function isOne(report: Report): boolean {
  return report.points?.length ? places(report).size === 1 : (report.epochs ?? []).length > 0;
}

/// The most accelerators that still pass.
function most(points: Point[], pass: number): number | undefined {
  const passing = points.filter((point) => point.au_percent >= pass).map((point) => point.accelerators);
  return passing.length ? Math.max(...passing) : undefined;
}

export function headline(reports: Named[]): string {
  const only = reports[0]?.report;
  if (!only) return "No report";
  if (reports.length > 1) {
    const workloads = [...new Set(reports.map(({ report }) => report.workload ?? report.command))];
    return `${reports.length} runs of ${workloads.join(", ")}, compared`;
  }
  const { summary } = only;
  const curves = [...places(only).values()];
  if (summary && curves.length === 1) {
    const count = most(curves[0]!, summary.pass_au_percent);
    if (count !== undefined) return `${only.workload ?? "The loop"} keeps ${accelerators({ ...only, accelerators: count })} busy`;
  }
  const what = [only.workload, accelerators(only)].filter(Boolean).join(" on ");
  if (curves.length) return `${[only.workload, accelerators({ ...only, accelerators: 0 })].filter(Boolean).join(" on ")}, up to ${figure(Math.max(...(only.points ?? []).map((point) => point.accelerators)))} accelerators`;
  const busy = summary?.warm_au_percent ?? summary?.cold_au_percent;
  if (busy && only.epochs?.length) return `${what}: ${percent(busy.mean)} busy`;
  const [fast] = ofCells(only);
  if (fast) return `Reads at up to ${fast.value}`;
  return what || `stoker bench ${only.command}`;
}

/// `± 0.3`, and of how many.
function spread(mean: Mean, format: (value: number) => string): string {
  if (mean.low === undefined || mean.high === undefined) return mean.count === 1 ? "one repetition, no interval" : "";
  return `± ${format((mean.high - mean.low) / 2)} (n = ${mean.count})`;
}

export function tiles(report: Report): Tile[] {
  const found: Tile[] = [];
  const { summary } = report;
  const epochs = report.epochs ?? [];
  if (summary?.cold_au_percent) found.push({ label: "Busy, cold", value: percent(summary.cold_au_percent.mean), note: spread(summary.cold_au_percent, percent) });
  if (summary?.warm_au_percent) found.push({ label: "Busy, warm", value: percent(summary.warm_au_percent.mean), note: spread(summary.warm_au_percent, percent) });
  if (summary && epochs.length) {
    const speed = summary.samples_per_second;
    found.push({ label: `${sample(report)} a second`, value: figure(speed.mean), note: spread(speed, figure) });
  }
  const shares = epochs.flatMap((epoch) => epoch.share_of_bound_percent ?? []);
  if (shares.length) found.push({ label: "Share of the bound", value: percent(shares.reduce((a, b) => a + b, 0) / shares.length), note: "of what the target could give" });
  for (const [place, points] of summary && !epochs.length ? [...places(report)].slice(0, 6) : []) {
    const count = most(points, summary!.pass_au_percent);
    const label = place ? `Kept busy, ${place}` : "Accelerators kept busy";
    found.push({ label, value: count === undefined ? "none" : figure(count), note: `at ${figure(summary!.pass_au_percent)} % or more` });
  }
  if (summary?.limited_by) found.push({ label: "Limited by", value: summary.limited_by, note: "" });
  found.push(...ofCells(report));
  for (const sync of syncs(report).slice(0, 1)) found.push({ label: "Sync", value: seconds(sync.seconds), note: `${bytes(sync.bytes)} of ${sync.store}` });
  return found;
}

function ofCells(report: Report): Tile[] {
  const all = cells(report);
  const reads = all.filter((cell) => cell.phase.startsWith("read"));
  const best = (value: (cell: (typeof all)[number]) => number) => reads.reduce((best, cell) => (value(cell) > value(best) ? cell : best), reads[0]!);
  if (!reads.length) return [];
  const place = (cell: (typeof all)[number]) => `${binary(cell.file_bytes)} × ${cell.threads} threads`;
  const [fast, many] = [best((cell) => cell.bytes_per_second), best((cell) => cell.files_per_second)];
  return [
    { label: "Best read", value: rate(fast.bytes_per_second), note: place(fast) },
    { label: "Most files", value: `${figure(many.files_per_second)}/s`, note: place(many) },
  ];
}
