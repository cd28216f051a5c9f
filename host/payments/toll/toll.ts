/**
 * The toll before a tenant's paid routes: 402 for who did not pay, verify, forward, and settle only for answers below
 * 400. Small answers are read before they are settled; streaming ones are settled before their first byte goes out.
 */
import { createHash } from 'node:crypto';
import type { Logger } from 'pino';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { matchPaidRoute } from '../../shared/match-paid-route.ts';
import { formatUsd, type Money, parseUsd, ZERO } from '../../shared/money.ts';
import { networkOf } from '../../shared/network-of.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import { readBody } from '../../shared/request-body.ts';
import { wholeAnswer } from '../../shared/whole-answer.ts';
import type { ChallengeContext, Challenger, PreparedOffers } from '../challenge.ts';
import { type Discovery, discoveryOf } from '../discovery.ts';
import type { SessionPlaces } from '../methods/channels/places.ts';
import { CREDENTIAL_HEADERS, methodOfRail, readCredential } from '../methods/index.ts';
import type { Presented } from '../methods/method.ts';
import type { OfferBook } from '../offers.ts';
import { findPaidRoute, findRouteOf, pricedMethods, routeName } from '../paid-routes.ts';
import { bodyOf, DIGEST_BYTES, declaredLength, readIdempotencyKey } from '../request.ts';
import { type Again, type Place, placeOf } from '../settlement/again.ts';
import type { StoredAnswer } from '../settlement/kept-answers.ts';
import type { LiveCalls } from '../settlement/live-calls.ts';
import type { SettlementMachine } from '../settlement/machine.ts';
import { replay } from '../settlement/replay.ts';
import type { Terms } from '../terms.ts';
import type { Bare402, BareCall, Forward, OpenSocket, PaidRoute, SocketCaller, TollDeployment } from '../types.ts';
import { answerHeaders, passThrough, readsWhole, readWhole } from './answer.ts';
import { chargeOf, maxPrice } from './charge.ts';
import { Deadline } from './deadline.ts';
import { exposed, forwarded, isPreflight, optionsAnswer, paidHeaders, withRequestId } from './messages.ts';
import { PaidEvents } from './paid-events.ts';
import { PaidSockets, unpaidSocket } from './sockets.ts';
import { payTools, refuseOtherMethods } from './tools.ts';
import { handlerHeaders, type Visit } from './visit.ts';

/** Request headers that a 402 depends on. */
const LOOKED_AT = [...CREDENTIAL_HEADERS, 'x-max-price', 'transfer-encoding', 'upgrade'];

export interface TollOptions {
  machine: SettlementMachine;
  offers: OfferBook;
  challenger: Challenger;
  challengeKey: string;
  sessions: SessionPlaces;
  feeBps: number;
  realm(): string;
  forward: Forward;
  openSocket: OpenSocket;
  live: LiveCalls;
  log: Logger;
}

/** What is done with a visit at its three turns. */
interface Work<T extends Response | undefined> {
  kind: 'call' | 'socket';
  unpaid(visit: Visit): Promise<T | Response>;
  /** Calls `done` when the payment is final. */
  paid(visit: Visit, row: PaymentRow, done: () => void): Promise<T | Response>;
  /** The credential was used before. */
  again(visit: Visit, again: Again): Promise<T | Response>;
}

export class Toll {
  readonly #options: TollOptions;
  readonly #prepared = new WeakMap<
    PaidRoute,
    Pick<TollDeployment, 'slug' | 'tenant' | 'payTo'> & { offers: PreparedOffers; edition: number }
  >();

  readonly #events: PaidEvents;

  constructor(options: TollOptions) {
    this.#options = options;
    this.#events = new PaidEvents({ ...options, forward: (...asked) => this.#forwardPaid(...asked) });
  }

