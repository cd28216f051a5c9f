/** GET /audit: what the operator did. */
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { numberOf } from '../owner/logs.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;

export function auditEndpoint({ audit }: OperatorDeps): OperatorEndpoint {
  return {
    method: 'GET',
    path: '/audit',
    access: 'operator',
    summary: 'What the operator did',
    description:
      `Every call that changed something, or was to, newest first; the newest 100,000 are kept. \`?slug=\`, \`?limit=\` ` +
      `(default ${DEFAULT_LIMIT}), \`?before=\` (id): the page after this one begins at \`next\`. \`at\` is business time; ` +
      '`address` is whence (`operator.sock`, an address, `console`), `role` as whom; `outcome` is the status of the answer, null where the host was stopped before it.',
    responses: {
      200: '`{entries: [{id, at, systemAt, act, subject, parameters, reason, address, role, outcome}], next}`',
    },
    async handle({ request }) {
      const query = new URL(request.url).searchParams;
      const limit = Math.max(1, numberOf(query.get('limit'), 'limit', DEFAULT_LIMIT, MAX_LIMIT));
      const before = numberOf(query.get('before'), 'before', 0) || undefined;
      // One more than is told: whether there is another page.
      const found = await audit.list({ subject: query.get('slug') ?? undefined, before, limit: limit + 1 });
      const entries = found.slice(0, limit);
      return json({
        entries: entries.map((entry) => ({ ...entry, at: iso(entry.at), systemAt: iso(entry.systemAt) })),
        next: found.length > limit ? entries.at(-1)?.id : null,
      });
    },
  };
}
