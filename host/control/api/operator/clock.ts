/** Business time, which an operator may move for tests. */
import { z } from 'zod';
import { json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';

/** A century: dates of it can be written. */
const MOST_MS = 100 * 365 * 86_400_000;
const milliseconds = z.number().int().min(-MOST_MS).max(MOST_MS);
const move = z.union([
  z.strictObject({ advanceMs: milliseconds.describe('moves business time by this') }),
  z.strictObject({ offsetMs: milliseconds.describe('from real time') }),
]);

export function clockEndpoints({ moveClock, clockOffset }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'GET',
      path: '/clock',
      access: 'operator',
      summary: 'Business time',
      description: 'Business time decides what has expired and what is due.',
      responses: { 200: '`{now, offsetMs}`' },
      handle: async () => json({ now: iso(Date.now() + clockOffset()), offsetMs: clockOffset() }),
    },
    {
      method: 'POST',
      path: '/clock',
      access: 'operator',
      asksAgain: () => true,
      summary: 'Move business time',
      description: 'Only where the host was started with `--clock-movable`.',
      body: jsonBody(move),
      responses: { 200: '`{now, offsetMs}`', 403: 'the clock is not movable' },
      async handle(call) {
        const body = await bodyOf(call, move);
        const moved = await moveClock('offsetMs' in body ? body.offsetMs : clockOffset() + body.advanceMs);
        return json({ now: iso(moved.now), offsetMs: moved.offsetMs });
      },
    },
  ];
}
