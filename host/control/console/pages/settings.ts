/** Settings in force and whence they come, what version runs, and who may log in. */
import { html, type Part } from '../../../../builtin-tenants/kit/look/layout.ts';
import { act, type ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { facts, table, time } from '../words.ts';

interface Settings {
  settings: { key: string; value: unknown; source: string; secret: boolean; description: string }[];
}
interface Version {
  version: string;
  node: string;
  workerd: string;
  startedAt: string;
  isolation: { level: string; detail: string };
}

export const settingsPage: ConsolePage = {
  path: '/settings',
  place: 'Settings',
  title: () => 'Settings and version',
  async render({ ask, session }) {
    const [{ settings }, version] = await Promise.all([ask<Settings>('/settings'), ask<Version>('/version')]);
    const back = `${BASE}/settings`;
    return html`<h1>Settings and version</h1>
<div class="cards wide"><section class="card"><h2>Version</h2>${facts([
      ['Turnpike', version.version],
      ['Node', version.node],
      ['workerd', version.workerd],
      ['Started', time(version.startedAt)],
      ['Isolation', html`${version.isolation.level}: ${version.isolation.detail}`],
    ])}
<h3>To update</h3><ol><li>Make a backup.</li><li>Get the new version of the project: <code>git pull</code>.</li><li>Stop the host and start it again: <code>npm start</code>. Deployments start again at their next request; what was open is settled.</li></ol></section>
${
  session.role === 'reader'
    ? ''
    : html`<section class="card"><h2>Who may log in</h2>
<details><summary>Make a token that may only read</summary><p>It takes the place of the one before. It may look at everything here but secrets, and change nothing.</p>
${act({ ...{ session, method: 'POST', path: '/tokens', back, button: 'Make it', asksAgain: true, isShown: true }, fields: html`<input type="hidden" name="text.role" value="reader">` })}</details>
<details><summary>Take that token back</summary>${act({ session, method: 'DELETE', path: '/tokens/reader', back, button: 'Take it back', look: 'danger' })}</details>
<details><summary>Replace the operator’s token</summary><p>The old one is worth nothing then, and all sessions end, this one too. The new one is shown once.</p>
${act({ ...{ session, method: 'POST', path: '/tokens', back, button: 'Replace it', asksAgain: true, isShown: true, look: 'danger' }, fields: html`<input type="hidden" name="text.role" value="operator">` })}</details></section>`
}</div>
<section class="card"><h2>Settings in force</h2>
<p>They change with the file, the environment or the flags, and a start. Secrets are never shown.</p>
${settingsTable(
  'Settings that you changed',
  settings.filter(({ source }) => source !== 'default'),
)}
<details><summary>Defaults</summary>${settingsTable(
      'Settings as they come',
      settings.filter(({ source }) => source === 'default'),
    )}</details></section>`;
  },
};

function settingsTable(caption: string, settings: Settings['settings']): Part {
  return table(
    caption,
    [{ name: 'Setting' }, { name: 'Value' }, { name: 'From' }, { name: 'What it is' }],
    settings.map(({ key, value, source, secret, description }) => [
      html`<code class="address">${key}</code>`,
      secret
        ? html`<span class="badge">set, not shown</span>`
        : html`<code>${value === '' ? 'empty' : JSON.stringify(value)}</code>`,
      html`<span class="badge ${source === 'default' ? '' : 'accent'}">${source}</span>`,
      description,
    ]),
    'Everything is as it comes.',
  );
}