  /**
   * The 402 for a call that brings no payment and no wishes. It reads and writes nothing but memory and waits for
   * nothing but the body, so that a flood of such calls leaves the machine to others.
   * @returns undefined where more has to be looked at: `handle` then
   */
  bare(call: BareCall, context: EdgeContext, deployment: TollDeployment): Bare402 | undefined {
    if (call.method === 'OPTIONS' || LOOKED_AT.some((name) => call.header(name) !== undefined)) return undefined;
    const length = Number(call.header('content-length') ?? 0);
    if (!(length >= 0 && length <= DIGEST_BYTES)) return undefined;
    const route = matchPaidRoute(deployment.paidRoutes, call.method, context.tenantPath ?? '/');
    if (!route || route === 'ambiguous' || route.checkBeforePay || route.tool !== undefined) return undefined;
    return {
      page: route.page,
      answer: (digest, reissue) =>
        this.#options.challenger.answer(this.#usual(deployment, route), {
          ...this.#challenge(context, discoveryOf(call.method, route)),
          digest,
          reissue,
        }),
    };
  }

  async handle(request: Request, context: EdgeContext, deployment: TollDeployment): Promise<Response> {
    const tenantPath = context.tenantPath ?? '/';
    const route = findRouteOf(deployment.paidRoutes, request, tenantPath);
    if (request.method === 'OPTIONS' && (!route || isPreflight(request))) {
      const priced = pricedMethods(deployment.paidRoutes, tenantPath);
      if (priced.length > 0) return optionsAnswer(request, priced, context.requestId);
    }
    if (!route) {
      refuseOtherMethods(request, deployment.paidRoutes, tenantPath);
      return this.#free(request, context, deployment);
    }
    if (route.tool === undefined) return this.#pass(request, context, deployment, route, this.#call(context));
    return payTools(request, context, route, deployment.paidRoutes, {
      unpaid: (asked) =>
        this.#options.challenger.response(
          this.#usual(deployment, asked),
          this.#challenge(context, discoveryOf(request.method, asked)),
        ),
      pay: (call, asked, judged) => this.#pass(call, context, deployment, asked, this.#call(context, judged)),
      free: (message) => this.#free(message, context, deployment),
    });
  }

  /** @param judged what an answer of the handler is worth; default: what its status says */
  #call(context: EdgeContext, judged?: Visit['judged']): Work<Response> {
    const { store } = this.#options.machine;
    return {
      kind: 'call',
      unpaid: (visit) => this.#unpaid(visit),
      paid: (visit, row, done) =>
        visit.route.perEvent === undefined
          ? this.#work({ ...visit, judged }, row, done)
          : this.#events.open(visit, row, done),
      again: async ({ route }, again) =>
        route.perEvent !== undefined
          ? this.#events.again(again)
          : exposed(
              await replay(again, store, context.requestId, (headers, row) => paidHeaders({ headers }, row, context)),
            ),
    };
  }

  /** As `Payments.tollSocket`. @throws Problem `not_found` where nothing is for sale (any more) */
  async handshake(
    request: Request,
    context: EdgeContext,
    deployment: TollDeployment,
    caller: SocketCaller,
  ): Promise<Response | undefined> {
    const route = findRouteOf(deployment.paidRoutes, request, context.tenantPath ?? '/');
    if (!route) throw new Problem('not_found', 'No WebSocket is for sale here; try again.');
    const { challenger, live, machine, openSocket, sessions } = this.#options;
    const sockets = new PaidSockets({
      machine,
      caller,
      live,
      calls: sessions.calls,
      open: (visit, row, signal) =>
        openSocket(deployment.slug, forwarded(request, undefined), handlerHeaders(visit, row), signal),
    });
    return this.#pass(request, context, deployment, route, {
      kind: 'socket',
      unpaid: async ({ prepared, challenge }) =>
        challenger.response(prepared, challenge, unpaidSocket(prepared.terms.amount, route.mode)),
      paid: (visit, row, done) => sockets.open(visit, row, done),
      again: (visit, again) => sockets.openAgain(visit, again),
    });
  }

  /** From the price to what the work answers. */
  async #pass<T extends Response | undefined>(
    request: Request,
    context: EdgeContext,
    deployment: TollDeployment,
    route: PaidRoute,
    work: Work<T>,
  ): Promise<T | Response> {
    const { offers, challenger, challengeKey, feeBps, machine } = this.#options;
    const challenge = this.#challenge(context, discoveryOf(request.method, route));
    let prepared: PreparedOffers | undefined;
    try {
      const price = parseUsd(route.price);
      const most = maxPrice(request.headers);
      // A metered call may be allowed to cost more than the usual hold; what is held is then what the caller said.
      const held = route.mode === 'metered' && most !== undefined && most > price ? most : price;
      prepared =
        held === price
          ? this.#usual(deployment, route)
          : offers.prepare({ ...termsOf(deployment, route, feeBps), amount: held });
      const presented = readCredential(request.headers, challengeKey);
      const isDear = most !== undefined && most < price && route.mode === 'fixed';
      if (isDear && !(presented && (await machine.knows(presented))))
        throw new Problem(
          'conflict',
          `This costs ${formatUsd(price)} USD, more than x-max-price allows. Nothing was charged.`,
        );
      const limit = most !== undefined && most < held ? most : held;
      const management = presented && (await this.#manage(presented, route.perEvent !== undefined));
      if (management) return management;
      if (presented) await machine.assertTaken(presented);
      const length = declaredLength(request.headers);
      const body =
        length !== undefined && length > 0 && length <= DIGEST_BYTES
          ? await readBody(request, DIGEST_BYTES, context.clientIp)
          : undefined;
      if (body) challenge.digest = digestOf(body);
      const visit: Visit = { request, context, deployment, route, prepared, challenge, body, limit };
      return presented ? await this.#paid(visit, presented, work) : await work.unpaid(visit);
    } catch (error) {
      const problem = asProblem(error);
      if (problem.code === 'payment_invalid' && prepared) return challenger.response(prepared, challenge, problem);
      if (problem.isFault) throw error;
      return exposed(problem.toResponse(context.requestId));
    }
  }

  #challenge(context: EdgeContext, discovery: Discovery | undefined): ChallengeContext {
    return {
      discovery,
      realm: this.#options.realm(),
      resource: `${context.proto}://${context.host}${context.prefix ?? ''}${context.tenantPath ?? '/'}`,
      requestId: context.requestId,
    };
  }

  /** The offers at the route's own price. */
  #usual(deployment: TollDeployment, route: PaidRoute): PreparedOffers {
    const { slug, tenant, payTo } = deployment;
    const { edition } = this.#options.offers;
    const known = this.#prepared.get(route);
    if (known?.slug === slug && known.tenant === tenant && known.payTo === payTo && known.edition === edition)
      return known.offers;
    const offers = this.#options.offers.prepare(termsOf(deployment, route, this.#options.feeBps));
    this.#prepared.set(route, { slug, tenant, payTo, offers, edition });
    return offers;
  }

  /** Not for sale after all: session clients manage their channels by POST wherever they pay. */
  async #free(request: Request, context: EdgeContext, deployment: TollDeployment): Promise<Response> {
    if (request.method === 'POST' && /^payment /i.test(request.headers.get('authorization') ?? '')) {
      const presented = this.#ours(request.headers);
      try {
        const management = presented && (await this.#manage(presented, true));
        if (management) return management;
      } catch (error) {
        const problem = asProblem(error);
        if (problem.isFault) throw error;
        const metered = deployment.paidRoutes.filter(({ mode }) => mode === 'metered');
        const [method] = pricedMethods(metered, context.tenantPath ?? '/');
        const route = method && findPaidRoute(metered, method, context.tenantPath ?? '/');
        if (problem.code !== 'payment_invalid' || !route) return exposed(problem.toResponse(context.requestId));
        const challenge = this.#challenge(context, discoveryOf(method, route));
        return this.#options.challenger.response(this.#usual(deployment, route), challenge, problem);
      }
    }
    return this.#options.forward(deployment.slug, forwarded(request, undefined, false), {}, request.signal);
  }

  /** @returns undefined for what is no credential of this host: the handler may know what it is */
  #ours(headers: Headers): Presented | undefined {
    try {
      return readCredential(headers, this.#options.challengeKey);
    } catch (error) {
      if (error instanceof Problem && error.code === 'payment_invalid') return undefined;
      throw error;
    }
  }

  /** @param isBeside whether a voucher may be for a stream that goes on */
  async #manage(presented: Presented, isBeside: boolean): Promise<Response | undefined> {
    const { sessions } = this.#options;
    return (await sessions.managed(presented)) ?? (isBeside ? this.#events.voucher(presented) : undefined);
  }

  async #unpaid({ request, deployment, route, prepared, challenge, body, context }: Visit): Promise<Response> {
    const { challenger, forward } = this.#options;
    if (route.checkBeforePay) {
      const check = { 'x-payment-check': '1' };
      const checked = await forward(deployment.slug, forwarded(request, body), check, request.signal);
      if (checked.status >= 400 && checked.status !== 402) return withRequestId(checked, context);
      await checked.body?.cancel();
    }
    return challenger.response(prepared, challenge);
  }

  async #paid<T extends Response | undefined>(
    visit: Visit,
    presented: Presented,
    work: Work<T>,
  ): Promise<T | Response> {
    const { machine } = this.#options;
    const { context, request, prepared, challenge } = visit;
    const admitted = await machine.admit({
      caller: networkOf(context.clientIp),
      presented,
      prepared,
      asked: { realm: challenge.realm, resource: challenge.resource, digest: challenge.digest, now: Date.now() },
      place: placeOfVisit(work.kind, visit),
      idempotencyKey: readIdempotencyKey(request.headers),
      state: 'working',
    });
    if (admitted.kind === 'replay') {
      await bodyOf(request)
        ?.cancel()
        .catch(() => {});
      return work.again(visit, admitted.again);
    }
    const { done, verified } = admitted;
    try {
      const answer = await work.paid(visit, admitted.row, done);
      // The payer's deposit is on the chain whatever the handler said: without a receipt clients forget the channel.
      return answer && verified.opened ? await this.#openReceipt(answer, admitted.row) : answer;
    } catch (error) {
      done();
      const problem = asProblem(error);
      if (!verified.opened || problem.code === 'payment_invalid' || problem.isFault) throw error;
      return await this.#openReceipt(exposed(problem.toResponse(challenge.requestId)), admitted.row);
    }
  }

  /** Forwards, decides what it costs, and settles. Calls `done` when the payment is final. */
  async #work(visit: Visit, begun: PaymentRow, done: () => void): Promise<Response> {
    const { machine } = this.#options;
    const deadline = new Deadline(begun, machine, visit.request.signal, this.#options.sessions.calls);
    try {
      return await this.#answer(visit, begun, deadline, done);
    } finally {
      deadline.final();
    }
  }

  async #answer(visit: Visit, begun: PaymentRow, deadline: Deadline, done: () => void): Promise<Response> {
    const { machine } = this.#options;
    const { context, route, prepared, limit } = visit;
    let response: Response | undefined;
    let charged: Money;
    let whole: Buffer | undefined;
    try {
      response = await deadline.race(this.#forwardPaid(visit, begun, deadline.signal));
      if (response.status >= 400) {
        await machine.release(await deadline.settled(), `the handler answered ${response.status}`);
        done();
        return withRequestId(response, context);
      }
      charged = chargeOf(route.mode, response.headers.get('x-charge'), prepared.terms.amount, limit);
      if (readsWhole(response)) whole = await deadline.race(readWhole(response));
    } catch (error) {
      if (response && !response.bodyUsed) await response.body?.cancel().catch(() => {});
      throw await deadline.brokeOff(error);
    } finally {
      deadline.end();
    }
    const answer: StoredAnswer = { status: response.status, headers: answerHeaders(response.headers), body: whole };
    let row: PaymentRow;
    try {
      row = await machine.take(await deadline.settled(), charged, { answer });
    } catch (error) {
      if (whole === undefined) await response.body?.cancel().catch(() => {});
      throw error;
    }
    const headers = paidHeaders(response, row, context);
    if (whole !== undefined || response.body === null) {
      const final = row.state === 'answered' ? row : await machine.store.answered(row, answer, false);
      done();
      return wholeAnswer(new Uint8Array(whole ?? []), {
        status: final.answerStatus ?? response.status,
        statusText: response.statusText,
        headers,
      });
    }
    const body = passThrough(response.body, visit.request.signal, async (end) => {
      try {
        const { kept, clientGone } = await end;
        await machine.store.answered(row, { ...answer, body: kept }, clientGone);
      } catch (error) {
        this.#options.log.warn({ err: error, payment: row.id }, 'a paid answer broke off: the payer gets it back');
        await machine.store.refunds.owe(row, 'the answer broke off');
      } finally {
        done();
      }
    });
    return new Response(body, { status: response.status, statusText: response.statusText, headers });
  }

  async #forwardPaid(visit: Visit, row: PaymentRow, signal: AbortSignal): Promise<Response> {
    const { request, deployment, body, judged } = visit;
    const { forward } = this.#options;
    const answer = await forward(deployment.slug, forwarded(request, body), handlerHeaders(visit, row), signal);
    return judged ? await judged(answer) : answer;
  }

  async #openReceipt(answer: Response, row: PaymentRow): Promise<Response> {
    const channel = await this.#options.sessions.channels.byId(row.channel ?? '');
    if (!channel) return answer;
    const receipt = Object.entries(methodOfRail(row.rail).channelReceipt?.(row, channel, ZERO) ?? {});
    if (receipt.every(([name]) => answer.headers.has(name))) return answer;
    const headers = new Headers(answer.headers);
    for (const [name, value] of receipt) headers.set(name, value);
    return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers });
  }
}

