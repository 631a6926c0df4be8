// How a phase of a sweep goes with threads: throughput by their number, and latency by size with the fewest and the most.
import { type Chart, kinds, type Line, type LineChart, type Panel } from "../chart";
import { binary, figure, rate, seconds } from "../format";
import { type Cell, cells, isShort, type Named, regimes, type Report, saturations } from "../report";
import { capital, measure, most, phases, sorted, value } from "./sweep";

const PERCENTILES = ["p50", "p90", "p99", "p99.9", "max"];
/// Of several sweeps: solid and dashed.
const FEW = ["p50", "p99"];
/// A line of each size, told apart by colour.
const SIZES_MAX = 7;
/// So much of the best is as good, as the program says it too.
const ENOUGH = 0.95;

/// For each phase its latency beside its throughput; all of a kind on one scale, so that they can be compared by eye.
export function threads(reports: Named[]): Chart[] {
  const all = phases(reports.flatMap(({ report }) => cells(report)));
  const drawn = all.flatMap((phase): LineChart[] => {
    const runs = reports.flatMap(({ name, report }, colour): Run[] => {
      const found = cells(report).filter((cell) => cell.phase === phase);
      return found.length ? [{ name, report, colour, cells: most(found) }] : [];
    });
    return [...latency(phase, runs, reports.length > 1), ...throughput(phase, runs, reports.length > 1)].map((chart) => ({ ...chart, kinds: kinds(reports) }));
  });
  return alike(drawn);
}

/// The cells of one phase of a report.
interface Run extends Named {
  colour: number;
  cells: Cell[];
}

/// Phases that move contents are of one scale, those of names of another.
function alike(drawn: LineChart[]): LineChart[] {
  const kind = (chart: LineChart) => `${chart.id.split("-")[0]} ${/stat|delete/.test(chart.id)}`;
  return drawn.map((chart) => {
    const values = drawn.filter((other) => kind(other) === kind(chart)).flatMap((other) => other.panels.flatMap((panel) => panel.lines.flatMap((line) => line.points.map(([, value]) => value))));
    const holds: [number, number] = [Math.min(...values), Math.max(...values)];
    return { ...chart, panels: chart.panels.map((panel) => ({ ...panel, holds })) };
  });
}

function knees(report: Report, phase: string, threads: number): { label: string; value: number }[] {
  const here = regimes(report).filter((regime) => regime.phase === phase && regime.threads === threads);
  const value = here.reduce((most, regime) => (regime.ranks >= most.ranks ? regime : most), here[0]!)?.figures["knee_bytes"];
  return value === undefined ? [] : [{ label: `knee ${binary(value)}`, value }];
}

/// Values over x, the mean where cells were repeated.
function points(all: Cell[], x: (cell: Cell) => number, y: (cell: Cell) => number): [number, number][] {
  const found = sorted(all.map(x)).map((at): [number, number] => [at, value(all.filter((cell) => x(cell) === at), y) ?? 0]);
  return found.filter(([, value]) => value > 0);
}

/// Latency by size at the fewest and at the most threads: of one sweep its percentiles, of several two of each.
function latency(phase: string, runs: Run[], several: boolean): LineChart[] {
  const all = runs.flatMap((run) => run.cells).filter((cell) => Object.keys(cell.latency).length > 0);
  if (!all.length) return [];
  const threads = sorted(all.map((cell) => cell.threads));
  const panels = [...new Set([threads[0]!, threads[threads.length - 1]!])].map((count) => {
    const lines = runs.flatMap((run): Line[] =>
      (several ? FEW : PERCENTILES).map((percentile, at): Line => {
        const here = run.cells.filter((cell) => cell.threads === count && percentile in cell.latency);
        const drawn = points(here, (cell) => cell.file_bytes, (cell) => cell.latency[percentile]!);
        return { label: several ? `${run.name}, ${percentile}` : percentile, colour: several ? run.colour : at, dots: true, dashed: percentile === (several ? "p99" : "max"), points: drawn };
      }),
    );
    const label = `${figure(count)} ${count === 1 ? "thread" : "threads"}`;
    return { label, format: seconds, tick: seconds, lines: lines.filter((line) => line.points.length > 1), limits: [], knees: several ? [] : knees(runs[0]!.report, phase, count), log10: true };
  });
  const shown = panels.filter((panel) => panel.lines.length);
  if (!shown.length) return [];
  const sub = `${all.some((cell) => cell.bytes_per_second > 0) ? "From open to the last byte" : "Of one file"}, by its size, with the fewest and the most threads.`;
  return [{ type: "lines", id: `latency-${phase}`, title: `${capital(phase)}: latency`, sub, kinds: [], x: { label: "size of file", format: binary, log2: true }, panels: shown }];
}

/// From how many threads on more don't help, as the report says or its cells; nothing where the most may not be enough.
function stop(report: Report, phase: string, size: number, points: [number, number][]): number | undefined {
  const said = saturations(report).find((found) => found.phase === phase && found.file_bytes === size);
  if (said) return said.reached ? said.threads : undefined;
  const best = Math.max(...points.map(([, rate]) => rate));
  const enough = points.find(([, rate]) => rate >= ENOUGH * best);
  return enough && enough !== points[points.length - 1] ? enough[0] : undefined;
}

/// Some of the sizes, the least and the largest among them.
function thinned(sizes: number[], most: number): number[] {
  if (sizes.length <= most) return sizes;
  return Array.from({ length: most }, (_, at) => sizes[Math.round((at * (sizes.length - 1)) / (most - 1))]!);
}

/// Throughput by threads, with a dot where more of them stop helping: a line for each size, or a panel where there are
/// several sweeps.
function throughput(phase: string, runs: Run[], several: boolean): LineChart[] {
  const { moves, of } = measure(runs.flatMap((run) => run.cells));
  const sizes = thinned(sorted(runs.flatMap((run) => run.cells.map((cell) => cell.file_bytes))), several ? 2 : SIZES_MAX);
  const line = (run: Run, size: number, label: string, colour: number): Line[] => {
    const drawn = points(run.cells.filter((cell) => cell.file_bytes === size), (cell) => cell.threads, of);
    const sound = run.cells.every((cell) => cell.file_bytes !== size || !isShort(cell));
    const at = sound ? stop(run.report, phase, size, drawn) : undefined;
    return drawn.length > 1 ? [{ label, colour, dots: true, points: drawn, ...(at === undefined ? {} : { stop: at }) }] : [];
  };
  const format = moves ? rate : (value: number) => `${figure(value)}/s`;
  const panel = (label: string, lines: Line[]): Panel => ({ label, format, tick: moves ? rate : figure, lines, limits: [], tall: !several, log10: true });
  const panels = several
    ? sizes.map((size) => panel(binary(size), runs.flatMap((run) => line(run, size, run.name, run.colour))))
    : [panel(moves ? "bytes/s" : "files/s", sizes.flatMap((size, colour) => line(runs[0]!, size, binary(size), colour)))];
  const shown = panels.filter((panel) => panel.lines.length);
  if (!shown.length) return [];
  const stops = shown.some((panel) => panel.lines.some((line) => line.stop !== undefined));
  const sub = `${several ? "For the smallest and the largest files" : "For each size of file"}. ${stops ? "A full dot: from there on more threads don’t help." : "More threads than were tried may still help."}`;
  return [{ type: "lines", id: `threads-${phase}`, title: `${capital(phase)}: ${moves ? "throughput" : "files a second"} by threads`, sub, kinds: [], x: { label: "threads", format: figure, log2: true }, panels: shown }];
}
