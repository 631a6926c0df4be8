// One panel of lines through uPlot: its axes, limits and colours.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { type LineChart, paint, type Panel } from "./chart";

const HEIGHT = 230;
/// Of a panel below others.
const HEIGHT_LOW = 150;
/// Above a limit, for its words.
const HEADROOM = 1.15;
const DASHES = [6, 4];
const FONT = 12;

/// The value of `var(--name)` now: a canvas knows no variables.
function resolved(host: Element, colour: string): string {
  const name = colour.slice("var(".length, -1);
  return getComputedStyle(host).getPropertyValue(name).trim();
}

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
  const values = data.slice(1).flatMap((series) => [...series]).filter((value): value is number => typeof value === "number");
  const limits = panel.limits.map((limit) => limit.value);
  const limit = Math.max(...limits, 0) * HEADROOM;
  const top = Math.max(...values, limit, 0);
  if (panel.log10) {
    const positive = values.filter((value) => value > 0);
    return [10 ** Math.floor(Math.log10(Math.min(...positive))), 10 ** Math.ceil(Math.log10(top) + 1e-9)];
  }
  return [panel.min ?? Math.min(...values), panel.max ?? (top > 0 ? top * 1.08 : 1)];
}

/// Limits and knees as dashed lines with their words.
function limits(panel: Panel, host: Element): (plot: uPlot) => void {
  return (plot) => {
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = resolved(host, "var(--faint)");
    ctx.font = `${FONT * scale}px ${getComputedStyle(host).fontFamily}`;
    ctx.lineWidth = scale;
    // A fixed scale has its lines at the top, and most often on the right; others have room above their limits.
    const below = panel.max !== undefined;
    ctx.textAlign = below ? "left" : "right";
    ctx.lineJoin = "round";
    for (const limit of panel.limits) {
      const y = Math.round(plot.valToPos(limit.value, "y", true));
      if (y < bbox.top - 1 || y > bbox.top + bbox.height) continue;
      ctx.setLineDash([3 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.textBaseline = below ? "top" : "bottom";
      const place = [below ? bbox.left + 8 * scale : bbox.left + bbox.width - 2 * scale, y + (below ? 5 : -3) * scale] as const;
      // A rim in the colour of the card keeps the words readable over lines.
      ctx.setLineDash([]);
      ctx.strokeStyle = resolved(host, "var(--card)");
      ctx.lineWidth = 4 * scale;
      ctx.strokeText(limit.label, ...place);
      ctx.strokeStyle = ctx.fillStyle;
      ctx.lineWidth = scale;
      ctx.fillText(limit.label, ...place);
    }
    for (const knee of panel.knees ?? []) {
      const x = Math.round(plot.valToPos(knee.value, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([3 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.textBaseline = "bottom";
      ctx.textAlign = x > bbox.left + bbox.width / 2 ? "right" : "left";
      ctx.fillText(knee.label, x + (ctx.textAlign === "right" ? -5 : 5) * scale, bbox.top + bbox.height - 4 * scale);
    }
    ctx.restore();
  };
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
  if (chart.x.whole && !chart.x.log2) across.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const up: uPlot.Axis = { ...look, grid, gap: 6, space: 34, values: (_, ticks) => ticks.map(tick), filter: (_, ticks) => ticks, size: room(chart) };
  if (panel.log10) up.splits = () => decades(low, high);
  return new uPlot(
    {
      width,
      height: chart.panels.length === 1 ? HEIGHT + (chart.wide ? 50 : 0) : HEIGHT_LOW + (chart.wide ? 0 : 20),
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
        draw: [limits(panel, host)],
        setCursor: [(plot) => moved(plot.cursor.idx === null || plot.cursor.idx === undefined || (plot.cursor.left ?? -1) < 0 ? undefined : plot.data[0][plot.cursor.idx])],
      },
    },
    data,
    host,
  );
}
