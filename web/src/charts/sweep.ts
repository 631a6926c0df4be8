// Files of each size by each number of threads: a heat map a phase, and latencies by size.
import type { Chart, Line } from "../chart";
import { binary, figure, rate, seconds } from "../format";
import { type Cell, cells, type Named, type Regime, regimes, type Report } from "../report";

const sorted = (values: number[]) => [...new Set(values)].sort((a, b) => a - b);
const phases = (found: Cell[]) => [...new Set(found.map((cell) => cell.phase))];
const capital = (word: string) => word.charAt(0).toUpperCase() + word.slice(1);
const of = (reports: Named[], name: string) => (reports.length > 1 ? `: ${name}` : "");

/// Cells of the most ranks: fewer are steps on the way there.
function most(found: Cell[]): Cell[] {
  const ranks = Math.max(...found.map((cell) => cell.ranks));
  return found.filter((cell) => cell.ranks === ranks);
}

const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/// The mean of repeated cells.
function value(found: Cell[], of: (cell: Cell) => number): number | null {
  return found.length ? average(found.map(of)) : null;
}

/// One unit for a whole map, so that its cells are figures alone.
function units(moves: boolean, most: number): { name: string; size: number } {
  if (!moves) return { name: "files a second", size: 1 };
  if (most >= 1e11) return { name: "GB/s", size: 1e9 };
  return { name: "MB/s", size: 1e6 };
}

export function heat(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }) => {
    const found = cells(report);
    return phases(found).flatMap((phase): Chart[] => {
      const all = most(found.filter((cell) => cell.phase === phase));
      const [threads, sizes] = [sorted(all.map((cell) => cell.threads)), sorted(all.map((cell) => cell.file_bytes))];
      if (threads.length * sizes.length < 2) return [];
      const moves = all.some((cell) => cell.bytes_per_second > 0);
      const of_ = (cell: Cell) => (moves ? cell.bytes_per_second : cell.files_per_second);
      const unit = units(moves, Math.max(...all.map(of_)));
      const rows = sizes.map((size) => ({
        label: binary(size),
        cells: threads.map((count) => value(all.filter((cell) => cell.file_bytes === size && cell.threads === count), of_)),
      }));
      return [
        {
          type: "heat",
          id: `heat-${phase}`,
          title: `${capital(phase)}: ${moves ? `throughput in ${unit.name}` : unit.name}`,
          sub: `By size of file and number of threads${all[0]!.ranks > 1 ? `, ${all[0]!.ranks} ranks together` : ""}${of(reports, name)}.`,
          kinds: [report.kind],
          columns: threads.map(figure),
          rows,
          rowsLabel: "size",
          columnsLabel: "threads",
          format: (value) => figure(value / unit.size),
        },
      ];
    });
  });
}

const PERCENTILES = ["p50", "p90", "p99", "p99.9", "max"];

const said = (value: number | undefined, format: (value: number) => string) => (value === undefined ? "–" : format(value));

/// What limits small files and what large ones, and where one gives way to the other.
export function twoRegimes(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }): Chart[] => {
    const row = ({ phase, threads, ranks, figures }: Regime) => [
      `${phase}, ${figure(threads)} ${threads === 1 ? "thread" : "threads"}${ranks > 1 ? ` × ${ranks} ranks` : ""}`,
      said(figures["latency_seconds"], seconds),
      said(figures["files_per_second"], (value) => `${figure(value)}/s`),
      said(figures["bytes_per_second"], rate),
      said(figures["knee_bytes"], binary),
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

function knees(report: Report, phase: string, threads: number): { label: string; value: number }[] {
  const here = regimes(report).filter((regime) => regime.phase === phase && regime.threads === threads);
  const value = here.reduce((most, regime) => (regime.ranks >= most.ranks ? regime : most), here[0]!)?.figures["knee_bytes"];
  return value === undefined ? [] : [{ label: `knee ${binary(value)}`, value }];
}

/// Latency by size at the fewest and at the most threads, for each phase that says it.
export function latency(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }) => {
    const found = cells(report).filter((cell) => Object.keys(cell.latency).length > 0);
    return phases(found).flatMap((phase): Chart[] => {
      const all = most(found.filter((cell) => cell.phase === phase));
      const threads = sorted(all.map((cell) => cell.threads));
      const ends = [...new Set([threads[0]!, threads[threads.length - 1]!])];
      const panels = ends.map((count) => {
        const lines = PERCENTILES.map((percentile, colour): Line => {
          const sizes = sorted(all.filter((cell) => cell.threads === count).map((cell) => cell.file_bytes));
          const points = sizes.map((size): [number, number] => {
            const here = all.filter((cell) => cell.threads === count && cell.file_bytes === size);
            return [size, value(here, (cell) => cell.latency[percentile] ?? 0) ?? 0];
          });
          return { label: percentile, colour, dots: true, dashed: percentile === "max", points: points.filter(([, time]) => time > 0) };
        });
        return { label: `${figure(count)} ${count === 1 ? "thread" : "threads"}`, format: seconds, tick: seconds, lines: lines.filter((line) => line.points.length > 0), limits: [], knees: knees(report, phase, count), log10: true };
      });
      if (!panels.some((panel) => panel.lines.some((line) => line.points.length > 1))) return [];
      return [
        {
          type: "lines",
          id: `latency-${phase}`,
          title: `${capital(phase)}: latency`,
          sub: `${all.some((cell) => cell.bytes_per_second > 0) ? "From open to the last byte" : "Of one file"}, by its size, with the fewest and the most threads${of(reports, name)}.`,
          kinds: [report.kind],
          x: { label: "size of file", format: binary, log2: true },
          panels,
        },
      ];
    });
  });
}
