// What epochs say: utilisation, samples a second, where the time went, and how runs compare in throughput.
import { type Bar, type Chart, kinds, type Line, type Mark } from "../chart";
import { figure, percent, seconds } from "../format";
import { demanded, passMark } from "../judge";
import { average, type Epoch, isInvalid, type Named, range, type Report, sample } from "../report";

/// The colour of each cause of a wait; the same in every report.
const CAUSES = ["start", "store", "requests", "latency", "network", "disk", "cpu", "loader", "barrier", "straggler", "unknown"];

interface Group {
  epoch: number;
  cold: boolean;
  epochs: Epoch[];
}

/// Epochs of the same number, over the repetitions.
function byNumber(report: Report): Group[] {
  const found = new Map<number, Group>();
  for (const epoch of report.epochs ?? []) {
    const group = found.get(epoch.epoch) ?? { epoch: epoch.epoch, cold: epoch.cold, epochs: [] };
    group.epochs.push(epoch);
    found.set(epoch.epoch, group);
  }
  return [...found.values()].sort((a, b) => a.epoch - b.epoch);
}

function mean(group: Group, value: (epoch: Epoch) => number | undefined): number | undefined {
  const values = group.epochs.map(value).filter((found) => found !== undefined);
  return values.length ? average(values) : undefined;
}

const called = (group: Group) => `epoch ${group.epoch}`;
const tag = (group: Group) => (group.cold ? "cold" : "warm");

/// Cold and warm have their colours; of several reports each has its own, paler where it was cold.
const coloured = (group: Group, several: boolean, run: number) => (several ? { colour: run, pale: group.cold } : { colour: group.cold ? "cold" : "warm" });

export function busy(reports: Named[]): Chart[] {
  const several = reports.length > 1;
  const groups = reports.map(({ name, report }, run) => ({
    label: several ? name : "",
    ...(several ? { run } : {}),
    bars: (isInvalid(report) ? [] : byNumber(report)).map((group): Bar => {
      const value = mean(group, (epoch) => epoch.au_percent) ?? 0;
      const marks: Mark[] = [];
      const bound = mean(group, (epoch) => epoch.bound_percent);
      const ceiling = mean(group, (epoch) => epoch.ceiling_percent);
      if (bound !== undefined) marks.push({ label: "bound", value: bound, style: "bound" });
      if (ceiling) marks.push({ label: "ceiling", value: ceiling, style: "ceiling" });
      const pass = passMark(report);
      if (pass !== undefined) marks.push({ label: `passes at ${figure(pass)} %`, value: pass, style: "pass" });
      return {
        label: called(group),
        tag: tag(group),
        text: percent(value),
        parts: [{ label: "utilisation", value, ...coloured(group, several, run) }],
        ...range(group.epochs.map((epoch) => epoch.au_percent)),
        marks,
      };
    }),
  }));
  if (!groups.some((group) => group.bars.length)) return [];
  return [
    {
      type: "bars",
      id: "busy",
      title: "Utilisation by epoch",
      sub: "The mean of the repetitions; the thin line spans them. The ceiling is this machine without storage, the bound what a probe says the target can give.",
      kinds: kinds(reports),
      max: 100,
      groups: groups.filter((group) => group.bars.length),
    },
  ];
}

