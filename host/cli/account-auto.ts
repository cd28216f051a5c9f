/** `turnpike account auto-topup`: the wallet signs once that credit that runs low is bought, up to a limit and until a date. */
import type { Command } from 'commander';
import { formatUsd, micro, parseUsd } from '../shared/money.ts';
import { readAccount } from './account-file.ts';
import { readJson } from './answer.ts';
import { problemOf } from './host-client.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

const PATH = '/pay/me/auto-topup';
const DAY_MS = 86_400_000;

interface Terms {
  amountUsd: string;
  belowUsd: string;
  limitUsd: string;
  everyDays: number;
  until: string;
}

interface TopUps {
  mandate: (Terms & { wallet: string; drawnUsd: string }) | null;
  draws: { at: string; state: string; why: string | null; amountUsd: string }[];
}

interface Options {
  below: string;
  limit?: string;
  every: string;
  until?: string;
  off?: boolean;
}

export function autoTopUpCommand(account: Command, deps?: CommandDeps): void {
  account
    .command('auto-topup')
    .description('let credit that runs low be bought by itself; without an amount: show how it stands')
    .argument('[usd]', 'bought each time, such as 5.00')
    .option('--below <usd>', 'when credit falls below', '1.00')
    .option('--limit <usd>', 'most in each period (default: four times the amount)')
    .option('--every <days>', 'length of a period', '30')
    .option('--until <date>', 'until when, such as 2027-10-31 (default: 90 days)')
    .option('--off', 'end it at once')
    .action(withSession(deps, autoTopUp));
}

async function autoTopUp(session: Session, usd: string | undefined, options: Options): Promise<void> {
  const { credential } = await readAccount(session.terminal, session.hostUrl);
  const headers = { authorization: `Bearer ${credential}`, accept: 'application/json' };
  if (options.off) {
    if (usd !== undefined) throw new Failure('usage', '--off takes no amount.');
    await asked(session, 'DELETE', headers);
    return session.printer.result({ mandate: null }, 'credit is bought by hand from now on');
  }
  if (usd === undefined) {
    const found = (await readJson(await asked(session, 'GET', headers))) as TopUps;
    return session.printer.result(found, text(found));
  }
  const terms = termsOf(usd, options);
  const { signMandate } = await import('./paying/mandate.ts');
  const response = await signMandate(
    {
      url: new URL(PATH, session.hostUrl),
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(terms),
      signal: session.terminal.signal,
    },
    await session.paying(`for credit in each ${terms.everyDays} days`, false, true, amountOf(terms.limitUsd)),
    { most: amountOf(terms.limitUsd), days: terms.everyDays, until: Date.parse(terms.until) },
    (line) => session.printer.progress(line),
  );
  if (!response.ok) throw await problemOf(response);
  const found = (await readJson(response)) as TopUps;
  session.printer.result(found, text(found));
}

async function asked(session: Session, method: string, headers: Record<string, string>): Promise<Response> {
  const { signal } = session.terminal;
  const response = await session
    .fetch(new URL(PATH, session.hostUrl), { method, headers, redirect: 'manual', signal })
    .catch((error) => {
      throw new Failure('unreachable', `${session.hostUrl.origin} does not answer: ${(error as Error).message}`);
    });
  if (!response.ok) throw await problemOf(response);
  return response;
}

function termsOf(amountUsd: string, { below, limit, every, until }: Options): Terms {
  const amount = amountOf(amountUsd);
  if (!/^\d{1,4}$/.test(every)) throw new Failure('usage', `Not a number of days: ${every}.`);
  return {
    amountUsd,
    belowUsd: below,
    limitUsd: limit ?? formatUsd(micro(amount * 4n)),
    everyDays: Number(every),
    until:
      until === undefined
        ? new Date(Math.floor((Date.now() + 90 * DAY_MS) / 1000) * 1000).toISOString()
        : /^\d{4}-\d\d-\d\d$/.test(until)
          ? `${until}T00:00:00Z`
          : until,
  };
}

/** @throws Failure `usage` */
function amountOf(usd: string): bigint {
  try {
    return parseUsd(usd);
  } catch {
    throw new Failure('usage', `Not an amount: ${usd}. It takes USD, such as 5.00.`);
  }
}

function text({ mandate, draws }: TopUps): string {
  const last = draws.slice(0, 5).map(({ at, state, why, amountUsd }) => [at, `${amountUsd} USD`, state, why ?? '']);
  if (!mandate) return `off: credit is bought by hand${last.length > 0 ? `\n${table(last)}` : ''}`;
  const { amountUsd, belowUsd, limitUsd, everyDays, until, wallet, drawnUsd } = mandate;
  return `buys ${amountUsd} USD when credit is below ${belowUsd} USD, by ${wallet}\n${drawnUsd} of at most ${limitUsd} USD in ${everyDays} days, until ${until.slice(0, 10)}${last.length > 0 ? `\n${table(last)}` : ''}`;
}
