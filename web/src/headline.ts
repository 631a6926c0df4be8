// The result in one sentence, and its most telling figures.
import { binary, bytes, figure, percent, rate, seconds } from "./format";
import { answer, curves, demanded, judged, most, passMark, together } from "./judge";
import { accelerators, average, type Cell, cells, checkpoints, isCeiling, isInvalid, isShort, job, type Mean, type Named, type Point, type Report, sample, steps, syncs } from "./report";

export interface Tile {
  label: string;
  value: string;
  note: string;
}

export function headline(reports: Named[]): string {
  const only = reports[0]?.report;
  if (!only) return "No report";
  if (reports.length > 1) {
    const workloads = [...new Set(reports.map(({ report }) => job(report) ?? report.command))];
    return `${reports.length} runs of ${workloads.join(", ")}${ofSeveral(reports.map(({ report }) => report))}`;
  }
  const what = [job(only), accelerators(only)].filter(Boolean).join(" on ");
  if (isInvalid(only)) return `${what}: no verdict`;
  const found = judged(only);
  if (isCeiling(only)) return `The ceiling of this machine, with nothing to read: ${ofSearch(only) ?? (found ? `${what}, ${percent(found.percent)} busy` : what)}`;
  if (found) return `${what}: ${percent(found.percent)} busy ${found.where}`.trimEnd();
  return ofSearch(only) ?? ofCurves(only) ?? ofCheckpoints(only) ?? ofSweep(only) ?? ofData(only) ?? (what || `stoker bench ${only.command}`);
}

/// From the least to the best of what they are judged by, where all are judged by the same.
function ofSeveral(reports: Report[]): string {
  const range = (found: (number | undefined)[], format: (value: number) => string) => {
    const values = found.flatMap((value) => value ?? []);
    const [least, best] = [Math.min(...values), Math.max(...values)].map(format);
    return values.length < reports.length ? undefined : least === best ? `${best}` : `${least} to ${best}`;
  };
  const busy = range(reports.map((report) => (isInvalid(report) ? undefined : judged(report)?.percent)), percent);
  if (busy) return `: ${busy} busy`;
  const most = range(reports.map((report) => coldest(report)?.bytes_per_second), rate);
  return most ? `: cold reads at up to ${most}` : ", compared";
}

/// Where nobody tried more.
const atLeast = (points: Point[], count: number) => (points.some((point) => point.accelerators > count) ? "" : "at least ");
const kept = (report: Report, count: number) => accelerators({ ...report, accelerators: count });

function ofSearch(report: Report): string | undefined {
  const found = answer(report);
  if (!found) return undefined;
  const loop = job(report) ?? "The loop";
  return found.count ? `${loop} keeps ${atLeast(report.points ?? [], found.count)}${kept(report, found.count)} busy` : `${loop} keeps not even ${kept(report, 1)} busy`;
}

function ofCurves(report: Report): string | undefined {
  const [found, pass, loop] = [curves(report), passMark(report), job(report) ?? "The loop"];
  if (!found.length) return undefined;
  // What a search left that was interrupted has no answer.
  if (pass === undefined || report.kind === "measured") return [job(report), accelerators({ ...report, accelerators: 0 })].filter(Boolean).join(" on ");
  const counts = found.map(([place, points]): [string, number] => [place, most(points, pass) ?? 0]);
  const [first, last] = [counts[0]!, counts[counts.length - 1]!];
  if (counts.length > 1 && counts.every(([place]) => place === "cold" || place === "warm")) {
    const each = counts.map(([place, count], at) => `${count ? atLeast(found[at]![1], count) : ""}${figure(count)} ${place}`);
    return `${loop} on ${accelerators({ ...report, accelerators: 0 })}: ${each.join(", ")} kept busy`;
  }
  if (counts.length > 1) return `${loop} keeps ${figure(first[1])} to ${last[1] ? atLeast(found[found.length - 1]![1], last[1]) : ""}${kept(report, last[1])} busy, by its hits`;
  return first[1] ? `${loop} keeps ${atLeast(found[0]![1], first[1])}${kept(report, first[1])} busy` : `${loop} keeps none of its accelerators busy`;
}

function ofCheckpoints(report: Report): string | undefined {
  const worst = (what: string) => checkpoints(report).filter((pass) => pass.what === what).reduce((worst, pass) => Math.max(worst, pass.seconds), 0);
  const [write, read] = [worst("write"), worst("read")];
  if (!write && !read) return undefined;
  const cold = checkpoints(report).some((pass) => pass.what === "read" && pass.cold) ? "" : ", not proven cold";
  const parts = [write ? `written in ${seconds(write)}` : "", read ? `read in ${seconds(read)}${cold}` : ""];
  return `${job(report) ?? "State of a model"}: ${parts.filter(Boolean).join(", ")}`;
}

/// What `bench data` did last, of a whole set.
function ofData(report: Report): string | undefined {
  const last = steps(report).filter((step) => step.seconds > 0).pop();
  if (!last) return steps(report).length ? "The data set was there" : undefined;
  const done: Record<string, string> = { make: "made", copy: "copied", sync: "copied", verify: "verified" };
  const wrong = last.wrong_files ? `, ${figure(last.wrong_files)} files are wrong` : "";
  return `${job(report) ?? "Data set"}: ${bytes(last.bytes)} in ${figure(last.files)} files ${done[last.step] ?? last.step} in ${seconds(last.seconds)}${wrong}`;
}

/// Reads that lasted long enough to tell.
const reads = (report: Report) => cells(report).filter((cell) => cell.phase.startsWith("read") && !isShort(cell));
const fastest = (found: Cell[], value: (cell: Cell) => number) => found.reduce((best, cell) => (value(cell) > value(best) ? cell : best));