function termsOf(deployment: TollDeployment, route: PaidRoute, feeBps: number): Terms {
  const name = routeName(route);
  return {
    kind: 'route',
    name,
    scope: `route:${deployment.tenant}:${name}`,
    slug: deployment.slug,
    tenant: deployment.tenant,
    amount: parseUsd(route.price),
    mode: route.mode,
    slow: route.slow ?? false,
    ...(route.live || route.perEvent !== undefined ? { live: true } : {}),
    ...(route.perEvent === undefined ? {} : { perEvent: route.perEvent }),
    payTo: deployment.payTo,
    ...(route.solana === undefined ? {} : { payToSolana: route.solana }),
    feeBps,
    description: `${route.description ?? `${name} of ${deployment.slug}`}${route.perEvent === undefined ? '' : ` (${route.perEvent} USD for each event)`}`,
    sku: route.sku,
    pricingVersion: route.pricingVersion,
  };
}

/** RFC 9530 digest, as challenges carry it. */
function digestOf(body: Uint8Array): string {
  return `sha-256=${createHash('sha256').update(body).digest('base64')}`;
}

function placeOfVisit(kind: 'call' | 'socket', { request, context, deployment, body }: Visit): Place {
  const unread = bodyOf(request) !== null && body === undefined;
  return placeOf(
    [kind, context.via ?? '', deployment.slug, request.method, context.tenantPath ?? ''],
    unread ? { declared: declaredLength(request.headers) } : (body ?? new Uint8Array()),
  );
}
