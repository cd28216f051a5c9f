/**
 * Lines over time as SVG, drawn on the server from numbers of our own: no script, no inline style. Each has a title and
 * a description for screen readers, and its numbers as a table.
 */
import { html, type Part, raw } from '../../../builtin-tenants/kit/look/layout.ts';

export interface Series {
  name: string;
  /** null: nothing is known. */
  values: readonly (number | null)[];
  look?: 'warn' | 'good' | 'bad';
}

export interface Chart {
  /** Unique on the page. */
  id: string;
  title: string;
  /** Begin of each step, ISO. */
  at: readonly string[];
  series: readonly Series[];
  format(value: number): string;
  /** There is nothing between 1 and 2. */
  isWhole?: boolean;
}

const WIDTH = 480;
const HEIGHT = 180;
const LEFT = 72;
const RIGHT = 12;
const TOP = 14;
const BOTTOM = 30;
const LINES = 4;
const DATES = 3;
const STYLE = { warn: 'warn dashed', good: 'good dotted', bad: 'bad dashed' };

export function chart({ id, title, at, series, format, isWhole = false }: Chart): Part {
  const known = series.flatMap(({ values }) => values.filter((value) => value !== null));
  if (known.length === 0)
    return html`<figure class="card"><figcaption><h2>${title}</h2></figcaption><p class="soft">Nothing is known of this time yet.</p></figure>`;
  const scale = ticks(Math.max(...known), isWhole);
  const high = scale.at(-1) ?? 1;
  const x = (index: number) => round(LEFT + (index / Math.max(1, at.length - 1)) * (WIDTH - LEFT - RIGHT));
  const y = (value: number) => round(TOP + (1 - value / high) * (HEIGHT - TOP - BOTTOM));
  const grid = scale.map(
    (value) =>
      html`<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"/><text x="${LEFT - 8}" y="${y(value) + 4}" text-anchor="end">${format(value)}</text>`,
  );
  const isDays = Date.parse(at.at(-1) ?? '') - Date.parse(at[0] ?? '') > 2 * 86_400_000;
  const dates = Array.from({ length: DATES }, (_, number) => {
    const index = Math.round(((at.length - 1) * number) / (DATES - 1));
    const anchor = number === 0 ? 'start' : number === DATES - 1 ? 'end' : 'middle';
    const text = isDays ? at[index]?.slice(5, 10) : at[index]?.slice(11, 16);
    return html`<text x="${x(index)}" y="${HEIGHT - 8}" text-anchor="${anchor}">${text ?? ''}</text>`;
  });
  const [first] = series;
  const area = first ? runs(first.values).map((run) => areaOf(run, x, y)) : [];
  const lines = series.map(({ values, look }) =>
    runs(values).map((run) => html`<path class="${look ? STYLE[look] : 'line'}" d="${lineOf(run, x, y)}"/>`),
  );
  const described = series.map(({ name, values }) => {
    const all = values.filter((value) => value !== null);
    return all.length === 0
      ? `${name}: nothing known`
      : `${name}: ${format(all.at(-1) ?? 0)} last, ${format(Math.max(...all))} at most`;
  });
  return html`<figure class="card"><figcaption><h2>${title}</h2></figcaption>
<svg class="chart half" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="${id}-title ${id}-text">
<title id="${id}-title">${title}</title><desc id="${id}-text">${described.join('; ')}. Times are UTC.</desc>
${grid}${dates}${area.map((d) => html`<path class="area" d="${d}"/>`)}${lines}</svg>
<p class="legend">${series.map(({ name, look }) => html`<span${look ? html` class="${look}"` : ''}>${name}</span>`)}</p>
<details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="${title}, as a table"><table><caption class="sr">${title}</caption>
<thead><tr><th scope="col">UTC</th>${series.map(({ name }) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
<tbody>${raw(at.map((time, index) => rowOf(time, series, index, format)).join(''))}</tbody></table></div></details></figure>`;
}

/** Numbers and times alone: thousands of these are too many for templates. */
function rowOf(time: string, series: readonly Series[], index: number, format: Chart['format']): string {
  const cells = series.map(({ values }) => {
    const value = values[index];
    return `<td class="number">${value === null || value === undefined ? '–' : format(value)}</td>`;
  });
  return `<tr><td>${time.slice(0, 16).replace('T', ' ')}</td>${cells.join('')}</tr>`;
}

type Run = { index: number; value: number }[];

/** Stretches of which something is known: gaps stay gaps. */
function runs(values: readonly (number | null)[]): Run[] {
  const found: Run[] = [];
  let run: Run | undefined;
  for (const [index, value] of values.entries()) {
    if (value === null) run = undefined;
    else if (run) run.push({ index, value });
    else {
      run = [{ index, value }];
      found.push(run);
    }
  }
  return found;
}

function lineOf(run: Run, x: (index: number) => number, y: (value: number) => number): string {
  const points = run.map(({ index, value }) => `${x(index)} ${y(value)}`);
  // One step alone is a dash: a line needs two ends.
  return points.length === 1 ? `M${points[0]}m-4 0h8` : `M${points.join('L')}`;
}

function areaOf(run: Run, x: (index: number) => number, y: (value: number) => number): string {
  const [first, last] = [run[0]?.index ?? 0, run.at(-1)?.index ?? 0];
  return `${lineOf(run, x, y)}${first === last ? '' : `L${x(last)} ${y(0)}L${x(first)} ${y(0)}Z`}`;
}

/** Round values from 0 to the highest. */
function ticks(highest: number, isWhole: boolean): number[] {
  const rough = Math.max(highest, Number.EPSILON) / (LINES - 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const nice = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const step = isWhole ? Math.max(1, Math.ceil(nice)) : nice;
  return highest <= 0 ? [0, 1] : Array.from({ length: Math.ceil(highest / step) + 1 }, (_, index) => index * step);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
