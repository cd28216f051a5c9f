/** How the console writes numbers, times, states and whatever an API answers. */
import { html, type Part } from '../../../builtin-tenants/kit/look/layout.ts';

const MOST_ROWS = 200;
const DEEPEST = 4;

export function count(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

export function milliseconds(value: number): string {
  if (value >= 10_000) return `${Math.round(value / 1_000)} s`;
  if (value >= 1_000) return `${(value / 1_000).toFixed(1)} s`;
  return `${value >= 10 ? Math.round(value) : Math.round(value * 10) / 10} ms`;
}

/** USD as the API writes them, such as `1.2`. */
export function usd(text: string): string {
  const [whole = '0', rest = ''] = text.split('.');
  return `$${whole.replace(/\B(?=(\d{3})+$)/g, ',')}.${rest.padEnd(2, '0')}`;
}

/** @param iso as the API writes times */
export function time(iso: string | null | undefined): Part {
  if (!iso) return '–';
  return html`<time datetime="${iso}">${iso.slice(0, 16).replace('T', ' ')}</time>`;
}

export function wallet(address: string): Part {
  const hex = /0x[0-9a-fA-F]{40}$/.exec(address)?.[0];
  return hex
    ? html`<code class="address" title="${address}">${hex.slice(0, 8)}…${hex.slice(-6)}</code>`
    : html`<code>${address}</code>`;
}

export function state(word: string): Part {
  const look = /^(?:ready|active|warm|ok|off)$/.test(word)
    ? 'good'
    : /^(?:expired|degraded|pending|verified|draining|starting)$/.test(word)
      ? 'warn'
      : /^(?:suspended|restarting|stopped|unavailable|bad)$/.test(word)
        ? 'bad'
        : '';
  return html`<span class="badge ${look}">${word}</span>`;
}

export interface Column {
  name: string;
  number?: boolean;
}

/** On a phone each row is a list. */
export function table(
  caption: string,
  columns: readonly Column[],
  rows: readonly (readonly Part[])[],
  none = 'None.',
): Part {
  if (rows.length === 0) return html`<p class="soft">${none}</p>`;
  const look = ({ number }: Column) => (number ? html` class="number"` : '');
  return html`<table class="stack"><caption class="sr">${caption}</caption>
<thead><tr>${columns.map((column) => html`<th scope="col"${look(column)}>${column.name}</th>`)}</tr></thead>
<tbody>${rows.map(
    (cells) =>
      html`<tr>${columns.map((column, index) => html`<td data-label="${column.name}"${look(column)}>${cells[index] ?? ''}</td>`)}</tr>`,
  )}</tbody></table>`;
}

export function facts(rows: readonly (readonly [string, Part])[]): Part {
  return html`<dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export function figures(rows: readonly (readonly [string, Part])[]): Part {
  return html`<dl class="figures card">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** Whatever an API answers: lists of things as tables, things as names with values. */
export function json(value: unknown, name = '', depth = 0): Part {
  if (value === null || value === undefined || value === '') return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value !== 'object') return String(value);
  if (depth >= DEEPEST) return html`<code>${JSON.stringify(value).slice(0, 1_000)}</code>`;
  if (!Array.isArray(value)) {
    const [only, ...others] = Object.entries(value);
    if (!only) return 'none';
    // What lists one kind of thing says so already.
    if (others.length === 0 && Array.isArray(only[1])) return json(only[1], only[0], depth);
    return facts(Object.entries(value).map(([key, one]) => [words(key), json(one, key, depth + 1)] as const));
  }
  if (value.length === 0) return 'none';
  const shown = value.slice(0, MOST_ROWS);
  const more = value.length > shown.length ? html`<p class="soft">… and ${value.length - shown.length} more.</p>` : '';
  if (!shown.every((one) => typeof one === 'object' && one !== null && !Array.isArray(one)))
    return html`<ul>${shown.map((one) => html`<li>${json(one, name, depth + 1)}</li>`)}</ul>${more}`;
  const rows = shown as Record<string, unknown>[];
  if (rows.some((row) => Object.values(row).some((one) => typeof one === 'object' && one !== null)))
    return html`${rows.map((row) => html`<div class="card">${json(row, name, depth + 1)}</div>`)}${more}`;
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const columns = keys.map((key) => ({ name: words(key), number: rows.every((row) => typeof row[key] === 'number') }));
  return html`${table(
    words(name) || 'List',
    columns,
    rows.map((row) => keys.map((key) => json(row[key], key, DEEPEST))),
  )}${more}`;
}

/** `createdAt` -> `created at`. */
function words(key: string): string {
  return key.replace(/([a-z0-9])([A-Z])/g, (_, before: string, after: string) => `${before} ${after.toLowerCase()}`);
}

/** Links to the same page with another value of one parameter. */
export function choices(
  label: string,
  base: string,
  query: URLSearchParams,
  name: string,
  all: readonly [string, string][],
  present: string,
): Part {
  return html`<nav class="row small" aria-label="${label}">${all.map(([value, text]) => {
    const next = new URLSearchParams(query);
    next.set(name, value);
    next.delete('offset');
    return html`<a href="${base}?${next.toString()}"${value === present ? html` aria-current="true" class="badge accent"` : html` class="badge"`}>${text}</a>`;
  })}</nav>`;
}
