/**
 * Renews deployments whose owner lets them renew, a few days before they expire. What pays for a term (a payment that is
 * signed by the owner's mandate, or the key of a charge of credit) is noted, and then presented as the owner would: a kill
 * at any point leaves one payment for one term. One that was renewed by hand meanwhile costs nothing, or is given back.
 */

import type { Mandate } from '../payments/types.ts';
import { CREDIT_KEY, type DueRenewal } from '../registry/auto-renewals.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { formatUsd } from '../shared/money.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { renewal, renewFor } from './api/owner/renew.ts';
import type { ControlDeps } from './deps.ts';
import type { Credit, RenewalCredit } from './renewal-credit.ts';

const DAY_MS = 86_400_000;
const LEAD_MS = 3 * DAY_MS;
/** Pauses after what failed, one after the other, ms. */
const PAUSES_MS = [600_000, 3_600_000, 21_600_000, 43_200_000];

/** What is said where nothing can be signed or charged. */
const WHY: Record<string, string> = {
  revoked: 'the wallet has revoked the mandate',
  expired: 'the mandate has run out',
  limit: 'the price is above what is left of the mandate in this period',
  funds: 'the wallet holds too little',
  credit: 'the credit does not cover the price',
  price: 'the price is above what the account allows',
  ended: 'the account has ended it',
};
/** After these no other attempt can go better. */
const FINAL = ['revoked', 'expired', 'ended'];

/** What a row in the registry renews from. */
export type RenewalSource = Mandate | { credit: Credit };

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

  async #renew(due: DueRenewal): Promise<void> {
    const { deployment, renewal: row } = due;
    const { tenant, expiresAt, state } = deployment;
    const { autoRenewals } = this.#deps.deployments;
    const isOver = row.until === 0 || row.paymentFor !== expiresAt || state === 'decommissioned';
    if (row.payment?.startsWith(CREDIT_KEY) && isOver) return this.#finishCharge(due, row.payment);
    const source = JSON.parse(row.mandate) as RenewalSource;
    let payment = row.paymentFor === expiresAt ? row.payment : null;
    if (payment === null) {
      try {
        payment = 'credit' in source ? `${CREDIT_KEY}${tenant}:${expiresAt}` : await this.#sign(due, source);
      } catch (error) {
        return await this.#failed(due, asProblem(error));
      }
      if (!(await autoRenewals.signed(row, payment, expiresAt))) return;
    }
    const noted = { deployment, renewal: { ...row, payment, paymentFor: expiresAt } };
    await ('credit' in source ? this.#charge(noted, source.credit, payment) : this.#present(noted, payment));
  }

  async #sign({ deployment }: DueRenewal, mandate: Mandate): Promise<string> {
    const { payments } = this.#deps;
    const operation = renewal(this.#deps, deployment, deployment.expiresAt);
    const unpaid = await this.#call(deployment.slug, operation);
    if (!payments.mandates) throw new Problem('not_implemented', 'This host has no mandates any more.');
    return payments.mandates.pay(mandate, operation.amount, unpaid.headers);
  }

  async #present(due: DueRenewal, payment: string): Promise<void> {
    const { deployment, renewal: row } = due;
    const { autoRenewals } = this.#deps.deployments;
    try {
      const operation = renewal(this.#deps, deployment, deployment.expiresAt);
      const answer = await this.#call(deployment.slug, operation, payment);
      await answer.body?.cancel();
      if (answer.ok) return await autoRenewals.over(row, undefined, 0);
      // Anything else but a refusal says that it is not over: the same payment is presented again.
      if (answer.status === 402) await this.#failed(due, new Problem('payment_invalid', 'The payment was refused.'));
    } catch (error) {
      const problem = asProblem(error);
      if (problem.code === 'conflict') return await autoRenewals.over(row, undefined, 0);
      // Another node may be at it, or have been when it ended: nothing is known of its end yet.
      if (problem.isFault || ['payment_pending', 'in_progress'].includes(problem.code)) throw error;
      await this.#failed(due, problem);
    }
  }

  async #charge(due: DueRenewal, credit: Credit, key: string): Promise<void> {
    const { slug, expiresAt } = due.deployment;
    const { amount } = renewal(this.#deps, due.deployment, expiresAt);
    const outcome = await this.#credit().charge(credit, { slug, key, amountUsd: formatUsd(amount) });
    if (outcome === 'charged') return this.#finishCharge(due, key);
    const why = { funds: 'credit', limit: 'price', given_back: 'ended', unused: 'ended' };
    const mandate = outcome === undefined ? 'ended' : why[outcome];
    await this.#failed(due, new Problem('payment_invalid', 'Nothing was charged.', { extensions: { mandate } }));
  }

  /** Does what credit was taken for, where it was, or gives it back: whatever the owner has changed meanwhile. */
  async #finishCharge({ deployment: { tenant }, renewal: row }: DueRenewal, key: string): Promise<void> {
    if ((await this.#credit().outcome(key)) === 'charged') {
      await renewFor(
        this.#deps,
        { tenant, ...(row.paymentFor === null ? {} : { expected: row.paymentFor }) },
        key,
      ).catch(async (error) => {
        const { code } = asProblem(error);
        if (code !== 'conflict' && code !== 'gone') throw error;
        await this.#credit().giveBack(key);
      });
    }
    await this.#deps.deployments.autoRenewals.over({ ...row, payment: key }, undefined, 0);
  }

  #credit(): RenewalCredit {
    if (this.#deps.renewalCredit) return this.#deps.renewalCredit;
    throw new Error('this host has no prepaid credit any more');
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
    const isOver = FINAL.includes(why);
    await deployments.autoRenewals.over(row, text, Date.now() + pause);
    if (isOver) await deployments.autoRenewals.end(tenant, row.mandate);
    const rest = isOver ? 'it is not renewed any more' : 'it is tried again';
    await logs.append(tenant, { kind: 'platform', event: 'renewal-failed', text: `${text}; ${rest}` });
  }
}
