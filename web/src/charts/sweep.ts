// Files of each size by each number of threads: a heat map a phase, and latencies by size.
import type { Chart, Line } from "../chart";
import { binary, figure, rate, seconds } from "../format";
import { type Cell, cells, type Named } from "../report";

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

export function heat(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }) => {
    const found = cells(report);
    return phases(found).flatMap((phase): Chart[] => {
      const all = most(found.filter((cell) => cell.phase === phase));
      const [threads, sizes] = [sorted(all.map((cell) => cell.threads)), sorted(all.map((cell) => cell.file_bytes))];
      if (threads.length * sizes.length < 2) return [];
      const moves = all.some((cell) => cell.bytes_per_second > 0);
      const of_ = (cell: Cell) => (moves ? cell.bytes_per_second : cell.files_per_second);
      const rows = sizes.map((size) => ({
        label: binary(size),
        cells: threads.map((count) => value(all.filter((cell) => cell.file_bytes === size && cell.threads === count), of_)),
      }));
      return [
        {
          type: "heat",
          id: `heat-${phase}`,
          title: `${capital(phase)}: ${moves ? "throughput" : "files a second"}`,
          sub: `By size of file and number of threads${all[0]!.ranks > 1 ? `, ${all[0]!.ranks} ranks together` : ""}${of(reports, name)}.`,
          kinds: [report.kind],
          columns: threads.map(figure),
          rows,
          rowsLabel: "size",
          columnsLabel: "threads",
          format: moves ? rate : (count) => `${figure(count)}/s`,
        },
      ];
    });
  });
}

const PERCENTILES = ["p50", "p90", "p99", "p99.9", "max"];

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
        return { label: `${figure(count)} ${count === 1 ? "thread" : "threads"}`, format: seconds, tick: seconds, lines: lines.filter((line) => line.points.length > 0), limits: [], log10: true };
      });
      if (!panels.some((panel) => panel.lines.some((line) => line.points.length > 1))) return [];
      return [
        {
          type: "lines",
          id: `latency-${phase}`,
          title: `${capital(phase)}: latency`,
          sub: `From open to the last byte, by size of file, with the fewest and the most threads${of(reports, name)}.`,
          kinds: [report.kind],
          x: { label: "size of file", format: binary, log2: true },
          panels,
        },
      ];
    });
  });
}
