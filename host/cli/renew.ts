/** `turnpike renew`: pays for another term, from the later of now and the present expiry; once, or each time by a mandate. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import { readJson } from './answer.ts';
import { problemOf } from './host-client.ts';
import type { Metadata } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

const YEAR_MS = 365 * 86_400_000;

interface Renewals {
  auto: { wallet: string; amountUsd: string; until: string; lastFailure?: string } | null;
}

export function renewCommand(deps?: CommandDeps): Command {
  return new Command('renew')
    .description('pay for another term of your deployment')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .option('--auto', 'sign once, and let it renew before each expiry')
    .option('--no-auto', 'let it renew no more by itself')
    .option('--until <date>', 'with --auto: until when, such as 2027-10-31 (default: a year)')
    .action(
      withSession(
        deps,
        async (session, given: string | undefined, { auto, until }: { auto?: boolean; until?: string }) => {
          if (until !== undefined && auto !== true)
            throw new Failure('usage', '--until is for --auto: a renewal by hand is for one term.');
          const slug = slugOf(await session.project(), given);
          const path = `/_admin/renew/${encodeURIComponent(slug)}`;
          if (auto === true) return renewByItself(session, slug, `${path}/auto`, until);
          if (auto === false) {
            const ended = await (await session.host()).own<Renewals>('DELETE', `${path}/auto`);
            return session.printer.result(ended, `${slug} is renewed by hand from now on`);
          }
          const { body, paid } = await (await session.host()).pay<Metadata>('POST', path, undefined, randomUUID());
          session.printer.result({ ...body, paid: paid ?? null }, `${slug} runs until ${body.expiresAt}`);
        },
      ),
    );
}

async function renewByItself(session: Session, slug: string, path: string, given: string | undefined): Promise<void> {
  const { signMandate } = await import('./paying/mandate.ts');
  const { origin } = await session.host();
  const until =
    given === undefined
      ? new Date(Math.floor(Date.now() / 1000) * 1000 + YEAR_MS).toISOString()
      : /^\d{4}-\d\d-\d\d$/.test(given)
        ? `${given}T00:00:00Z`
        : given;
  const response = await signMandate(
    {
      url: new URL(path, origin),
      method: 'POST',
      headers: { accept: 'application/json', 'content-type': 'application/json' },
      body: JSON.stringify({ until }),
      signal: session.terminal.signal,
    },
    await session.paying(`for each term of ${slug}, before it expires`, false, true),
    { until: Date.parse(until) },
    (line) => session.printer.progress(line),
  );
  if (!response.ok) throw await problemOf(response);
  const renewals = (await readJson(response)) as Renewals;
  session.printer.result(renewals, `${slug} renews by itself until ${renewals.auto?.until}`);
}
