// What a chart is, before it is drawn. `kind` is printed on each: a simulated figure must never pass for a measured one.
import type { Kind } from "./report";

interface Frame {
  id: string;
  title: string;
  /// What is shown, in one sentence.
  sub: string;
  kinds: Kind[];
  wide?: boolean;
  /// The run that it is of, where there are several: its colour.
  run?: number;
}

export interface Line {
  label: string;
  points: [number, number][];
  /// Index of the palette, or the name of a colour of its own.
  colour: number | string;
  /// What could be, next to what is.
  dashed?: boolean;
  dots?: boolean;
  area?: boolean;
  /// The interval around each point: x, low, high.
  band?: [number, number, number][];
  /// Each value holds until the next: what was counted over a stretch of time.
  steps?: boolean;
  /// The point from which on more of x doesn't help.
  stop?: number;
  /// Not in the legend: the sentence of the chart says what such lines are.
  quiet?: boolean;
}

export interface Limit {
  label: string;
  value: number;
  colour?: number | string;
}

export interface LineChart extends Frame {
  type: "lines";
  x: { label: string; format: (value: number) => string; log2?: boolean; whole?: boolean; clock?: boolean };
  /// Each panel shares the x axis with the others.
  panels: Panel[];
}

export interface Panel {
  label: string;
  format: (value: number) => string;
  tick?: (value: number) => string;
  lines: Line[];
  limits: Limit[];
  /// Places on the x axis that divide it.
  knees?: Limit[];
  /// Where epochs begin; too many for words of each.
  begins?: Limit[];
  tall?: boolean;
  min?: number;
  max?: number;
  log10?: boolean;
  /// The least and most that its scale has to hold, also where its own lines don't reach them.
  holds?: [number, number];
}

export interface Part {
  label: string;
  value: number;
  colour: number | string;
  pale?: boolean;
}

export interface Mark {
  label: string;
  value: number;
  style: "bound" | "ceiling" | "pass" | "wanted";
}

export interface Bar {
  label: string;
  tag?: string;
  text: string;
  /// A part of the bar above it.
  within?: boolean;
  parts: Part[];
  low?: number | undefined;
  high?: number | undefined;
  marks?: Mark[];
}

export interface BarChart extends Frame {
  type: "bars";
  /// Of several reports `run` is the number of each, whose colour it has.
  groups: { label: string; bars: Bar[]; run?: number }[];
  /// Each group has a scale of its own: they can't be compared.
  apart?: boolean;
  /// The end of the scale; the longest bar if it is absent.
  max?: number;
  legend?: { label: string; colour: number | string; text?: string }[];
}

export interface HeatChart extends Frame {
  type: "heat";
  columns: string[];
  rows: { label: string; cells: (number | null)[]; short?: boolean[] }[];
  rowsLabel: string;
  columnsLabel: string;
  format: (value: number) => string;
  /// Whether its files were out of memory: `cold`, `not cold`, `3 of 40 cold`.
  state?: string;
  /// Cells are ratios: the colour says on which side of 1 they are, and how far.
  ratio?: boolean;
}

export interface TableChart extends Frame {
  type: "table";
  /// All but the first are figures.
  columns: string[];
  rows: string[][];
  /// What is to be said of a cell besides.
  tones?: ("good" | "bad" | "")[][];
  /// Its cells are words, not figures.
  words?: true;
}

export type Chart = LineChart | BarChart | HeatChart | TableChart;

export function kinds(reports: { report: { kind: Kind } }[]): Kind[] {
  return [...new Set(reports.map((named) => named.report.kind))];
}

/// The colour of a line or part, as CSS.
export function paint(colour: number | string): string {
  return typeof colour === "number" ? `var(--series-${(colour % 7) + 1})` : `var(--${colour})`;
}
