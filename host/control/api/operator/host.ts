/** What this host is made of: its processes, settings, domains, certificates and version, and what needs attention. */
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { numberOf } from '../owner/logs.ts';
import { attention } from './attention.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

const MOST_DOMAINS = 1_000;

export function hostEndpoints(deps: OperatorDeps): OperatorEndpoint[] {
  const { control, deployments, describeHost } = deps;
  return [
    {
      method: 'GET',
      path: '/attention',
      access: 'operator',
      summary: 'What needs attention',
      description: 'In words, with what to do about it; what is worst comes first. Empty: all is well.',
      responses: { 200: '`{items: [{level: "bad"|"warn", what, todo, page}]}`' },
      handle: async () => json({ items: await attention(deps) }),
    },
    {
      method: 'GET',
      path: '/processes',
      access: 'operator',
      summary: 'Processes of the host',
      description: 'Memory is what each costs by itself, bytes; CPU time is since its start.',
      responses: { 200: '`{processes: [{name, state, pid, restarts, memoryBytes, cpuMs}], instances}`' },
      handle: async () => json(describeHost.processes()),
    },
    {
      method: 'GET',
      path: '/settings',
      access: 'operator',
      summary: 'Settings in force',
      description:
        'With where each comes from: `default`, the file, the environment’s variable or the flag. Of secrets, and of ' +
        'addresses that may hold one, it is only told whether they are set.',
      responses: { 200: '`{settings: [{key, value, source, secret, description}]}`' },
      handle: async () => json({ settings: describeHost.settings() }),
    },
    {
      method: 'GET',
      path: '/domains',
      access: 'operator',
      summary: 'Domains of all tenants',
      description: `At most ${MOST_DOMAINS} (\`?limit=\`), those with a reason to be looked at first.`,
      responses: { 200: '`{domains: [{domain, slug, state, reason, verifiedAt, checkedAt, failingSince}]}`' },
      async handle({ request }) {
        const query = new URL(request.url).searchParams;
        const rows = await control.domains.all(numberOf(query.get('limit'), 'limit', MOST_DOMAINS, MOST_DOMAINS));
        const slugs = await deployments.slugsOf(rows.map(({ tenant }) => tenant));
        const time = (at: number | null) => (at === null ? null : iso(at));
        return json({
          domains: rows.map(({ domain, tenant, state, reason, verifiedAt, checkedAt, failingSince }) => ({
            ...{ domain, slug: slugs.get(tenant) ?? null, state, reason },
            ...{ verifiedAt: time(verifiedAt), checkedAt: time(checkedAt), failingSince: time(failingSince) },
          })),
        });
      },
    },
    {
      method: 'GET',
      path: '/certificates',
      access: 'operator',
      summary: 'Certificates',
      description: 'Of `tls.mode` files or acme; empty where a proxy ends TLS.',
      responses: { 200: '`{mode, certificates: [{names, validTo, reason}]}`' },
      async handle() {
        const certificates = await describeHost.certificates();
        return json({
          mode: control.config.tls.mode,
          certificates: certificates.map(({ names, validTo, reason }) => ({
            ...{ names, validTo: validTo === undefined ? null : iso(validTo), reason: reason ?? null },
          })),
        });
      },
    },
    {
      method: 'GET',
      path: '/backups',
      access: 'operator',
      summary: 'Backups that there are',
      description: 'At `backup.target`, newest first.',
      responses: { 200: '`{target, schedule, keep, passphrase, backups: [{id, location}], problem}`' },
      async handle() {
        const { target, schedule, keep, passphraseFile } = control.config.backup;
        const found = await describeHost
          .backups()
          .then((backups) => ({ backups, problem: null }))
          .catch((error: Error) => ({ backups: [], problem: error.message }));
        return json({ target, schedule, keep, passphrase: passphraseFile !== '', ...found });
      },
    },
    {
      method: 'GET',
      path: '/version',
      access: 'operator',
      summary: 'What runs here',
      description: 'Versions of the host, of Node and of workerd.',
      responses: { 200: '`{version, node, workerd, startedAt, isolation}`' },
      handle: async () => json({ ...describeHost.version(), isolation: control.runtime.isolation }),
    },
  ];
}
