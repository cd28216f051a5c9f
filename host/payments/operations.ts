/**
 * Paid calls that the host answers itself (deploy, renew). Order: 402, credential, request, settle, complete, answer.
 * Whatever is refused before settling costs nothing; after settling it is completed, or a refund is owed.
 */
import { createHash } from 'node:crypto';
import type { Logger } from 'pino';
import type { PaymentRow } from '../registry/payments/schema.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { networkOf } from '../shared/network-of.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { readBody } from '../shared/request-body.ts';
import type { ChallengeContext, Challenger } from './challenge.ts';
import { discoveryOf } from './discovery.ts';
import { EXPOSED_HEADERS, methodOf, readCredential } from './methods/index.ts';
import type { OfferBook } from './offers.ts';
import { DIGEST_BYTES, declaredLength, readIdempotencyKey } from './request.ts';
import { type Again, placeOf } from './settlement/again.ts';
import { type SettlementMachine, settledPayment } from './settlement/machine.ts';
import { receiptHeaders } from './settlement/receipts.ts';
import { lost, replay } from './settlement/replay.ts';
import type { Terms } from './terms.ts';
import type { Completion, Json, PaidOperation, Payer } from './types.ts';

const DEFAULT_MAX_BODY = 64 * 1024 * 1024;
const COMPLETION_TRIES = 3;
const COMPLETION_RETRY_MS = 200;

export interface OperationsOptions {
  machine: SettlementMachine;
  offers: OfferBook;
  challenger: Challenger;
  challengeKey: string;
  realm(): string;
  log: Logger;
}

interface Registered {
  complete: Completion;
  abandon: ((prepared: Json) => Promise<void>) | undefined;
}

export class Operations {
  readonly #options: OperationsOptions;
  readonly #registered = new Map<string, Registered>();

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  register(name: string, complete: Completion, abandon: ((prepared: Json) => Promise<void>) | undefined): void {
    this.#registered.set(name, { complete, abandon });
  }

  async call(request: Request, context: EdgeContext, operation: PaidOperation): Promise<Response> {
    const { machine, offers, challenger, challengeKey, realm } = this.#options;
    const prepared = offers.prepare(termsOf(operation));
    const challenge: ChallengeContext = {
      realm: realm(),
      resource: `${context.proto}://${context.host}${pathOf(request)}`,
      requestId: context.requestId,
      discovery: operation.call && discoveryOf(request.method, operation.call),
    };
    let body = operation.body;
    let digest: string | undefined;
    try {
      // Only a small body is read for an unpaid caller. Whether a credential is ours is checked before a large one is read.
      const presented = readCredential(request.headers, challengeKey);
      if (presented) await machine.assertTaken(presented);
      const length = declaredLength(request.headers);
      const small = length !== undefined && length <= DIGEST_BYTES;
      if (presented && !small && !body && !(await machine.knows(presented))) {
        // What can be told without the body is told before it.
        const method = methodOf(presented);
        method.match(presented, prepared, {
          realm: challenge.realm,
          resource: challenge.resource,
          digest: method.named(presented).digest,
          now: Date.now(),
        });
      }
      if (presented || small) {
        const most = presented ? (operation.maxBodyBytes ?? DEFAULT_MAX_BODY) : DIGEST_BYTES;
        body ??= await readBody(request, most, context.clientIp);
      }
      if (small && body && body.length > 0) digest = `sha-256=${createHash('sha256').update(body).digest('base64')}`;
      if (!presented || !body) return challenger.response(prepared, { ...challenge, digest });
      const admitted = await machine.admit({
        caller: networkOf(context.clientIp),
        presented,
        prepared,
        asked: { realm: challenge.realm, resource: challenge.resource, digest, now: Date.now() },
        place: placeOf(
          ['operation', context.via ?? 'control', context.slug ?? '', request.method, pathOf(request)],
          body,
        ),
        idempotencyKey: readIdempotencyKey(request.headers),
        state: 'verified',
      });
      if (admitted.kind === 'replay')
        return replay(await this.#finished(admitted.again), machine.store, context.requestId, (headers, row) =>
          answerHeaders(headers, row, context),
        );
      try {
        return await this.#work(admitted.row, admitted.verified.payer, body, operation, context);
      } finally {
        admitted.done();
      }
    } catch (error) {
      if (error instanceof Problem && error.code === 'payment_invalid')
        return challenger.response(prepared, { ...challenge, digest }, error);
      throw error;
    }
  }

