/**
 * Renews deployments whose owner lets them renew, a few days before they expire. The payment is signed by the owner's
 * mandate, noted, and then presented as the owner would: a kill at any point leaves one payment for one term. One that
 * was renewed by hand meanwhile costs nothing, or is refunded.
 */

import type { Mandate } from '../payments/types.ts';
import type { DueRenewal } from '../registry/auto-renewals.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { renewal } from './api/owner/renew.ts';
import type { ControlDeps } from './deps.ts';

const DAY_MS = 86_400_000;
const LEAD_MS = 3 * DAY_MS;
/** Pauses after what failed, one after the other, ms. */
const PAUSES_MS = [600_000, 3_600_000, 21_600_000, 43_200_000];

/** What is said of a mandate by which nothing can be signed. */
const WHY: Record<string, string> = {
  revoked: 'the wallet has revoked the mandate',
  expired: 'the mandate has run out',
  limit: 'the price is above what is left of the mandate in this period',
  funds: 'the wallet holds too little',
};

export class AutoRenewer {
  readonly #deps: ControlDeps;
  #running: Promise<void> = Promise.resolve();

  constructor(deps: ControlDeps) {
    this.#deps = deps;
  }

  /** Renews what is due; runs follow one another. */
  run(): Promise<void> {
    this.#running = this.#running.then(() => this.#run());
    return this.#running;
  }

  async #run(): Promise<void> {
    const { deployments, clock, config, log } = this.#deps;
    const lead = Math.min(LEAD_MS, (config.slugs.termDays * DAY_MS) / 2);
    for (const due of await deployments.autoRenewals.due(clock.now() + lead, Date.now())) {
      await this.#renew(due).catch((error) =>
        log.error({ err: error, tenant: due.deployment.tenant }, 'a renewal failed'),
      );
    }
  }

  async #renew({ deployment, renewal: row }: DueRenewal): Promise<void> {
    const { deployments, payments } = this.#deps;
    const { slug, expiresAt } = deployment;
    const operation = renewal(this.#deps, deployment, expiresAt);
    let payment = row.paymentFor === expiresAt ? row.payment : null;
    if (payment === null) {
      const unpaid = await this.#call(slug, operation);
      try {
        if (!payments.mandates) throw new Problem('not_implemented', 'This host has no mandates any more.');
        payment = await payments.mandates.pay(JSON.parse(row.mandate) as Mandate, operation.amount, unpaid.headers);
      } catch (error) {
        return await this.#failed({ deployment, renewal: row }, asProblem(error));
      }
      if (!(await deployments.autoRenewals.signed(row, payment, expiresAt))) return;
    }
    const presented = { ...row, payment };
    try {
      const answer = await this.#call(slug, operation, payment);
      await answer.body?.cancel();
      if (answer.ok) return await deployments.autoRenewals.over(presented, undefined, 0);
      // Anything else but a refusal says that it is not over: the same payment is presented again.
      if (answer.status === 402)
        await this.#failed(
          { deployment, renewal: presented },
          new Problem('payment_invalid', 'The payment was refused.'),
        );
    } catch (error) {
      const problem = asProblem(error);
      if (problem.code === 'conflict') return await deployments.autoRenewals.over(presented, undefined, 0);
      if (problem.code === 'payment_pending' || problem.code === 'internal') throw error;
      await this.#failed({ deployment, renewal: presented }, problem);
    }
  }

  #call(slug: string, operation: ReturnType<typeof renewal>, authorization?: string): Promise<Response> {
    const url = new URL(`/_admin/renew/${slug}`, this.#deps.publicUrl);
    const headers = authorization === undefined ? {} : { authorization };
    const context: EdgeContext = { requestId: 'auto-renewal', clientIp: '127.0.0.1', proto: 'http', host: url.host };
    return this.#deps.payments.paidOperation(new Request(url, { method: 'POST', headers }), context, operation);
  }

  async #failed({ deployment, renewal: row }: DueRenewal, problem: Problem): Promise<void> {
    const { deployments, logs } = this.#deps;
    const { tenant } = deployment;
    const why = String(problem.extensions.mandate ?? '');
    const text = WHY[why] ?? problem.message;
    const pause = PAUSES_MS[Math.min(row.failures, PAUSES_MS.length - 1)] ?? DAY_MS;
    const isOver = why === 'revoked' || why === 'expired';
    if (isOver) await deployments.autoRenewals.end(tenant, row.mandate);
    else await deployments.autoRenewals.over(row, text, Date.now() + pause);
    const rest = isOver ? 'it is not renewed any more' : 'it is tried again';
    await logs.append(tenant, { kind: 'platform', event: 'renewal-failed', text: `${text}; ${rest}` });
  }
}
