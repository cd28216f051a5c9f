/** What built-in tenants offer their operator: each says in its turnpike.json what is shown of it, and what it does. */
import { html, type Part } from '../../../../builtin-tenants/kit/look/layout.ts';
import { act, type ConsolePage, type View } from '../page.ts';
import { BASE } from '../sessions.ts';
import { json } from '../words.ts';

export const servicesPage: ConsolePage = {
  path: '/services',
  place: 'Services',
  title: () => 'Services',
  async render(view) {
    const { builtins } = view;
    const parts = await Promise.all(builtins.map((one) => partOf(view, one)));
    return html`<h1>Services</h1>${
      parts.length === 0
        ? html`<p class="soft">No tenant that comes with the host, and has something for its operator, is on: <code>builtinTenants.enabled</code>.</p>`
        : parts
    }`;
  },
};

async function partOf({ ask, session }: View, { slug, title, views, acts }: View['builtins'][number]): Promise<Part> {
  const back = `${BASE}/services`;
  const shown = await Promise.all(
    views.map(async (one) => ({
      title: one.title,
      main: await ask<unknown>(`/${slug}${one.path}`).then(
        (answer) => json(answer),
        (error: Error) => html`<p class="note warn">${error.message}</p>`,
      ),
    })),
  );
  return html`<section><h2>${title}</h2>
${shown.map((one) => html`<h3>${one.title}</h3>${one.main}`)}
${
  session.role === 'reader'
    ? ''
    : acts.map(
        (one) =>
          html`<details class="card"><summary>${one.title}</summary>${act({
            ...{ session, method: one.method, path: `/${slug}${one.path}`, back, button: one.title },
            ...{ asksAgain: true, isShown: true },
            fields: one.fields.map(fieldOf),
          })}</details>`,
      )
}</section>`;
}

function fieldOf({ name, label, as, hint }: View['builtins'][number]['acts'][number]['fields'][number]): Part {
  const field = `${as}.${name}`;
  if (as === 'flag')
    return html`<p><input type="hidden" name="${field}" value="false"><label><input type="checkbox" name="${field}" value="true">${label}</label></p>`;
  const isNeeded = as === 'path' || as === 'text';
  return html`<label class="field">${label}${hint ? html`<span class="hint">${hint}</span>` : ''}<input name="${field}"${isNeeded ? html` required` : ''}${as === 'number' ? html` inputmode="numeric"` : ''} autocomplete="off"></label>`;
}
