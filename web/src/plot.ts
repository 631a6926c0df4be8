// One panel of lines through uPlot: its axes, limits and colours.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { type LineChart, paint, type Panel } from "./chart";
import { FONT, marks, resolved } from "./marks";

const HEIGHT = 230;
/// Of a panel below others.
const HEIGHT_LOW = 150;
/// As two of a narrow chart with their words, where charts stand in twos.
const HEIGHT_TWO = 365;
const NARROW = 860;
/// Above a limit, for its words.
const HEADROOM = 1.15;
const DASHES = [6, 4];
/// Steps of ticks of time; of less than a second only where a run was no longer.
const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

/// The lines of a panel over all values of x; what a line doesn't have is a gap that is drawn over.
function table(panel: Panel): uPlot.AlignedData {
  const xs = [...new Set(panel.lines.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
  const series = panel.lines.map((line) => {
    const values = new Map(line.points);
    return xs.map((x) => values.get(x) ?? null);
  });
  return [xs, ...series, ...edges(panel, xs)];
}

/// Edges of the bands of lines, as lines without colour behind all others.
function edges(panel: Panel, xs: number[]): (number | null)[][] {
  return panel.lines.flatMap((line) => {
    if (!line.band?.length) return [];
    const [low, high] = [new Map(line.band.map(([x, low]) => [x, low])), new Map(line.band.map(([x, , high]) => [x, high]))];
    return [xs.map((x) => high.get(x) ?? null), xs.map((x) => low.get(x) ?? null)];
  });
}

function bands(panel: Panel, host: Element): uPlot.Band[] {
  const banded = panel.lines.filter((line) => line.band?.length);
  return banded.map((line, at) => {
    const above = 1 + panel.lines.length + 2 * at;
    return { series: [above, above + 1], fill: `${resolved(host, paint(line.colour))}26` };
  });
}

/// Where the y axis begins and ends.
function range(panel: Panel, data: uPlot.AlignedData): [number, number] {
  const own = data.slice(1).flatMap((series) => [...series]).filter((value): value is number => typeof value === "number");
  const values = [...own, ...(panel.holds ?? [])];
  const limits = panel.limits.map((limit) => limit.value);
  const limit = Math.max(...limits, 0) * HEADROOM;
  const top = Math.max(...values, limit, 0);
  if (panel.log10) {
    const positive = values.filter((value) => value > 0);
    return [10 ** Math.floor(Math.log10(Math.min(...positive))), 10 ** Math.ceil(Math.log10(top) + 1e-9)];
  }
  // Above all, where epochs have their names.
  const room = panel.begins?.some((begin) => begin.label !== "") ? HEADROOM : 1;
  return [panel.min ?? Math.min(...values), room * (panel.max ?? (top > 0 ? top * 1.08 : 1))];
}

function series(chart: LineChart, panel: Panel, host: Element): uPlot.Series[] {
  const lines = panel.lines.map((line): uPlot.Series => {
    const stroke = resolved(host, paint(line.colour));
    const found: uPlot.Series = {
      label: line.label,
      stroke,
      width: line.dashed ? 1.5 : 2,
      spanGaps: true,
      points: { show: line.dots === true && !line.dashed, size: 7, width: 2, fill: resolved(host, "var(--card)"), stroke },
    };
    if (line.dashed) found.dash = DASHES;
    if (line.steps) found.paths = uPlot.paths.stepped!({ align: 1 });
    if (line.area) found.fill = `${stroke}26`;
    return found;
  });
  const edge: uPlot.Series = { width: 0, spanGaps: true, points: { show: false } };
  const invisible = panel.lines.flatMap((line) => (line.band?.length ? [edge, edge] : []));
  return [{ label: chart.x.label }, ...lines, ...invisible.map((edge) => ({ ...edge }))];
}

/// Ticks of powers of two between the ends, thinned to `most`.
function powers(low: number, high: number, most: number): number[] {
  const found: number[] = [];
  for (let power = Math.ceil(Math.log2(low) - 1e-9); 2 ** power <= high * 1.000_001; power += 1) found.push(2 ** power);
  const step = Math.ceil(found.length / most);
  return found.filter((_, index) => index % step === 0);
}

function decades(low: number, high: number): number[] {
  const found: number[] = [];
  for (let power = Math.round(Math.log10(low)); 10 ** power <= high * 1.000_001; power += 1) found.push(10 ** power);
  return found;
}

/// Room for the words of the y axis; the same for all panels, so that one moment stands above the other.
function room(chart: LineChart): number {
  const words = chart.panels.flatMap((panel) => {
    const [low, high] = range(panel, table(panel));
    const ticks = panel.log10 ? decades(low, high) : [0.25, 0.3, 0.5, 0.75, 1].map((share) => Number((high * share).toPrecision(1)));
    return ticks.map((value) => (panel.tick ?? panel.format)(value).length);
  });
  return 16 + Math.max(3, ...words) * 6.8;
}

/// Points under the cursor in the colour of their line; edges of bands have none.
function pointed(panel: Panel, host: Element): uPlot.Cursor.Points {
  const colour = (at: number, of: string) => (at > panel.lines.length ? "transparent" : of);
  const line = (at: number) => resolved(host, paint(panel.lines[at - 1]?.colour ?? "ink"));
  const rim = resolved(host, "var(--card)");
  return { size: 9, width: 1.5, fill: (_, at) => colour(at, line(at)), stroke: (_, at) => colour(at, rim) };
}

export function draw(host: HTMLElement, chart: LineChart, index: number, moved: (x: number | undefined) => void): uPlot {
  const panel = chart.panels[index]!;
  const data = table(panel);
  const [low, high] = range(panel, data);
  const width = Math.max(240, host.clientWidth);
  const xs = data[0];
  const [first, last] = [xs[0] ?? 0, xs[xs.length - 1] ?? 1];
  const pad = (last - first || 1) * (panel.lines.some((line) => line.dots) ? 0.02 : 0);
  const ends: [number, number] = chart.x.log2 ? [first / 1.08, last * 1.08] : [first - pad, last + pad];
  const tick = panel.tick ?? panel.format;
  const look = { stroke: resolved(host, "var(--faint)"), font: `${FONT}px ${getComputedStyle(host).fontFamily}`, ticks: { show: false } };
  const grid = { stroke: resolved(host, "var(--grid)"), width: 1 };
  const labelled = Math.max(3, Math.floor((width - 80) / 64));
  const across: uPlot.Axis = { ...look, grid: { show: false }, size: 28, gap: 6, space: 64, values: (_, ticks) => ticks.map((x) => chart.x.format(x)), filter: (_, ticks) => ticks };
  // The panel below tells the time of those above it.
  if (index < chart.panels.length - 1) Object.assign(across, { size: 8, values: () => [] });
  if (chart.x.log2) across.splits = () => powers(first, last, labelled);
  if (chart.x.clock) across.incrs = TIMES.filter((step) => step >= 1 || last - first < 2);
  if (chart.x.whole && !chart.x.log2) across.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const up: uPlot.Axis = { ...look, grid, gap: 6, space: 34, values: (_, ticks) => ticks.map((value) => (value > (panel.max ?? value) ? "" : tick(value))), filter: (_, ticks) => ticks, size: room(chart) };
  if (panel.log10) up.splits = () => decades(low, high);
  return new uPlot(
    {
      width,
      height: panel.tall && !chart.wide && innerWidth > NARROW ? HEIGHT_TWO : chart.panels.length === 1 || panel.tall ? HEIGHT + (chart.wide ? 50 : 0) : HEIGHT_LOW + (chart.wide ? 0 : 20),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: pointed(panel, host), sync: { key: `${chart.id}-${chart.sub}` } },
      scales: {
        x: { time: false, range: () => ends, ...(chart.x.log2 ? { distr: 3 as const, log: 2 as const } : {}) },
        y: { range: () => [low, high], ...(panel.log10 ? { distr: 3 as const, log: 10 as const } : {}) },
      },
      axes: [across, up],
      series: series(chart, panel, host),
      bands: bands(panel, host),
      hooks: {
        draw: [marks(panel, host)],
        setCursor: [(plot) => moved(plot.cursor.idx === null || plot.cursor.idx === undefined || (plot.cursor.left ?? -1) < 0 ? undefined : plot.data[0][plot.cursor.idx])],
      },
    },
    data,
    host,
  );
}
