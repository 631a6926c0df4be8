// The rules of a benchmark, each with its number and whether the run keeps it.
import type { Chart } from "../chart";
import { closed, type Named } from "../report";
import { of } from "./sweep";

export function rules(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }): Chart[] => {
    const found = closed(report);
    if (!found) return [];
    const count = (judgement: string) => found.rules.filter((rule) => rule.judgement === judgement).length;
    const rows = found.rules.map(({ number, rule, judgement, figures }) => [number, rule, judgement, figures]);
    return [
      {
        type: "table",
        id: "closed",
        title: `${found.document}, closed division: ${count("broken")} of ${rows.length} rules broken`,
        sub: `${count("kept")} kept, ${count("not judgeable")} not judgeable from a run${of(reports, name)}.`,
        kinds: [report.kind],
        wide: true,
        words: true,
        tones: found.rules.map(({ judgement }) => ["", "", judgement === "kept" ? "good" : judgement === "broken" ? "bad" : "", ""]),
        columns: ["", "rule", "kept?", "judged by"],
        rows,
      },
    ];
  });
}
