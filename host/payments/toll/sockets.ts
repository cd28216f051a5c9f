/**
 * Paid WebSockets. A socket is paid once, with its handshake: the caller's payment is settled when the handler has
 * opened the socket and before the caller hears of it. Nothing that goes through the socket costs more. On a route with
 * `live`, what is settled then is the most that the socket may cost; it is charged by what its handler reports until the
 * two have parted, and the rest goes back.
 */

import type { InstanceSocket } from '../../http/instance/fetch.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, type Money } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import type { ChannelCalls } from '../methods/channels/calls.ts';
import type { Again } from '../settlement/again.ts';
import type { StoredAnswer } from '../settlement/kept-answers.ts';
import type { LiveCalls } from '../settlement/live-calls.ts';
import type { SettlementMachine } from '../settlement/machine.ts';
import { receiptHeaders } from '../settlement/receipts.ts';
import { chargeMetered } from '../settlement/recovery.ts';
import type { SocketCaller } from '../types.ts';
import { answerHeaders } from './answer.ts';
import { chargeOf } from './charge.ts';
import { Deadline } from './deadline.ts';
import { liveHeaders, paidHeaders, withRequestId } from './messages.ts';
import type { Visit } from './visit.ts';

/** Asks the handler for its socket. */
type Open = (visit: Visit, row: PaymentRow, signal: AbortSignal) => Promise<InstanceSocket | Response>;

export class PaidSockets {
  readonly #machine: SettlementMachine;
  readonly #caller: SocketCaller;
  readonly #calls: ChannelCalls | undefined;
  readonly #live: LiveCalls;
  readonly #open: Open;

  /** @param calls where calls that a session pays are noted */
  constructor(options: {
    machine: SettlementMachine;
    caller: SocketCaller;
    calls: ChannelCalls | undefined;
    live: LiveCalls;
    open: Open;
  }) {
    this.#machine = options.machine;
    this.#caller = options.caller;
    this.#calls = options.calls;
    this.#live = options.live;
    this.#open = options.open;
  }