export function rates(reports: Named[]): Chart[] {
  const unit = reports[0] ? sample(reports[0].report) : "samples";
  const several = reports.length > 1;
  const groups = reports.map(({ name, report }, run) => ({
    label: several ? name : "",
    ...(several ? { run } : {}),
    bars: byNumber(report).map((group): Bar => {
      const value = mean(group, (epoch) => epoch.samples_per_second) ?? 0;
      const wanted = demanded(report);
      return {
        label: called(group),
        tag: tag(group),
        text: wanted ? `${figure(value)} of ${figure(wanted)}/s` : `${figure(value)}/s`,
        marks: wanted ? [{ label: "what the accelerators could take", value: wanted, style: "wanted" }] : [],
        parts: [{ label: unit, value, ...coloured(group, several, run) }],
        ...range(group.epochs.map((epoch) => epoch.samples_per_second)),
      };
    }),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (!shown.length) return [];
  const title = `${unit[0]!.toUpperCase()}${unit.slice(1)} a second by epoch`;
  return [{ type: "bars", id: "rates", title, sub: "The mean of the repetitions; the thin line spans them. Beside it, what is demanded: all that the accelerators could take.", kinds: kinds(reports), groups: shown, apart: new Set(reports.map(({ report }) => report.workload)).size > 1 }];
}

/// Samples a second of each process over the epochs; nodes of many processes as a sum each.
export function processes(reports: Named[]): Chart[] {
  if (reports.length > 1) return [];
  return reports.flatMap(({ report }): Chart[] => {
    const unit = sample(report);
    const all = (report.epochs ?? []).filter((epoch) => epoch.repetition === (report.epochs?.[0]?.repetition ?? 1));
    const every = all.flatMap((epoch) => epoch.processes ?? []);
    const ranks = new Set(every.map((process) => process.rank));
    if (ranks.size < 2) return [];
    const byNode = ranks.size > 8;
    const key = (process: { node: string; rank: number }) => (byNode ? process.node : `process ${process.rank} on ${process.node}`);
    const sums = new Map<string, Map<number, number>>();
    for (const process of every) {
      const line = sums.get(key(process)) ?? new Map<number, number>();
      line.set(process.epoch, (line.get(process.epoch) ?? 0) + process.samples_per_second);
      sums.set(key(process), line);
    }
    const lines = [...sums].map(([label, line], colour): Line => ({ label, colour, dots: true, points: [...line] }));
    const whole = new Map<number, number>();
    for (const process of every) whole.set(process.epoch, (whole.get(process.epoch) ?? 0) + process.samples_per_second);
    const format = (value: number) => `${figure(value)}/s`;
    return [
      {
        type: "lines",
        id: "processes",
        title: `${unit[0]!.toUpperCase()}${unit.slice(1)} a second by ${byNode ? "node" : "process"}`,
        sub: `Each ${byNode ? "node" : "process"} over the epochs, and their sum.`,
        kinds: [report.kind],
        x: { label: "epoch", format: figure, whole: true },
        panels: [
          { label: "each", format, tick: figure, lines, limits: [], min: 0 },
          { label: "together", format, tick: figure, lines: [{ label: "sum", colour: "ink", dots: true, points: [...whole] }], limits: [], min: 0 },
        ],
      },
    ];
  });
}

/// Where the time of all accelerators went, by epoch.
export function waits(reports: Named[]): Chart[] {
  const totals = new Map<string, number>();
  let all = 0;
  const groups = reports.map(({ name, report }, run) => ({
    label: reports.length > 1 ? name : "",
    ...(reports.length > 1 ? { run } : {}),
    bars: byNumber(report).flatMap((group): Bar[] => {
      const causes = new Map<string, number>();
      for (const epoch of group.epochs)
        for (const [cause, wait] of Object.entries(epoch.wait_seconds_by_cause ?? {}))
          if (wait > 0) causes.set(cause, (causes.get(cause) ?? 0) + wait);
      const waited = [...causes.values()].reduce((sum, wait) => sum + wait, 0);
      const lasted = group.epochs.reduce((sum, epoch) => sum + epoch.seconds, 0) * (report.accelerators ?? 1);
      if (lasted <= 0) return [];
      const whole = Math.max(lasted, waited);
      const parts = [{ label: "computing", value: (100 * (whole - waited)) / whole, colour: "computing" as string | number }];
      all += whole;
      totals.set("computing", (totals.get("computing") ?? 0) + whole - waited);
      for (const cause of [...CAUSES, ...[...causes.keys()].filter((cause) => !CAUSES.includes(cause))]) {
        const wait = causes.get(cause);
        if (wait === undefined) continue;
        totals.set(cause, (totals.get(cause) ?? 0) + wait);
        parts.push({ label: cause, value: (100 * wait) / whole, colour: colour(cause) });
      }
      const of = (report.accelerators ?? 1) / (group.epochs[0]?.processes?.length || 1);
      return [{ label: called(group), tag: tag(group), text: `${seconds(waited / group.epochs.length)} waited`, parts }, ...slowest(group, of)];
    }),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (totals.size < 2) return [];
  const legend = [...totals].map(([label, value]) => ({
    label,
    colour: label === "computing" ? "computing" : colour(label),
    text: percent((100 * value) / all),
  }));
  const sub = "The time of all accelerators together: computing, or waiting for the store, for leave to send requests, for disk, processor, loader, or each other; start: steps that don't count, while batches are read ahead.";
  return [{ type: "bars", id: "waits", title: "Where the time went", sub, kinds: kinds(reports), max: 100, groups: shown, legend }];
}

/// The rank that others waited for the longest: what it waited for itself, with as many accelerators as each has.
function slowest(group: Group, accelerators: number): Bar[] {
  const ranks = new Map<string, { waits: Map<string, number>; lasted: number }>();
  for (const process of group.epochs.flatMap((epoch) => epoch.processes ?? [])) {
    const name = `rank ${process.rank} on ${process.node}`;
    const rank = ranks.get(name) ?? { waits: new Map<string, number>(), lasted: 0 };
    for (const [cause, wait] of Object.entries(process.wait_seconds_by_cause ?? {})) rank.waits.set(cause, (rank.waits.get(cause) ?? 0) + wait);
    rank.lasted += process.seconds * Math.max(1, accelerators);
    ranks.set(name, rank);
  }
  const own = (waits: Map<string, number>) => [...waits].reduce((sum, [cause, wait]) => sum + (cause === "barrier" ? 0 : wait), 0);
  const known = [...ranks].filter(([, rank]) => rank.waits.size && rank.lasted > 0);
  if (known.length < 2) return [];
  const [name, { waits, lasted }] = known.reduce((most, rank) => (own(rank[1].waits) > own(most[1].waits) ? rank : most));
  const waited = [...waits.values()].reduce((sum, wait) => sum + wait, 0);
  const whole = Math.max(lasted, waited);
  const parts = [{ label: "computing", value: (100 * (whole - waited)) / whole, colour: "computing" }];
  for (const cause of CAUSES) if (waits.get(cause)) parts.push({ label: cause, value: (100 * waits.get(cause)!) / whole, colour: colour(cause) });
  return [{ label: `slowest: ${name}`, text: `${seconds(waited / group.epochs.length)} waited`, parts, within: true }];
}

function colour(cause: string): string {
  return CAUSES.includes(cause) ? `cause-${cause}` : "cause-unknown";
}
