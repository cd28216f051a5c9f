/**
 * Prepaid credit that pays for renewals: the built-in tenant whose operator API says that it has some (`renewals` in its
 * turnpike.json). The host charges once for each term, by a key that says which.
 */
import { Problem } from '../shared/problem.ts';
import type { Builtin } from './builtins.ts';

/** What a deployment renews from, in place of a mandate. */
export interface Credit {
  token: string;
  account: string;
  /** Most that a term may cost. */
  mostUsd: string;
}

/** `unused`: nothing was taken under the key. `given_back`: it was, and went back. */
export type ChargeOutcome = 'charged' | 'funds' | 'limit' | 'given_back' | 'unused';

export interface RenewalCredit {
  /** @throws Problem not_found for a token that lets nothing be taken for this slug */
  check(token: string, slug: string): Promise<Credit>;
  /** Idempotent by key. @returns undefined where the account has ended it */
  charge(credit: Credit, charge: { slug: string; key: string; amountUsd: string }): Promise<ChargeOutcome | undefined>;
  outcome(key: string): Promise<ChargeOutcome>;
  /** Idempotent; nothing where nothing was taken. */
  giveBack(key: string): Promise<void>;
}

/**
 * @param apis operator APIs of built-in tenants, by slug
 * @returns undefined on a host without such a tenant
 */
export function renewalCredit(
  builtins: readonly Builtin[],
  apis: ReadonlyMap<string, (request: Request) => Promise<Response>>,
): RenewalCredit | undefined {
  const builtin = builtins.find(({ asks }) => asks.operatorApi?.renewals !== undefined);
  const api = builtin && apis.get(builtin.name);
  if (!api) return undefined;
  const base = `http://host/${builtin.name}${builtin.asks.operatorApi?.renewals}`;

  async function ask(method: string, path: string, body?: object): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    const init = { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) };
    return (await api?.(new Request(base + path, init))) as Response;
  }
  async function read<Body>(answer: Response): Promise<Body> {
    if (answer.ok) return (await answer.json()) as Body;
    await answer.body?.cancel();
    throw new Error(`${builtin?.name} answered ${answer.status}`);
  }
  const at = (key: string) => `/charges/${encodeURIComponent(key)}`;

  return {
    async check(token, slug) {
      const answer = await ask('POST', '/check', { token, slug });
      if (answer.status === 404) {
        await answer.body?.cancel();
        throw new Problem('not_found', `The token lets nothing be taken for ${slug}; make one for it on the account.`);
      }
      const { accountId, mostUsd } = await read<{ accountId: string; mostUsd: string }>(answer);
      return { token, account: accountId, mostUsd };
    },
    async charge({ token }, charge) {
      const answer = await ask('POST', '/charges', { token, ...charge });
      if (answer.status !== 404) return (await read<{ outcome: ChargeOutcome }>(answer)).outcome;
      await answer.body?.cancel();
      return undefined;
    },
    async outcome(key) {
      return (await read<{ outcome: ChargeOutcome }>(await ask('GET', at(key)))).outcome;
    },
    async giveBack(key) {
      await read(await ask('POST', `${at(key)}/refund`));
    },
  };
}