  /**
   * @param done called when the payment is final
   * @returns the handler's refusal, for which nothing is charged; undefined when a socket was joined, and has ended
   */
  async open(visit: Visit, begun: PaymentRow, done: () => void): Promise<Response | undefined> {
    if (visit.route.live) return this.#openLive(visit, begun, done);
    const deadline = new Deadline(begun, this.#machine, visit.request.signal, this.#calls);
    const settled = await this.#settled(visit, begun, deadline).finally(() => deadline.final());
    done();
    return settled instanceof Response ? settled : this.#join(visit, settled.row, settled.opened);
  }

  async #settled(
    visit: Visit,
    begun: PaymentRow,
    deadline: Deadline,
  ): Promise<{ row: PaymentRow; opened: InstanceSocket } | Response> {
    const machine = this.#machine;
    let opened: InstanceSocket | Response;
    let charged: Money | undefined;
    try {
      opened = await deadline.race(this.#open(visit, begun, deadline.signal));
      if (!(opened instanceof Response)) charged = this.#chargeOf(visit, opened);
      else if (opened.status < 400) await refuseAnswer(opened);
    } catch (error) {
      throw await deadline.brokeOff(error);
    } finally {
      deadline.end();
    }
    if (opened instanceof Response) {
      await machine.release(await deadline.settled(), `the handler answered ${opened.status}`);
      return withRequestId(opened, visit.context);
    }
    const answer: StoredAnswer = { status: 101, headers: answerHeaders(opened.headers), body: undefined };
    let row: PaymentRow;
    try {
      row = await machine.take(await deadline.settled(), charged ?? begun.authorized, { answer });
      row = await machine.store.answered(row, answer, this.#caller.socket.destroyed);
    } catch (error) {
      opened.abandon();
      throw error;
    }
    return { row, opened };
  }

  async #openLive(visit: Visit, begun: PaymentRow, done: () => void): Promise<Response | undefined> {
    const machine = this.#machine;
    const deadline = new Deadline(begun, machine, visit.request.signal, this.#calls);
    let opened: InstanceSocket | Response | undefined;
    let row: PaymentRow;
    try {
      opened = await deadline.race(this.#open(visit, begun, deadline.signal));
      if (opened instanceof Response && opened.status < 400) await refuseAnswer(opened);
      row = await deadline.settled();
      if (opened instanceof Response) {
        await machine.release(row, `the handler answered ${opened.status}`);
        done();
        return withRequestId(opened, visit.context);
      }
      if (this.#caller.socket.destroyed)
        throw new Problem('bad_request', 'The caller left before the WebSocket was open. Nothing was charged.');
    } catch (error) {
      if (opened && !(opened instanceof Response)) opened.abandon();
      throw await deadline.brokeOff(error);
    } finally {
      deadline.end();
      if (!opened || opened instanceof Response) deadline.final();
    }
    try {
      // Who empties its wallet while it is served has paid before.
      if (row.state === 'working' && row.custody !== 'channel') row = await machine.takeEarly(row);
    } catch (error) {
      opened.abandon();
      throw error;
    } finally {
      deadline.final();
    }
    await this.#serveLive(visit, row, opened, done);
    return undefined;
  }

  /** From the handshake's answer to the charge. Recovery charges what a crash leaves of it. */
  async #serveLive(visit: Visit, row: PaymentRow, opened: InstanceSocket, done: () => void): Promise<void> {
    const { socket, received } = this.#caller;
    const cut = () => {
      socket.destroy();
      opened.abandon();
    };
    let forget: (() => void) | undefined;
    await this.#live
      .run(
        row,
        visit.limit,
        cut,
        async (call) => {
          forget = row.channel === null ? undefined : this.#calls?.add(row.channel, (problem) => call.end(problem));
          // Whoever shows the credential again meanwhile hears that it was used; it does not wait for this end.
          done();
          socket.once('close', () => call.left());
          if (socket.destroyed) opened.abandon();
          else await opened.join(socket, received, liveHeaders(opened, row, visit));
        },
        () =>
          this.#machine.exclusively(row, async () => {
            const current = (await this.#machine.store.byId(row.id)) ?? row;
            if (!(await chargeMetered(this.#machine, current)))
              await this.#machine.release(current, 'the handler reported no cost');
          }),
      )
      .finally(() => forget?.());
  }

  /**
   * The credential was used before. Who had left when the socket was opened may have it now; otherwise a payment is
   * good for one socket.
   */
  async openAgain(visit: Visit, paid: Again): Promise<Response | undefined> {
    const { store } = this.#machine;
    if (visit.route.live) throw used(paid.row);
    const held = await this.#machine.exclusively(paid.row, async () => {
      const row = paid.as(await store.byId(paid.row.id))?.row;
      if (row?.state !== 'answered' || row.answerStatus !== 101 || !row.clientGone) throw used(paid.row);
      const opened = await this.#open(visit, row, visit.request.signal);
      if (opened instanceof Response) return opened.status < 400 ? await refuseAnswer(opened) : opened;
      return { opened, row: await store.answered(row, undefined, this.#caller.socket.destroyed) };
    });
    return held instanceof Response ? withRequestId(held, visit.context) : this.#join(visit, held.row, held.opened);
  }

  #chargeOf({ route, prepared, limit }: Visit, opened: InstanceSocket): Money {
    try {
      if (this.#caller.socket.destroyed)
        throw new Problem('bad_request', 'The caller left before the WebSocket was open. Nothing was charged.');
      return chargeOf(route.mode, opened.headers.get('x-charge'), prepared.terms.amount, limit);
    } catch (error) {
      opened.abandon();
      throw error;
    }
  }

  async #join({ context }: Visit, row: PaymentRow, opened: InstanceSocket): Promise<undefined> {
    const { socket, received } = this.#caller;
    if (socket.destroyed) opened.abandon();
    else await opened.join(socket, received, paidHeaders(opened, row, context));
  }
}

/** Whatever such an answer holds, it was not what the caller paid for. */
async function refuseAnswer(answer: Response): Promise<never> {
  await answer.body?.cancel();
  throw new Problem(
    'upstream_failed',
    'The handler opened no WebSocket. Nothing was charged; call the route without an upgrade.',
  );
}

function used(row: PaymentRow): Problem {
  return new Problem('conflict', 'This payment was used before. A WebSocket takes a payment of its own.', {
    headers: receiptHeaders(row),
    extensions: { payment: row.id },
  });
}

/** MPP's sessions inside a socket need a server of their own in the handler, so they are not offered. */
export function unpaidSocket(amount: Money, mode: 'fixed' | 'metered'): Problem {
  return new Problem(
    'payment_required',
    `This WebSocket costs ${mode === 'metered' ? 'at most ' : ''}${formatUsd(amount)} USD, paid with its handshake: send the payment in an Authorization, PAYMENT-SIGNATURE or X-PAYMENT header. Payments inside the socket are not taken.`,
  );
}