/// The fastest read of what was not in memory.
function coldest(report: Report): Cell | undefined {
  const cold = reads(report).filter((cell) => cell.cold);
  return cold.length ? fastest(cold, (cell) => cell.bytes_per_second) : undefined;
}

function ofSweep(report: Report): string | undefined {
  const all = cells(report).filter((cell) => cell.phase.startsWith("read"));
  if (!all.length) return undefined;
  if (!reads(report).length) return "A sweep whose reads were over too soon to tell";
  const best = coldest(report);
  return best ? `Reads at up to ${rate(best.bytes_per_second)}, cold` : "A warm sweep: its reads may come from memory";
}

/// `± 0.3`, and of how many.
function spread(mean: Mean, format: (value: number) => string): string {
  if (mean.low === undefined || mean.high === undefined) return mean.count === 1 ? "one repetition, no interval" : "";
  return `± ${format((mean.high - mean.low) / 2)} (n = ${mean.count})`;
}

export function tiles(report: Report): Tile[] {
  // Figures of a run that doesn't tell would be taken for its result.
  if (isInvalid(report)) return [];
  const found: Tile[] = [];
  const { summary } = report;
  const epochs = report.epochs ?? [];
  if (summary?.cold_au_percent) found.push({ label: "Busy, cold", value: percent(summary.cold_au_percent.mean), note: spread(summary.cold_au_percent, percent) });
  if (summary?.warm_au_percent) found.push({ label: "Busy, warm", value: percent(summary.warm_au_percent.mean), note: spread(summary.warm_au_percent, percent) });
  if (summary && epochs.length) {
    const [speed, wanted] = [summary.samples_per_second, demanded(report)];
    found.push({ label: `${sample(report)} a second`, value: figure(speed.mean), note: wanted ? `of ${figure(wanted)} that they could take` : spread(speed, figure) });
  }
  const shares = epochs.flatMap((epoch) => epoch.share_of_bound_percent ?? []);
  if (shares.length) found.push({ label: "Share of the bound", value: percent(average(shares)), note: "of what the target could give" });
  found.push(...ofPoints(report));
  if (summary?.limited_by && summary.limited_by !== "unknown") found.push({ label: "Limited by", value: summary.limited_by, note: "" });
  found.push(...ofCells(report), ...ofPasses(report));
  for (const step of steps(report).filter((step) => step.seconds > 0)) found.push({ label: step.step, value: rate(step.bytes_per_second), note: `${bytes(step.bytes)} in ${seconds(step.seconds)}` });
  for (const sync of syncs(report).slice(0, 1)) found.push({ label: "Sync", value: seconds(sync.seconds), note: `${bytes(sync.bytes)} of ${sync.store}` });
  return found;
}

/// Of a search or of curves: how many are kept busy, and what that takes.
function ofPoints(report: Report): Tile[] {
  const [pass, found, searched] = [passMark(report), curves(report), answer(report)];
  const note = (points: Point[], count: number | null | undefined) => {
    if (count && atLeast(points, count)) return `${pass === undefined ? "" : `at ${figure(pass)} % or more; `}nobody tried more`;
    const next = together(points).filter((point) => point.accelerators > (count ?? 0)).sort((a, b) => a.accelerators - b.accelerators)[0];
    const fails = next && pass !== undefined && next.au_percent < pass ? `; ${figure(next.accelerators)} reach ${percent(next.au_percent)}` : "";
    return pass === undefined ? "" : `at ${figure(pass)} % or more${fails}`;
  };
  const of = (count: number): Tile[] => {
    const wanted = demanded(report, count);
    return wanted ? [{ label: "They take", value: `${figure(wanted)}/s`, note: sample(report) }] : [];
  };
  if (searched) return [{ label: "Accelerators kept busy", value: searched.count === null ? "none" : figure(searched.count), note: note(report.points ?? [], searched.count) }, ...of(searched.count ?? 0)];
  if (pass === undefined || report.kind === "measured") return [];
  const tiles = found.slice(0, 6).map(([place, points]): Tile => {
    const count = most(points, pass);
    return { label: place ? `Kept busy, ${place}` : "Accelerators kept busy", value: count === undefined ? "none" : figure(count), note: note(points, count) };
  });
  return found.length === 1 ? [...tiles, ...of(most(found[0]![1], pass) ?? 0)] : tiles;
}

function ofCells(report: Report): Tile[] {
  const all = reads(report);
  if (!all.length) return [];
  const cold = all.filter((cell) => cell.cold);
  const [state, some] = cold.length ? ["cold", cold] : ["warm", all];
  const doubt = cold.length ? "" : ", maybe of memory";
  const place = (cell: Cell) => `${binary(cell.file_bytes)} × ${cell.threads} ${cell.threads === 1 ? "thread" : "threads"}${doubt}`;
  const [fast, many] = [fastest(some, (cell) => cell.bytes_per_second), fastest(some, (cell) => cell.files_per_second)];
  return [
    { label: `Best read, ${state}`, value: rate(fast.bytes_per_second), note: place(fast) },
    { label: `Most files, ${state}`, value: `${figure(many.files_per_second)}/s`, note: place(many) },
  ];
}

function ofPasses(report: Report): Tile[] {
  return ["write", "read"].flatMap((what): Tile[] => {
    const some = checkpoints(report).filter((pass) => pass.what === what);
    if (!some.length) return [];
    const least = some.reduce((least, pass) => (pass.bytes_per_second < least.bytes_per_second ? pass : least));
    const state = what === "read" ? (least.cold ? ", cold" : ", not proven cold") : ", durable";
    return [{ label: `Slowest ${what}${state}`, value: rate(least.bytes_per_second), note: `${bytes(least.bytes)} in ${seconds(least.seconds)}` }];
  });
}
