/** Wallets and address ranges that the host does not serve. */
import { z } from 'zod';
import type { Block } from '../../../registry/schema/operator.ts';
import { canonicalRange } from '../../../shared/address-ranges.ts';
import { SOLANA_ADDRESS } from '../../../shared/config.ts';
import { Problem } from '../../../shared/problem.ts';
import { fieldProblem } from '../../body.ts';
import { json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';
import { reasonText } from './reason.ts';

const blockBody = z.strictObject({
  subject: z.string().max(100).describe('a wallet (0x…, or of Solana), an address, or a range such as 203.0.113.0/24'),
  reason: reasonText.optional().describe('for operators alone'),
});

export function blocksEndpoints({ control, pushBlocks }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'GET',
      path: '/blocks',
      access: 'operator',
      summary: 'What is blocked',
      description: 'Wallets and address ranges, oldest first.',
      responses: { 200: '`{blocks: [{subject, kind, reason, createdAt}]}`' },
      handle: async () => json({ blocks: (await control.blocks.list()).map(view) }),
    },
    {
      method: 'POST',
      path: '/blocks',
      access: 'operator',
      summary: 'Block a wallet or an address range',
      description:
        'A wallet can neither deploy, renew, update nor pay any more; what it has runs until it ends. Every request from ' +
        'an address range is refused at the edge with 403 `blocked`, at once; what is under way ends by itself. Which ' +
        'address counts, behind a proxy: `trustedProxies`, `tls.proxyProtocol`. Repeated: another reason.',
      body: jsonBody(blockBody),
      responses: { 200: '`{subject, kind, reason, createdAt}`', 409: 'there are too many' },
      async handle(call) {
        const { subject, reason } = await bodyOf(call, blockBody);
        const block = await control.blocks.add({ ...subjectOf(subject), reason: reason ?? null }, control.clock.now());
        await pushBlocks();
        return json(view(block));
      },
    },
    {
      method: 'DELETE',
      path: '/blocks/:subject',
      access: 'operator',
      summary: 'End a block',
      description: 'The subject as it was given, with `/` as `%2F`.',
      responses: { 204: 'no longer blocked', 404: 'it was not blocked' },
      async handle({ params }) {
        const { subject } = subjectOf(params.subject ?? '');
        const wasBlocked = await control.blocks.remove(subject);
        await pushBlocks();
        if (!wasBlocked) throw new Problem('not_found', `${subject} is not blocked; GET /blocks lists what is.`);
        return new Response(null, { status: 204 });
      },
    },
  ];
}

/** @throws Problem `invalid_field` */
function subjectOf(text: string): Pick<Block, 'subject' | 'kind'> {
  if (/^0x[0-9a-fA-F]{40}$/.test(text)) return { subject: text.toLowerCase(), kind: 'wallet' };
  if (SOLANA_ADDRESS.test(text)) return { subject: text, kind: 'wallet' };
  const subject = canonicalRange(text);
  if (subject === undefined)
    throw fieldProblem('/subject', 'is a wallet (0x and 40 digits), an address, or a range such as 203.0.113.0/24');
  return { subject, kind: 'range' };
}

function view({ subject, kind, reason, createdAt }: Block) {
  return { subject, kind, reason, createdAt: iso(createdAt) };
}
