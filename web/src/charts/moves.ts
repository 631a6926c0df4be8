// Bytes that move at once: the state of a model to and from the target, and whole sets from a store to the disk.
import { type Bar, type Chart, kinds, type Mark } from "../chart";
import { bytes, figure, rate, seconds } from "../format";
import { checkpoints, type Named, type Pass, syncs } from "../report";

/// What is known of where a pass went.
function tag(pass: Pass): string {
  if (pass.what === "write") return "durable";
  return pass.cold === undefined ? "" : pass.cold ? "cold" : "not cold: maybe of memory";
}

/// Each write and read of the state of a model, with what its slowest process reached.
export function checkpoint(reports: Named[]): Chart[] {
  const several = reports.length > 1;
  const bar = (pass: Pass, run: number): Bar => {
    const slowest = pass.slowest_bytes_per_second;
    const marks: Mark[] = slowest > 0 && slowest < 0.995 * pass.bytes_per_second ? [{ label: "slowest process, times their number", value: slowest, style: "bound" }] : [];
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
