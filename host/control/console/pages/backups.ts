/** Backups: those there are, one more, and how one is brought back. */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import { act, type ConsolePage } from '../page.ts';
import { BASE } from '../sessions.ts';
import { facts, table } from '../words.ts';

interface Backups {
  target: string;
  schedule: string;
  keep: number;
  passphrase: boolean;
  backups: { id: string; location: string }[];
  problem: string | null;
}

export const backupsPage: ConsolePage = {
  path: '/backups',
  place: 'Backups',
  title: () => 'Backups',
  async render({ ask, session }) {
    const { target, schedule, keep, passphrase, backups, problem } = await ask<Backups>('/backups');
    const isReady = target !== '' && passphrase;
    const newest = backups[0]?.id ?? '<id>';
    return html`<h1>Backups</h1>
${problem ? html`<p class="note bad">They cannot be listed: ${problem}</p>` : ''}
${isReady ? '' : html`<p class="note warn">Set <code>backup.target</code> and <code>backup.passphraseFile</code>, and start the host again: without them no backup is made.</p>`}
<section class="card">${facts([
      ['Kept at', target ? html`<code>${target}</code>` : 'nowhere yet'],
      ['By itself', schedule ? html`<code>${schedule}</code> (UTC)` : 'never: backup.schedule is empty'],
      ['Kept', `the newest ${keep}`],
    ])}
${isReady ? act({ session, method: 'POST', path: '/backup', back: `${BASE}/backups`, button: 'Make one now', isShown: true }) : ''}</section>
<section class="card"><h2>There are</h2>
${table(
  'Backups',
  [{ name: 'Backup' }, { name: 'Where' }],
  backups.slice(0, 100).map(({ id, location }) => [id, html`<code>${location}</code>`]),
  'None yet.',
)}
</section>
<section class="card"><h2>To bring one back</h2>
<ol><li>On an empty box, or with an empty data folder: install this version of the host, or a newer one.</li>
<li>Put the passphrase into a file of mode 0600. Without it nobody can open the backup.</li>
<li><pre>turnpike restore ${target || '<target>'} ${newest} --data ./data --passphrase-file ./passphrase</pre></li>
<li>Start the host on that folder. It settles what was open, and sends nothing twice.</li></ol></section>`;
  },
};
