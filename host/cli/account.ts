/** `turnpike account`: prepaid credit on a host's pay platform: register, sign in, look at the balance, top up. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import { parseUsd } from '../shared/money.ts';
import { autoTopUpCommand } from './account-auto.ts';
import { readAccount, refuseSecondAccount, writeAccount } from './account-file.ts';
import { accountRenewCommand } from './account-renew.ts';
import { readJson } from './answer.ts';
import { problemOf } from './host-client.ts';
import { payRequest } from './paying/pay-request.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface DeviceCode {
  device_code: string;
  user_code: string;
  verification_uri: string;
  verification_uri_complete?: string;
  expires_in: number;
  interval: number;
}

/** Answers of a host that restarts, or of a proxy before it. */
const AWAY = [502, 503, 504];
const SHORTEST_INTERVAL_S = 0.01;
const LONGEST_INTERVAL_S = 30;
const LONGEST_CODE_S = 3_600;

export function accountCommand(deps?: CommandDeps): Command {
  const command = new Command('account').description('prepaid credit on the pay platform of a host');
  command
    .command('register')
    .description('open an anonymous account; its credential is kept in ~/.config/turnpike')
    .action(withSession(deps, register));
  command
    .command('login')
    .description('use the account of a person: confirm a code in the browser')
    .action(withSession(deps, login));
  command.command('balance').description('show the credit').action(withSession(deps, balance));
  command
    .command('topup')
    .description('buy credit with the wallet')
    .argument('<usd>', 'such as 5.00')
    .option('--service <slug>', 'service whose credit is bought', 'deals-watches')
    .option('--plan <id>', 'plan of the service', 'default')
    .action(withSession(deps, topUp));
  autoTopUpCommand(command, deps);
  accountRenewCommand(command, deps);
  return command;
}

async function register(session: Session): Promise<void> {
  await refuseSecondAccount(session.terminal, session.hostUrl);
  const answer = await call(session, 'POST', '/pay/accounts/anonymous', {}, {});
  await keep(session, (await readJson(answer)) as { accountId: string; credential: string });
}

/** RFC 8628: the person confirms the code elsewhere while we ask whether it has happened. */
async function login(session: Session): Promise<void> {
  await refuseSecondAccount(session.terminal, session.hostUrl);
  const asked = await call(session, 'POST', '/pay/oauth/device_authorization', {}, { client_id: 'turnpike-cli' });
  const code = (await readJson(asked)) as DeviceCode;
  session.terminal.err(
    `Open ${code.verification_uri_complete ?? code.verification_uri} and confirm the code ${code.user_code}`,
  );
  const deadline = Date.now() + bounded(code.expires_in, 0, LONGEST_CODE_S) * 1000;
  for (
    let interval = bounded(code.interval, SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S);
    Date.now() < deadline && !session.terminal.signal.aborted;
  ) {
    await new Promise((resolve) => setTimeout(resolve, interval * 1000));
    const response = await post(
      session,
      '/pay/oauth/token',
      {},
      {
        grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
        device_code: code.device_code,
        client_id: 'turnpike-cli',
      },
    ).catch(() => undefined);
    if (!response || AWAY.includes(response.status)) {
      // The code outlives an outage; RFC 8628, 3.5: asked less often then.
      await response?.body?.cancel();
      interval = Math.min(interval * 2, LONGEST_INTERVAL_S);
      continue;
    }
    const token = (await readJson(response)) as { error?: string; access_token?: string; account_id?: string };
    if (token.access_token !== undefined) {
      await keep(session, { accountId: token.account_id ?? '', credential: token.access_token });
      return;
    }
    if (token.error === 'slow_down') interval = Math.min(interval + 5, LONGEST_INTERVAL_S);
    else if (token.error !== 'authorization_pending') {
      throw new Failure(
        'refused',
        `It was not confirmed (${token.error ?? response.status}). Run turnpike account login again.`,
      );
    }
  }
  throw new Failure('cancelled', 'The code was not confirmed in time. Run turnpike account login again.');
}

async function balance(session: Session): Promise<void> {
  const { credential } = await readAccount(session.terminal, session.hostUrl);
  const response = await call(session, 'GET', '/pay/me', { authorization: `Bearer ${credential}` });
  const overview = (await readJson(response)) as Record<string, unknown>;
  const simple = Object.entries(overview).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value));
  session.printer.result(overview, table(simple.map(([name, value]) => [name, String(value)])));
}

async function topUp(
  session: Session,
  amountUsd: string,
  { service, plan }: { service: string; plan: string },
): Promise<void> {
  const { credential } = await readAccount(session.terminal, session.hostUrl);
  const path = `/pay/${encodeURIComponent(service)}/plans/${encodeURIComponent(plan)}/purchase`;
  const { response } = await payRequest(
    {
      url: new URL(path, session.hostUrl),
      method: 'POST',
      headers: {
        authorization: `Bearer ${credential}`,
        'content-type': 'application/json',
        'idempotency-key': randomUUID(),
      },
      body: JSON.stringify({ amountUsd }),
      signal: session.terminal.signal,
    },
    await session.paying('for credit', true, false, parseAmount(amountUsd)),
  );
  if (!response.ok) throw await problemOf(response);
  const bought = (await readJson(response)) as { amountUsd: string; balanceUsd: string };
  session.printer.result(bought, `bought ${bought.amountUsd} USD of credit; the balance is ${bought.balanceUsd} USD`);
}

/** What the host says, within what is sensible; the least where it says no number. */
function bounded(told: unknown, least: number, most: number): number {
  return typeof told === 'number' ? Math.min(Math.max(told, least), most) : least;
}

/** `--yes` pays the amount that was typed. @throws Failure `usage` */
function parseAmount(usd: string): bigint {
  try {
    return parseUsd(usd);
  } catch {
    throw new Failure('usage', `Not an amount: ${usd}. It takes USD, such as 5.00.`);
  }
}

async function keep(session: Session, account: { accountId: string; credential: string }): Promise<void> {
  const { accountId, credential } = account;
  const file = await writeAccount(session.terminal, session.hostUrl, {
    host: session.hostUrl.origin,
    accountId,
    credential,
  });
  session.printer.result({ accountId, file }, `${accountId}\nits credential is kept in ${file}`);
}

async function call(
  session: Session,
  method: string,
  path: string,
  headers: Record<string, string>,
  form?: Record<string, string>,
): Promise<Response> {
  const response = await send(session, method, path, headers, form);
  if (!response.ok) throw await problemOf(response);
  return response;
}

function post(session: Session, path: string, headers: Record<string, string>, form: Record<string, string>) {
  return send(session, 'POST', path, headers, form);
}

async function send(
  session: Session,
  method: string,
  path: string,
  headers: Record<string, string>,
  form?: Record<string, string>,
): Promise<Response> {
  try {
    return await session.fetch(new URL(path, session.hostUrl), {
      method,
      headers,
      redirect: 'manual',
      signal: session.terminal.signal,
      ...(form ? { body: new URLSearchParams(form) } : {}),
    });
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure('unreachable', `${session.hostUrl.origin} does not answer.`);
  }
}
