// Reports side by side: which storage feeds which model on how many accelerators, and at what rate.
import { type Bar, type BarChart, type Chart, kinds } from "../chart";
import { figure, percent } from "../format";
import { answer, judged, passMark } from "../judge";
import { accelerators, average, isCeiling, isInvalid, job, type Named, range, type Report, sample } from "../report";

const named = (report: Report) => [job(report), accelerators(report)].filter(Boolean).join(", ");

interface Fed {
  text: string;
  tone: "good" | "bad" | "";
}

/// What a run says of its storage; nothing where it is none of a training loop.
function fed(report: Report): Fed | undefined {
  if (isInvalid(report) || (report.summary && !report.finished)) return { text: "no verdict", tone: "" };
  const [found, own, pass] = [answer(report), judged(report), passMark(report)];
  if (found) return { text: found.count === null ? "none" : `${figure(found.count)} busy`, tone: found.count === null ? "bad" : "good" };
  if (!own || pass === undefined) return undefined;
  if (isCeiling(report)) return { text: `${percent(own.percent)}, nothing read`, tone: "" };
  const passes = report.summary?.passed ?? own.percent >= pass;
  return { text: `${passes ? "✓" : "✗"} ${percent(own.percent)}`, tone: passes ? "good" : "bad" };
}

/// Storage by model and accelerators. Of a search the number is the answer, so that its column has none.
export function feeds(reports: Named[]): Chart[] {
  const found = reports.flatMap(({ report }) => {
    const cell = fed(report);
    const column = answer(report) ? named({ ...report, accelerators: 0 }) : named(report);
    return cell ? [{ row: report.kind === "simulated" ? `${report.target}, simulated` : report.target, column, cell, report }] : [];
  });
  if (found.length < 2) return [];
  const [rows, columns] = [[...new Set(found.map((one) => one.row))], [...new Set(found.map((one) => one.column))]];
  const at = (row: string, column: string) => found.filter((one) => one.row === row && one.column === column).map((one) => one.cell);
  const cells = rows.map((row) => columns.map((column) => at(row, column)));
  const tone = (all: Fed[]) => (all.some((one) => one.tone === "bad") ? "bad" : (all[0]?.tone ?? ""));
  return [
    {
      type: "table",
      id: "feeds",
      title: "Which storage feeds what",
      sub: "The utilisation that each run is judged by, and whether it passes: of the worst epoch, of a simulation the mean. Of searches, how many accelerators are kept busy.",
      kinds: kinds(reports),
      wide: true,
      columns: ["storage", ...columns],
      rows: rows.map((row, index) => [row, ...cells[index]!.map((all) => all.map((one) => one.text).join(" · ") || "–")]),
      tones: cells.map((row) => ["", ...row.map(tone)]),
    },
  ];
}

/// A group for each workload, accelerator and number of them; bars for each target.
export function compared(reports: Named[]): Chart[] {
  if (reports.length < 2) return [];
  const targets = new Set(reports.map(({ report }) => report.target));
  const mixed = kinds(reports).length > 1;
  const groups = new Map<string, Bar[]>();
  for (const [colour, { name, report }] of reports.entries()) {
    const bars = phases(report).map(([phase, values]): Bar => ({
      label: targets.size === reports.length ? report.target : `${report.target} – ${name}`,
      tag: [phase, mixed ? report.kind : ""].filter(Boolean).join(", "),
      text: `${figure(average(values))}/s`,
      parts: [{ label: phase, value: average(values), colour, pale: phase === "cold" }],
      ...range(values),
    }));
    if (bars.length) groups.set(named(report), [...(groups.get(named(report)) ?? []), ...bars]);
  }
  if (!groups.size) return [];
  const unit = reports[0] ? sample(reports[0].report) : "samples";
  const chart: BarChart = {
    type: "bars",
    id: "compared",
    title: `${unit[0]!.toUpperCase()}${unit.slice(1)} a second by storage, model and accelerators`,
    sub: "The mean of the epochs, cold ones pale and apart; the thin line spans them.",
    kinds: kinds(reports),
    wide: true,
    groups: [...groups].map(([label, bars]) => ({ label, bars })),
    apart: new Set(reports.map(({ report }) => report.workload)).size > 1,
  };
  return [chart];
}

/// Samples a second of cold and of warm epochs; of the summary where there are no epochs.
function phases(report: Report): [string, number[]][] {
  const of = (cold: boolean) => (report.epochs ?? []).filter((epoch) => epoch.cold === cold).map((epoch) => epoch.samples_per_second);
  const found = ([["cold", of(true)], ["warm", of(false)]] as [string, number[]][]).filter(([, values]) => values.length);
  const mean = report.summary?.samples_per_second;
  return found.length || !mean?.count ? found : [["", [mean.mean]]];
}
