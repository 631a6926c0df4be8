// What is drawn over the lines of a panel: limits, places that divide the x axis, beginnings, and where lines stop rising.
import type uPlot from "uplot";
import { type Limit, paint, type Panel } from "./chart";

export const FONT = 12;
/// Beginnings stand so far apart to be named.
const NAMED_APART = 28;

/// The value of `var(--name)` now: a canvas knows no variables.
export function resolved(host: Element, colour: string): string {
  const name = colour.slice("var(".length, -1);
  return getComputedStyle(host).getPropertyValue(name).trim();
}

interface Ground {
  plot: uPlot;
  host: Element;
  panel: Panel;
}

export function marks(panel: Panel, host: Element): (plot: uPlot) => void {
  return (plot) => {
    const { ctx } = plot;
    const ground = { plot, host, panel };
    ctx.save();
    ctx.font = `${FONT * devicePixelRatio}px ${getComputedStyle(host).fontFamily}`;
    ctx.lineWidth = devicePixelRatio;
    ctx.lineJoin = "round";
    begins(ground);
    // Words of one limit must not lie on those of the next.
    const taken: number[] = [];
    for (const limit of panel.limits) level(ground, limit, taken);
    (panel.knees ?? []).forEach((knee, row) => upright(ground, knee, row));
    stops(ground);
    ctx.restore();
  };
}

const colourOf = (host: Element, limit: Limit) => resolved(host, limit.colour === undefined ? "var(--faint)" : paint(limit.colour));

function stroke(ground: Ground, from: [number, number], to: [number, number], dash: number[]): void {
  const { ctx } = ground.plot;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(...to);
  ctx.stroke();
  ctx.setLineDash([]);
}

/// Words with a rim in the colour of the card, which keeps them readable over lines.
function words(ground: Ground, text: string, x: number, y: number): void {
  const { ctx } = ground.plot;
  const own = ctx.strokeStyle;
  ctx.strokeStyle = resolved(ground.host, "var(--card)");
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.strokeText(text, x, y);
  ctx.strokeStyle = own;
  ctx.lineWidth = devicePixelRatio;
  ctx.fillText(text, x, y);
}

/// A limit across the panel. A fixed scale has its lines at the top, and most often on the right; others have room above.
function level(ground: Ground, limit: Limit, taken: number[]): void {
  const { plot, host, panel } = ground;
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const y = Math.round(plot.valToPos(limit.value, "y", true));
  if (y < bbox.top - 1 || y > bbox.top + bbox.height) return;
  ctx.strokeStyle = ctx.fillStyle = colourOf(host, limit);
  stroke(ground, [bbox.left, y], [bbox.left + bbox.width, y], [3, 3]);
  if (taken.some((other) => Math.abs(other - y) < (FONT + 3) * scale)) return;
  taken.push(y);
  const below = panel.max !== undefined;
  ctx.textAlign = below ? "left" : "right";
  ctx.textBaseline = below ? "top" : "bottom";
  words(ground, limit.label, below ? bbox.left + 8 * scale : bbox.left + bbox.width - 2 * scale, y + (below ? 5 : -3) * scale);
}

/// A place on the x axis, its words above those of the one before it.
function upright(ground: Ground, knee: Limit, row: number): void {
  const { plot, host } = ground;
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const x = Math.round(plot.valToPos(knee.value, "x", true));
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.strokeStyle = ctx.fillStyle = colourOf(host, knee);
  stroke(ground, [x, bbox.top], [x, bbox.top + bbox.height], [3, 3]);
  ctx.textBaseline = "bottom";
  ctx.textAlign = x > bbox.left + bbox.width / 2 ? "right" : "left";
  words(ground, knee.label, x + (ctx.textAlign === "right" ? -5 : 5) * scale, bbox.top + bbox.height - (4 + row * (FONT + 5)) * scale);
}

/// Where epochs begin, behind all else; named where there is room.
function begins(ground: Ground): void {
  const { plot, host, panel } = ground;
  const { ctx, bbox } = plot;
  let free = -Infinity;
  for (const begin of panel.begins ?? []) {
    const x = Math.round(plot.valToPos(begin.value, "x", true));
    ctx.strokeStyle = ctx.fillStyle = resolved(host, "var(--rule)");
    stroke(ground, [x, bbox.top], [x, bbox.top + bbox.height], []);
    const room = Math.max(NAMED_APART * devicePixelRatio, ctx.measureText(begin.label).width + 8 * devicePixelRatio);
    if (begin.label === "" || x < free || x + room > bbox.left + bbox.width) continue;
    free = x + room;
    ctx.fillStyle = resolved(host, "var(--faint)");
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    words(ground, begin.label, x + 3 * devicePixelRatio, bbox.top - 1);
  }
}

/// A full dot where more of x doesn't help.
function stops(ground: Ground): void {
  const { plot, host, panel } = ground;
  const { ctx } = plot;
  for (const line of panel.lines) {
    const point = line.points.find(([x]) => x === line.stop);
    if (!point) continue;
    ctx.fillStyle = resolved(host, paint(line.colour));
    ctx.beginPath();
    ctx.arc(plot.valToPos(point[0], "x", true), plot.valToPos(point[1], "y", true), 5.5 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
  }
}
