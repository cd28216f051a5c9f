/** The pay platform's service API, as builtin-tenants/pay/README.md describes it. */
import type { Env } from '../environment.ts';
import type { Charge, ChargeOutcome, Credit } from './charging.ts';
import { CHARGE_MS } from './periods.ts';

const SERVICE = 'deals-watches';
const USAGE = [{ meterSlug: 'watch_day', quantity: 1 }];

export function payPlatform(env: Env): Credit {
  const call = async (path: string, init: RequestInit = {}) =>
    await fetch(`${env.APP_URL}/pay/internal/${path}`, {
      ...init,
      signal: AbortSignal.timeout(CHARGE_MS),
      headers: { authorization: `Bearer ${env.PAY_SERVICE_KEY}`, 'content-type': 'application/json' },
    });
  return {
    async charge(charges: Charge[]) {
      const answer = await call('charges/batch', {
        method: 'POST',
        body: JSON.stringify({ charges: charges.map((charge) => ({ ...charge, serviceSlug: SERVICE, usage: USAGE })) }),
      });
      if (!answer.ok)
        throw new Error(
          `the pay platform answered ${answer.status} to charges: ${(await answer.text()).slice(0, 300)}`,
        );
      const { results } = (await answer.json()) as { results: { key: string; status: string }[] };
      const outcomes = new Map(results.map(({ key, status }) => [key, status]));
      return charges.map(({ key }): ChargeOutcome => {
        const status = outcomes.get(key);
        if (status === undefined) throw new Error('the pay platform answered to fewer charges than it was asked for');
        if (status === 'charged' || status === 'duplicate' || status === 'insufficient_credit') return status;
        // An account that is gone has no credit.
        return status === 'not_found' ? 'insufficient_credit' : 'refused';
      });
    },
    async wasCharged(key) {
      const answer = await call(`charges/${encodeURIComponent(key)}?serviceSlug=${SERVICE}`);
      await answer.body?.cancel();
      if (answer.status === 404) return false;
      if (!answer.ok) throw new Error(`the pay platform answered ${answer.status} about a charge`);
      return true;
    },
  };
}
