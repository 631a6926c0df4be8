// Files of each size by each number of threads: a heat map a phase, a map of the ratio of two sweeps, and both regimes.
import type { Chart, HeatChart } from "../chart";
import { binary, figure, rate, seconds } from "../format";
import { average, type Cell, cells, isShort, type Named, type Regime, regimes } from "../report";

export const sorted = (values: number[]) => [...new Set(values)].sort((a, b) => a - b);
export const phases = (found: Cell[]) => [...new Set(found.map((cell) => cell.phase))];
export const capital = (word: string) => word.charAt(0).toUpperCase() + word.slice(1);
export const of = (reports: Named[], name: string) => (reports.length > 1 ? `: ${name}` : "");

/// Cells of the most ranks: fewer are steps on the way there.
export function most(found: Cell[]): Cell[] {
  const ranks = Math.max(...found.map((cell) => cell.ranks));
  return found.filter((cell) => cell.ranks === ranks);
}

/// The mean of repeated cells.
export function value(found: Cell[], of: (cell: Cell) => number): number | null {
  return found.length ? average(found.map(of)) : null;
}

/// What a phase is measured in: bytes where it moves any, else files.
export function measure(found: Cell[]): { moves: boolean; of: (cell: Cell) => number } {
  const moves = found.some((cell) => cell.bytes_per_second > 0);
  return { moves, of: (cell) => (moves ? cell.bytes_per_second : cell.files_per_second) };
}

/// One unit for a whole map, so that its cells are figures alone.
function units(moves: boolean, most: number): { name: string; size: number } {
  if (!moves) return { name: "files a second", size: 1 };
  if (most >= 1e11) return { name: "GB/s", size: 1e9 };
  return { name: "MB/s", size: 1e6 };
}

/// How often cells were repeated.
function means(found: Cell[]): string {
  const times = Math.max(...found.map((cell) => cell.repetition));
  return times > 1 ? ` Means of ${figure(times)} repetitions.` : "";
}

/// Whether what was read came from the storage.
function state(found: Cell[]): string {
  const cold = found.filter((cell) => cell.cold).length;
  if (cold === found.length) return "cold";
  return cold ? `${cold} of ${found.length} cold` : "not cold";
}

/// A map of a phase, by size and threads.
function map(all: Cell[], of: (here: Cell[]) => number | null): Pick<HeatChart, "columns" | "rows" | "rowsLabel" | "columnsLabel"> {
  const [threads, sizes] = [sorted(all.map((cell) => cell.threads)), sorted(all.map((cell) => cell.file_bytes))];
  const rows = sizes.map((size) => {
    const here = threads.map((count) => all.filter((cell) => cell.file_bytes === size && cell.threads === count));
    return { label: binary(size), cells: here.map(of), short: here.map((some) => some.some(isShort)) };
  });
  return { columns: threads.map(figure), rows, rowsLabel: "size", columnsLabel: "threads" };
}

/// For each phase a map of each sweep, and before those of two the map of their ratio.
export function heat(reports: Named[]): Chart[] {
  const all = phases(reports.flatMap(({ report }) => cells(report)));
  return all.flatMap((phase) => [...ratio(reports, phase), ...reports.flatMap((named, run) => own(named, phase, reports, run))]);
}

function own({ name, report }: Named, phase: string, reports: Named[], run: number): Chart[] {
  const found = cells(report).filter((cell) => cell.phase === phase);
  if (!found.length) return [];
  const some = most(found);
  const { moves, of: of_ } = measure(some);
  const unit = units(moves, Math.max(...some.map(of_)));
  const drawn = map(some, (here) => value(here, of_));
  if (drawn.columns.length * drawn.rows.length < 2) return [];
  return [
    {
      type: "heat",
      id: `heat-${phase}`,
      title: `${capital(phase)}: ${moves ? `throughput in ${unit.name}` : unit.name}`,
      sub: `By size of file and number of threads${some[0]!.ranks > 1 ? `, ${some[0]!.ranks} ranks together` : ""}${of(reports, name)}.${means(some)}`,
      kinds: [report.kind],
      ...(reports.length > 1 ? { run } : {}),
      ...drawn,
      format: (value) => figure(value / unit.size),
      state: state(some),
    },
  ];
}

/// Of two sweeps, how many times as fast the second was, where both were.
function ratio(reports: Named[], phase: string): Chart[] {
  const [first, second] = reports;
  if (reports.length !== 2 || !first || !second) return [];
  const [left, right] = [first, second].map(({ report }) => most(cells(report).filter((cell) => cell.phase === phase))) as [Cell[], Cell[]];
  const in_ = (cell: Cell, others: Cell[]) => others.some((other) => other.file_bytes === cell.file_bytes && other.threads === cell.threads);
  const both = [...left.filter((cell) => in_(cell, right)), ...right.filter((cell) => in_(cell, left))];
  if (!both.length) return [];
  const { moves, of } = measure(both);
  const side = (here: Cell[], own: Cell[]) => value(here.filter((cell) => own.includes(cell)), of);
  const drawn = map(both, (here) => {
    const [was, is] = [side(here, left), side(here, right)];
    return was && is ? is / was : null;
  });
  const [was, is] = [state(left), state(right)];
  return [
    {
      type: "heat",
      id: `ratio-${phase}`,
      title: `${capital(phase)}: ${second.name} against ${first.name}`,
      sub: `How many times the ${moves ? "throughput" : "files a second"}, by size of file and number of threads.`,
      kinds: [...new Set([first.report.kind, second.report.kind])],
      wide: true,
      ...drawn,
      ratio: true,
      format: (value) => `×${value >= 9.95 ? figure(value) : value.toFixed(2)}`,
      state: was === is ? was : `${is} against ${was}`,
    },
  ];
}

const said = (value: number | undefined, format: (value: number) => string) => (value === undefined ? "–" : format(value));

/// The size between both with its interval, open where that reaches beyond what was measured.
function knee(figures: Record<string, number>): string {
  const [at, low, high] = ["knee_bytes", "knee_low_bytes", "knee_high_bytes"].map((name) => figures[name]);
  if (at === undefined) return "–";
  if (low === undefined && high === undefined) return binary(at);
  return `${binary(at)} (${said(low, binary)} to ${said(high, binary)})`;
}

/// What limits small files and what large ones, and where one gives way to the other.
export function twoRegimes(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }): Chart[] => {
    const row = ({ phase, threads, ranks, figures }: Regime) => [
      `${phase}, ${figure(threads)} ${threads === 1 ? "thread" : "threads"}${ranks > 1 ? ` × ${ranks} ranks` : ""}`,
      said(figures["latency_seconds"], seconds),
      said(figures["files_per_second"], (value) => `${figure(value)}/s`),
      said(figures["bytes_per_second"], rate),
      knee(figures),
      said(figures["r_squared"], (value) => value.toFixed(2)),
    ];
    const rows = regimes(report).map(row);
    if (!rows.length) return [];
    return [
      {
        type: "table",
        id: "regimes",
        title: "Two regimes",
        sub: `Files below the knee are limited by requests, files above it by bandwidth; by a fit, whose share of explained variance is R²${of(reports, name)}.`,
        kinds: [report.kind],
        wide: true,
        columns: ["", "latency", "small files", "large files", "knee", "R²"],
        rows,
      },
    ];
  });
}

