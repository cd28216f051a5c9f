/** New tokens of the operator, and of who may only read. */
import { z } from 'zod';
import { json, jsonBody } from '../../endpoint.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';

const tokenBody = z.strictObject({
  role: z.enum(['operator', 'reader']).describe('operator: may do everything; reader: may only read'),
});

export function tokenEndpoints({ tokens }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'POST',
      path: '/tokens',
      access: 'operator',
      asksAgain: () => true,
      summary: 'Make a new token',
      description:
        'It takes the place of the one of the same role, which is worth nothing from then on; sessions of the console ' +
        'that were opened as that role end. It is shown once.',
      body: jsonBody(tokenBody),
      responses: { 200: '`{role, token}`' },
      async handle(call) {
        const { role } = await bodyOf(call, tokenBody);
        return json({ role, token: await tokens.replace(role) });
      },
    },
    {
      method: 'DELETE',
      path: '/tokens/reader',
      access: 'operator',
      summary: 'Take back the token that may only read',
      description: 'Sessions of the console that were opened with it end.',
      responses: { 204: 'there is none any more' },
      async handle() {
        await tokens.takeBackReader();
        return new Response(null, { status: 204 });
      },
    },
  ];
}
