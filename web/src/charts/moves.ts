// Bytes that move: the state of a model to and from the target, whole sets from a store to the disk, and which tier gave
// those of an epoch.
import { type Bar, type Chart, kinds, type Mark } from "../chart";
import { bytes, figure, percent, rate, seconds } from "../format";
import { checkpoints, type Named, type Pass, steps, syncs } from "../report";

/// In the order of their distance.
const TIERS = ["passthrough", "disk", "peers", "store"];

/// What is known of where a pass went.
function tag(pass: Pass): string {
  if (pass.what === "write") return "durable";
  return pass.cold === undefined ? "" : pass.cold ? "cold" : "not cold: maybe of memory";
}

/// Each write and read of the state of a model, with what its processes reached in the mean: the slowest ends it.
export function checkpoint(reports: Named[]): Chart[] {
  const several = reports.length > 1;
  const bar = (pass: Pass, run: number): Bar => {
    const mean = pass.mean_bytes_per_second;
    const marks: Mark[] = mean > 1.005 * pass.bytes_per_second ? [{ label: "mean of the processes, times their number", value: mean, style: "bound" }] : [];
    const colour = several ? run : pass.what === "write" ? 1 : 0;
    return {
      label: `${pass.what} ${pass.number}`,
      tag: [tag(pass), `${bytes(pass.bytes)} in ${seconds(pass.seconds)}`].filter(Boolean).join(", "),
      text: rate(pass.bytes_per_second),
      parts: [{ label: pass.what, value: pass.bytes_per_second, colour, pale: pass.what === "read" && pass.cold !== true }],
      marks,
    };
  };
  const groups = reports.map(({ name, report }, run) => ({
    label: several ? name : "",
    ...(several ? { run } : {}),
    bars: checkpoints(report).filter((pass) => pass.seconds > 0).map((pass) => bar(pass, run)),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (!shown.length) return [];
  const sub = "The whole state of a model, by all processes at once, until the slowest is done. Pale: read, but not proven to come from the target.";
  return [{ type: "bars", id: "checkpoint", title: "Checkpoints", sub, kinds: kinds(reports), groups: shown }];
}

/// Which tier gave the bytes of each epoch, where the target tells.
export function tiers(reports: Named[]): Chart[] {
  const several = reports.length > 1;
  const groups = reports.map(({ name, report }, run) => ({
    label: several ? name : "",
    ...(several ? { run } : {}),
    bars: (report.epochs ?? []).filter((epoch) => epoch.nodes?.length).map((epoch): Bar => {
      const of = (tier: string) => (epoch.nodes ?? []).reduce((sum, node) => sum + (node.bytes_by_tier[tier] ?? 0), 0);
      const repeated = (report.epochs ?? []).some((other) => other.repetition > 1);
      return {
        label: `epoch ${repeated ? `${epoch.repetition}.` : ""}${epoch.epoch}`,
        tag: epoch.hit_percent === undefined ? "" : `${percent(epoch.hit_percent)} hits`,
        text: `${bytes(of("store"))} from the store`,
        parts: TIERS.map((tier, colour) => ({ label: tier, value: of(tier), colour })).filter((part) => part.value > 0),
      };
    }),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (!shown.length) return [];
  const given = new Set(shown.flatMap((group) => group.bars.flatMap((bar) => bar.parts.map((part) => part.label))));
  const legend = TIERS.map((label, colour) => ({ label, colour })).filter(({ label }) => given.has(label));
  const sub = "As the target counts them, on all machines: files that the kernel read itself, the cache's disk, and the store.";
  return [{ type: "bars", id: "tiers", title: "Where the bytes came from", sub, kinds: kinds(reports), groups: shown, legend }];
}

/// What `bench data` did, step by step.
export function made(reports: Named[]): Chart[] {
  return reports.flatMap(({ name, report }, run): Chart[] => {
    const rows = steps(report).map((step) => {
      const took = step.seconds > 0 ? [seconds(step.seconds), bytes(step.bytes), figure(step.files), rate(step.bytes_per_second)] : ["–", "–", "–", "–"];
      return [step.step === "found" ? "it was there" : step.step, step.target, ...took, step.step === "verify" ? figure(step.wrong_files) : ""];
    });
    if (!rows.length) return [];
    const sub = `Until it was there; in a folder, until it was on the disk${reports.length > 1 ? `: ${name}` : ""}.`;
    const columns = ["step", "where", "took", "bytes", "files", "rate", "wrong files"];
    return [{ type: "table", id: "steps", title: "What was done", sub, kinds: [report.kind], wide: true, ...(reports.length > 1 ? { run } : {}), columns, rows }];
  });
}

export function sync(reports: Named[]): Chart[] {
  const several = reports.length > 1;
  const groups = reports.map(({ name, report }, run) => ({
    label: several ? name : "",
    ...(several ? { run } : {}),
    bars: syncs(report).map((found, at): Bar => ({
      label: found.store,
      tag: found.seconds > 0 ? `${rate(found.bytes / found.seconds)}, ${figure(found.requests)} requests` : "",
      text: seconds(found.seconds),
      parts: [{ label: bytes(found.bytes), value: found.seconds, colour: several ? run : at }],
    })),
  }));
  const shown = groups.filter((group) => group.bars.length);
  if (!shown.length) return [];
  const sub = "Time to bring the whole set from a store to the disk. Shorter is better.";
  return [{ type: "bars", id: "sync", title: "Sync time by store", sub, kinds: kinds(reports), groups: shown }];
}
