/** POST /console-links: a link to the console that logs in once, such as `turnpike console` prints. */
import { z } from 'zod';
import { json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';

const linkBody = z.strictObject({
  role: z.enum(['operator', 'reader']).default('operator').describe('as whom it logs in; reader may only read'),
});

export function consoleLinkEndpoint({ consoleLink }: OperatorDeps): OperatorEndpoint {
  return {
    method: 'POST',
    path: '/console-links',
    access: 'operator',
    asksAgain: () => true,
    summary: 'Make a link that logs in to the console',
    description: 'It works once, and for ten minutes. The code is in the fragment, which browsers send to nobody.',
    body: jsonBody(linkBody, false),
    responses: { 200: '`{url, expiresAt}`' },
    async handle(call) {
      const { role } = await bodyOf(call, linkBody);
      const { url, expiresAt } = consoleLink(role);
      return json({ url, expiresAt: iso(expiresAt) });
    },
  };
}
