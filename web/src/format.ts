// Figures as people read them: three digits that count, thousands apart, units of ten like disks and networks.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function figure(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return "–";
  if (size >= 99.95 || size === 0) return GROUPED.format(value);
  if (size >= 9.995) return value.toFixed(1).replace(/\.0$/, "");
  if (size >= 0.01) return value.toFixed(2).replace(/\.?0+$/, "");
  return value.toPrecision(2);
}

export function percent(value: number): string {
  return `${value >= 99.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)}\u00a0%`;
}

/// For axes, where the steps are round.
export function percentTick(value: number): string {
  return `${figure(value)} %`;
}

export function bytes(value: number): string {
  let unit = 0;
  let rest = value;
  while (Math.abs(rest) >= 999.5 && unit + 1 < UNITS.length) {
    rest /= 1000;
    unit += 1;
  }
  return `${figure(rest)} ${UNITS[unit]}`;
}

export function rate(value: number): string {
  return `${bytes(value)}/s`;
}

/// Sizes of files are powers of two.
export function binary(value: number): string {
  for (const [size, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]] as const) {
    if (value >= size) return `${figure(value / size)} ${name}`;
  }
  return `${figure(value)} B`;
}

export function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.000_999_5) return `${figure(value * 1e6)} µs`;
  if (size < 0.999_5) return `${figure(value * 1e3)} ms`;
  if (size < 120) return `${figure(value)} s`;
  const minutes = Math.floor(value / 60);
  const rest = Math.round(value % 60);
  if (minutes < 120) return `${minutes} min ${rest} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/// Time since a run began, with tenths where they count.
export function clock(value: number): string {
  const tenths = Math.round(value * 10);
  if (tenths % 10 && tenths < 600) return `0:${(tenths / 10).toFixed(1).padStart(4, "0")}`;
  const whole = Math.round(value);
  const rest = String(whole % 60).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${rest}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

export function moment(since1970: number): string {
  return since1970 > 0 ? new Date(since1970 * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
}
