// The result in one sentence, and its most telling figures.
import { binary, bytes, figure, percent, rate, seconds } from "./format";
import { cells, type Mean, type Named, type Report, sample, syncs } from "./report";

export interface Tile {
  label: string;
  value: string;
  note: string;
}

const times = (report: Report) =>
  report.accelerators ? `${figure(report.accelerators)} × ${(report.accelerator ?? "accelerator").toUpperCase()}` : (report.accelerator ?? "").toUpperCase();

/// The most accelerators that still pass, of points that were tried at one place.
function most(report: Report): number | undefined {
  const pass = report.summary?.pass_au_percent;
  const points = report.points ?? [];
  if (pass === undefined || new Set(points.map((point) => JSON.stringify(point.at ?? {}))).size > 1) return undefined;
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
  const what = [only.workload, times(only)].filter(Boolean).join(" on ");
  const largest = most(only);
  if (largest !== undefined && only.points?.length) return `${only.workload ?? "The loop"} keeps ${figure(largest)} × ${(only.accelerator ?? "accelerators").toUpperCase()} busy`;
  const busy = summary?.warm_au_percent ?? summary?.cold_au_percent;
  if (busy && only.epochs?.length) return `${what}: ${percent(busy.mean)} busy`;
  if (cells(only).length) return `Files of each size by each number of threads`;
  return what || `stoker bench ${only.command}`;
}

/// `± 0.3`, and of how many.
function spread(mean: Mean, format: (value: number) => string): string {
  if (mean.low === undefined || mean.high === undefined) return mean.count === 1 ? "one repetition, no interval" : "";
  return `± ${format((mean.high - mean.low) / 2)} over ${mean.count}`;
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
  const largest = most(report);
  if (largest !== undefined && report.points?.length) found.push({ label: "Accelerators kept busy", value: figure(largest), note: `at ${figure(summary!.pass_au_percent)} % or more` });
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
