// All charts that the reports have figures for, in the order of the questions that a reader asks.
import type { Chart } from "../chart";
import type { Named } from "../report";
import { busy, compared, processes, rates, waits } from "./epochs";
import { disk, requests, sync } from "./machine";
import { nodes, utilisation } from "./scale";
import { heat, latency } from "./sweep";

export function charts(reports: Named[]): Chart[] {
  const makers = [utilisation, compared, busy, waits, rates, nodes, processes, sync, requests, disk, heat, latency];
  return makers.flatMap((make) => make(reports));
}
