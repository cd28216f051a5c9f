/** `turnpike account renew`: a deployment of yours renews from the credit of your account, until you end it. */
import type { Command } from 'commander';
import { z } from 'zod';
import { readAccount } from './account-file.ts';
import { readJson } from './answer.ts';
import { problemOf } from './host-client.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

const PATH = '/pay/me/renewals';
const publishedSchema = z.object({
  paths: z.object({
    '/_admin/renew/{slug}': z.object({
      post: z.object({ 'x-payment-info': z.object({ price: z.object({ amount: z.string() }) }) }),
    }),
  }),
});

interface Listed {
  renewals: { slug: string; mostUsd: string; lastFailure: string | null }[];
}

export function accountRenewCommand(account: Command, deps?: CommandDeps): void {
  account
    .command('renew')
    .description('let a deployment of yours renew from credit; with --list: show which do')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .option('--most <usd>', 'the most that one term may cost (default: what it costs now)')
    .option('--off', 'end it at once')
    .option('--list', 'show what renews from this credit')
    .action(withSession(deps, renew));
}

async function renew(
  session: Session,
  given: string | undefined,
  { most, off, list }: { most?: string; off?: boolean; list?: boolean },
): Promise<void> {
  const slug = list ? '' : slugOf(await session.project(), given);
  // From here on the host is the project's, if that names one: the account is that one's, and no other's is shown to it.
  const host = await session.host();
  const { credential } = await readAccount(session.terminal, session.hostUrl);
  const ask = async (method: string, path: string, body?: object) => {
    const { signal } = session.terminal;
    const headers = { authorization: `Bearer ${credential}`, 'content-type': 'application/json' };
    const init = {
      method,
      headers,
      redirect: 'manual' as const,
      signal,
      ...(body ? { body: JSON.stringify(body) } : {}),
    };
    const response = await session.fetch(new URL(path, session.hostUrl), init).catch((error: Error) => {
      throw new Failure('unreachable', `${session.hostUrl.origin} does not answer: ${error.message}`);
    });
    if (!response.ok) throw await problemOf(response);
    return response;
  };
  if (list) {
    const found = (await readJson(await ask('GET', PATH))) as Listed;
    const rows = found.renewals.map(({ slug, mostUsd, lastFailure }) => [slug, `${mostUsd} USD`, lastFailure ?? '']);
    return session.printer.result(found, rows.length === 0 ? 'nothing renews from this credit' : table(rows));
  }
  if (off) {
    // First where the money is: from here on nothing is taken.
    await ask('DELETE', `${PATH}/${encodeURIComponent(slug)}`);
    return session.printer.result({ slug, auto: null }, `${slug} does not renew from this credit any more`);
  }
  const mostUsd = most ?? (await priceOf(session));
  const { token } = (await readJson(await ask('POST', PATH, { slug, mostUsd }))) as { token: string };
  const path = `/_admin/renew/${encodeURIComponent(slug)}/auto`;
  const set = await host.own<{ auto: { account: string } }>('PUT', path, { credit: token });
  session.printer.result(set, `${slug} renews from the credit of ${set.auto.account}, ${mostUsd} USD for each term`);
}

/** What the host tells everybody. @throws Failure `refused` */
async function priceOf(session: Session): Promise<string> {
  const document = publishedSchema.safeParse(await (await session.host()).get('/openapi.json'));
  const price = document.data?.paths['/_admin/renew/{slug}'].post['x-payment-info'].price;
  if (!price) throw new Failure('refused', 'The host does not say what a term costs; say it with --most.');
  return price.amount;
}