  async #work(
    row: PaymentRow,
    payer: Payer,
    body: Uint8Array,
    operation: PaidOperation,
    context: EdgeContext,
  ): Promise<Response> {
    const { machine } = this.#options;
    let prepared: Json;
    try {
      prepared = await operation.prepare(payer, body);
    } catch (error) {
      await machine.store.released(row, asProblem(error).message);
      throw error;
    }
    let settled: PaymentRow;
    try {
      settled = await machine.take(row, operation.amount, { prepared: JSON.stringify(prepared) });
    } catch (error) {
      // A pending payment keeps what was prepared: it will be completed when the chain has spoken.
      if (!(error instanceof Problem && error.code === 'payment_pending'))
        await this.#abandon(operation.name, prepared);
      throw error;
    }
    const finished = await this.complete(settled);
    if (finished.state === 'refund_owed') return lost(finished, context.requestId);
    const headers = answerHeaders(new Headers(finished.answerHeaders ?? []), finished, context);
    return new Response(new Uint8Array(finished.answerBody ?? []), { status: finished.answerStatus ?? 200, headers });
  }

  /** A payment that was pending when its caller went away may still have to be completed. */
  async #finished(again: Again): Promise<Again> {
    if (again.row.state !== 'settled') return again;
    const { machine } = this.#options;
    return machine.exclusively(again.row, async () => again.as(await this.complete(again.row)) ?? again);
  }

  /** Makes happen what was paid for. Idempotent; also what a recovery calls. */
  async complete(row: PaymentRow): Promise<PaymentRow> {
    const { machine, log } = this.#options;
    const current = (await machine.store.byId(row.id)) ?? row;
    if (current.state !== 'settled') return current;
    const registered = this.#registered.get(current.name);
    const prepared = JSON.parse(current.prepared ?? 'null') as Json;
    let failure: unknown = new Error(`no completion is registered for ${current.name}`);
    for (let attempt = 0; registered && attempt < COMPLETION_TRIES; attempt += 1) {
      try {
        const answer = await registered.complete(prepared, settledPayment(current));
        const headers: [string, string][] = Object.entries(answer.headers ?? {});
        return await machine.store.answered(
          current,
          { status: answer.status, headers, body: Buffer.from(answer.body) },
          false,
        );
      } catch (error) {
        failure = error;
        log.warn({ err: error, payment: current.id, attempt }, 'a paid operation could not be completed');
        await new Promise((resolve) => setTimeout(resolve, COMPLETION_RETRY_MS * (attempt + 1)));
      }
    }
    log.error({ err: failure, payment: current.id }, 'a paid operation cannot be completed: a refund is owed');
    const owed = await machine.store.refunds.owe(current, asProblem(failure).message);
    await this.#abandon(current.name, prepared);
    return owed;
  }

  /** Gives back what `prepare` reserved for a payment that came to nothing. */
  async abandoned(row: PaymentRow): Promise<void> {
    if (row.prepared !== null) await this.#abandon(row.name, JSON.parse(row.prepared) as Json);
  }

  async #abandon(name: string, prepared: Json): Promise<void> {
    try {
      await this.#registered.get(name)?.abandon?.(prepared);
    } catch (error) {
      this.#options.log.warn({ err: error, operation: name }, 'a reservation could not be given back');
    }
  }
}

function termsOf(operation: PaidOperation): Terms {
  return {
    kind: 'operation',
    name: operation.name,
    scope: `operation:${operation.scope}`,
    slug: undefined,
    tenant: undefined,
    amount: operation.amount,
    mode: 'fixed',
    slow: false,
    payTo: operation.payTo,
    feeBps: 0,
    description: operation.description,
    sku: undefined,
    pricingVersion: undefined,
  };
}

function answerHeaders(headers: Headers, row: PaymentRow, { requestId }: EdgeContext): Headers {
  for (const [name, value] of Object.entries(receiptHeaders(row))) headers.set(name, value);
  headers.set('x-request-id', requestId);
  headers.set('cache-control', 'no-store');
  headers.set('access-control-expose-headers', EXPOSED_HEADERS);
  return headers;
}

function pathOf(request: Request): string {
  const url = new URL(request.url);
  return `${url.pathname}${url.search}`;
}
