/** What an operator starts by hand: a backup, and new keys for what is sealed. */
import { z } from 'zod';
import { json, jsonBody } from '../../endpoint.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';

const choice = z.strictObject({
  target: z.string().min(1).optional().describe('folder or s3:// URL; default: backup.target'),
  passphraseFile: z.string().min(1).optional().describe('default: backup.passphraseFile'),
});

export function upkeepEndpoints({ backup, secrets }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'POST',
      path: '/backup',
      access: 'operator',
      // To another place, or sealed with another passphrase, it could carry everything away.
      asksAgain: (given) => Object.keys(given).length > 0,
      summary: 'Make a backup now',
      description: 'Answers when the backup is complete.',
      body: jsonBody(choice, false),
      responses: { 200: 'what was backed up, and what it lacks' },
      handle: async (call) => json(await backup(await bodyOf(call, choice))),
    },
    {
      method: 'POST',
      path: '/secrets/rotate',
      access: 'operator',
      summary: 'Seal all secrets with a new key',
      description: 'Tenants keep running; it can be repeated.',
      responses: { 200: '`{resealed}`: number of secrets' },
      handle: async () => json({ resealed: await secrets.rotate() }),
    },
  ];
}
