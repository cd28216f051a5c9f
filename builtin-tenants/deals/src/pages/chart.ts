/** A price history as SVG: a stepped line, the reference price as a dashed one. No script, no inline style. */
import { html, raw } from '../../../kit/look/layout.ts';
import { formatMinor } from '../prices/money.ts';

export interface Chart {
  /** Oldest first. */
  points: readonly { at: number; minor: number }[];
  /** Minor units; undefined draws no line. */
  reference: number | undefined;
  /** When the drop was seen, ms. */
  droppedAt: number | undefined;
  now: number;
  currency: string;
  exponent: number;
}

const WIDTH = 720;
const HEIGHT = 240;
const LEFT = 64;
const RIGHT = 16;
const TOP = 16;
const BOTTOM = 32;
const PRICE_LINES = 4;
const DATES = 4;

export function priceChart({ points, reference, droppedAt, now, currency, exponent }: Chart) {
  const [first] = points;
  const last = points.at(-1);
  if (!first || !last) return html`<p class="soft">No price was observed yet.</p>`;
  const prices = [...points.map(({ minor }) => minor), ...(reference === undefined ? [] : [reference])];
  const from = first.at;
  const to = Math.max(now, from + 1);
  const scale = ticks(Math.min(...prices), Math.max(...prices));
  const low = scale[0] ?? 0;
  const high = Math.max(scale.at(-1) ?? 1, low + 1);
  const x = (at: number) => round(LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - RIGHT));
  const y = (minor: number) => round(TOP + (1 - (minor - low) / (high - low)) * (HEIGHT - TOP - BOTTOM));
  const money = (minor: number) => formatMinor(minor, exponent);
  const steps = points.map(({ at, minor }, index) => (index === 0 ? `M${x(at)} ${y(minor)}` : `H${x(at)}V${y(minor)}`));
  const line = `${steps.join('')}H${x(to)}`;
  const day = (at: number) => new Date(at).toISOString().slice(0, 10);
  const label = `Price from ${day(from)} to ${day(to)}: ${money(last.minor)} ${currency} now${
    reference === undefined ? '' : `, reference ${money(reference)} ${currency}`
  }`;
  // Only numbers and dates of our own go in; words of strangers do not.
  const grid = scale.map(
    (minor) =>
      `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(minor)}" y2="${y(minor)}"/>` +
      `<text x="${LEFT - 8}" y="${y(minor) + 4}" text-anchor="end">${money(minor)}</text>`,
  );
  const dates = Array.from({ length: DATES }, (_, index) => {
    const at = from + ((to - from) * index) / (DATES - 1);
    const anchor = index === 0 ? 'start' : index === DATES - 1 ? 'end' : 'middle';
    return `<text x="${x(at)}" y="${HEIGHT - 10}" text-anchor="${anchor}">${day(at)}</text>`;
  });
  const baseline =
    reference === undefined
      ? ''
      : `<line class="warn dashed" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(reference)}" y2="${y(reference)}"/>`;
  const drop =
    droppedAt === undefined || droppedAt < from
      ? ''
      : `<line class="good dotted" x1="${x(droppedAt)}" x2="${x(droppedAt)}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"/>`;
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${label}">
<title>${label}</title>${raw([...grid, ...dates].join(''))}${raw(drop)}${raw(baseline)}
<path class="line" d="${line}"/><circle class="dot" cx="${x(to)}" cy="${y(last.minor)}" r="4"/></svg>`;
}

/** Round prices that hold all of the given range. */
function ticks(lowest: number, highest: number): number[] {
  const raw = Math.max(1, (highest - lowest) / (PRICE_LINES - 1));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, Math.round(([1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power));
  const start = Math.floor(lowest / step) * step;
  const list = [start];
  while ((list.at(-1) ?? 0) < highest) list.push((list.at(-1) ?? 0) + step);
  return list;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
