// All charts that the reports have figures for, in the order of the questions that a reader asks.
import type { Chart } from "../chart";
import type { Named } from "../report";
import { compared, feeds } from "./across";
import { busy, processes, rates, waits } from "./epochs";
import { disk, requests } from "./machine";
import { checkpoint, made, sync, tiers } from "./moves";
import { rules } from "./rules";
import { nodes, utilisation } from "./scale";
import { heat, twoRegimes } from "./sweep";
import { threads } from "./threads";

export function charts(reports: Named[]): Chart[] {
  const makers = [feeds, utilisation, compared, busy, waits, rates, tiers, nodes, processes, checkpoint, rules, requests, disk, made, sync, heat, twoRegimes, threads];
  return paired(makers.flatMap((make) => make(reports)));
}

/// Narrow charts stand in twos: of an odd number between wide ones, one becomes wide. Bars bear it best.
function paired(drawn: Chart[]): Chart[] {
  const done: Chart[] = [];
  let narrow: Chart[] = [];
  const settle = () => {
    const odd = narrow.find((chart) => chart.type === "bars") ?? narrow[narrow.length - 1];
    done.push(...narrow.map((chart) => (narrow.length % 2 === 1 && chart === odd ? { ...chart, wide: true } : chart)));
    narrow = [];
  };
  for (const chart of drawn) {
    if (!chart.wide) {
      narrow.push(chart);
      continue;
    }
    settle();
    done.push(chart);
  }
  settle();
  return done;
}
