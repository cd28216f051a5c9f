// Who called a slug, what it earned and what it keeps.
import { ask, get } from './api.js';
import { button, bytes, code, facts, h, s, save, table } from './dom.js';

export function figures({ days, revenue, storage, debtUsd }) {
  const total = (of) => days.reduce((all, day) => all + (Number(day[of]) || 0), 0);
  const earned = revenue.reduce(
    (all, row) => all + Number(row.grossUsd) - Number(row.feeUsd) - Number(row.refundedUsd),
    0,
  );
  const kept = Object.values(storage ?? {}).reduce(
    (all, one) => all + (Number(one?.bytes ?? (typeof one === 'number' ? one : 0)) || 0),
    0,
  );
  const owed = Number(debtUsd) > 0;
  return h(
    'section',
    { class: 'card' },
    h(
      'dl',
      { class: 'figures' },
      h('div', {}, h('dt', {}, 'Requests, 30 days'), h('dd', {}, total('requests').toLocaleString('en'))),
      h('div', {}, h('dt', {}, 'Errors'), h('dd', {}, total('errors').toLocaleString('en'))),
      h('div', {}, h('dt', {}, 'Earned, USD'), h('dd', {}, earned.toFixed(2))),
      h('div', {}, h('dt', {}, 'Kept'), h('dd', {}, bytes(kept))),
      owed && h('div', {}, h('dt', {}, 'Owed to callers, USD'), h('dd', {}, debtUsd)),
    ),
  );
}

export async function usageView({ slug, path, signal }) {
  const usage = await get(`${path}/usage?days=30`, signal);
  const { days, revenue, storage } = usage;
  return [
    figures(usage),
    days.length > 0 && chart(days),
    h('h2', {}, 'Revenue'),
    table(
      'Revenue by day and route',
      [
        { name: 'Day', of: ({ day }) => day },
        { name: 'Route', of: ({ route }) => code(route) },
        { name: 'Payments', number: true, of: ({ payments }) => String(payments) },
        { name: 'USD', number: true, of: ({ grossUsd }) => grossUsd },
        { name: 'Fee', number: true, of: ({ feeUsd }) => feeUsd },
        { name: 'Given back', number: true, of: ({ refundedUsd }) => refundedUsd },
      ],
      [...revenue].reverse(),
      'Nothing was earned in 30 days.',
    ),
    h(
      'p',
      { class: 'row' },
      button('Payments as CSV', 'quiet small', async () => {
        const csv = await ask('GET', `${path}/usage?days=400`, { accept: 'text/csv' });
        save(await csv.blob(), `${slug}-payments.csv`);
        return 'The file is saved.';
      }),
    ),
    h('h2', {}, 'By day'),
    table(
      'Usage by day',
      Object.keys(days[0] ?? {})
        .filter((name) => typeof days[0][name] !== 'object')
        .map((name) => ({
          name: words(name),
          number: name !== 'day',
          of: (row) =>
            /bytes/i.test(name)
              ? bytes(Number(row[name]))
              : Number.isFinite(row[name])
                ? row[name].toLocaleString('en')
                : String(row[name]),
        })),
      [...days].reverse(),
      'Nobody has called it in 30 days.',
    ),
    h('h2', {}, 'Kept now'),
    facts(
      Object.entries(storage ?? {}).map(([name, value]) => [
        words(name),
        typeof value === 'object' && value !== null
          ? Object.entries(value)
              .map(([key, one]) => `${words(key)} ${/bytes/i.test(key) ? bytes(Number(one)) : one}`)
              .join(', ')
          : /bytes/i.test(name)
            ? bytes(Number(value))
            : String(value),
      ]),
    ),
  ];
}

/** `cpuMs` -> `CPU ms`. */
function words(name) {
  const text = name.replace(/([A-Z])/g, ' $1').toLowerCase();
  return (text.charAt(0).toUpperCase() + text.slice(1)).replace(/^(?:Kv|Sql|Cpu)\b/, (word) => word.toUpperCase());
}

function chart(days) {
  const WIDTH = 900;
  const HEIGHT = 160;
  const byDay = new Map(days.map((one) => [one.day, one.requests]));
  const all = Array.from({ length: 30 }, (_, index) =>
    new Date(Date.now() - (29 - index) * 86_400_000).toISOString().slice(0, 10),
  );
  const most = Math.max(1, ...byDay.values());
  const wide = WIDTH / all.length;
  const bars = all.map((day, index) => {
    const height = ((byDay.get(day) ?? 0) / most) * HEIGHT;
    return s('rect', { class: 'bar', x: index * wide + 2, y: HEIGHT - height + 20, width: wide - 4, height, rx: 2 });
  });
  const text = (x, y, anchor, value) => {
    const element = s('text', { x, y, 'text-anchor': anchor });
    element.textContent = value;
    return element;
  };
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, 'Requests by day'),
    s(
      'svg',
      {
        class: 'chart',
        viewBox: `0 0 ${WIDTH} ${HEIGHT + 45}`,
        role: 'img',
        'aria-label': `Requests by day; at most ${most}`,
      },
      s('line', { class: 'grid', x1: 0, x2: WIDTH, y1: HEIGHT + 20, y2: HEIGHT + 20 }),
      s('line', { class: 'grid', x1: 0, x2: WIDTH, y1: 20, y2: 20 }),
      text(0, 14, 'start', most.toLocaleString('en')),
      ...bars,
      text(0, HEIGHT + 40, 'start', all[0]),
      text(WIDTH, HEIGHT + 40, 'end', all.at(-1)),
    ),
  );
}
