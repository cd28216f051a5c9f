/**
 * Answers of routes with `perEvent`: a stream of server-sent events that costs by the event. MPP's sessions pay event by
 * event, with vouchers that they send beside the stream; everybody else pays the price first, and gets the rest back.
 */
import { brokenConstraint } from '../../registry/constraints.ts';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { least, type Money, micro, parseUsd, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import type { SessionPlaces } from '../methods/channels/places.ts';
import type { Presented } from '../methods/method.ts';
import { acknowledged, needVoucherEvent, receiptEvent, sessionReceipt } from '../methods/tempo/sessions/receipt.ts';
import type { LiveCall, LiveCalls } from '../settlement/live-calls.ts';
import type { SettlementMachine } from '../settlement/machine.ts';
import { receiptHeaders } from '../settlement/receipts.ts';
import { chargeMetered } from '../settlement/recovery.ts';
import { termsFromText } from '../terms.ts';
import { Deadline } from './deadline.ts';
import { liveHeaders, withRequestId } from './messages.ts';
import { type EventMeter, MeteredEvents } from './metered-events.ts';
import type { Visit } from './visit.ts';

/** How long a payer may take for the next voucher, ms. */
const VOUCHER_MS = 60_000;
/** It may come in at another node, ms. */
const LOOK_MS = 500;

export interface PaidEventsOptions {
  machine: SettlementMachine;
  live: LiveCalls;
  sessions: SessionPlaces;
  /** Asks the handler. */
  forward(visit: Visit, row: PaymentRow, signal: AbortSignal): Promise<Response>;
}

export class PaidEvents {
  readonly #options: PaidEventsOptions;
  /** Streams that wait for a voucher, by their credential. */
  readonly #waiting = new Map<string, () => void>();

  constructor(options: PaidEventsOptions) {
    this.#options = options;
  }

  /** @param done called when the credential may be shown again */
  async open(visit: Visit, begun: PaymentRow, done: () => void): Promise<Response> {
    const { machine, sessions, forward } = this.#options;
    const deadline = new Deadline(begun, machine, visit.request.signal, sessions.calls);
    let response: Response | undefined;
    let row: PaymentRow;
    let receipt: string | undefined;
    try {
      response = await deadline.race(forward(visit, begun, deadline.signal));
      row = await deadline.settled();
      if (response.status >= 400) {
        await machine.release(row, `the handler answered ${response.status}`);
        deadline.final();
        done();
        return withRequestId(response, visit.context);
      }
      const isStream = /^text\/event-stream\b/i.test(response.headers.get('content-type') ?? '');
      // What is encoded cannot be counted, and could tell clients to sign in the host's name.
      if (!isStream || response.body === null || isEncoded(response)) throw noEvents();
    } catch (error) {
      await response?.body?.cancel().catch(() => {});
      throw await deadline.brokeOff(error).finally(() => deadline.final());
    } finally {
      deadline.end();
    }
    try {
      // Who empties its wallet while it is served has paid before.
      if (row.state === 'working' && row.custody !== 'channel') row = await machine.takeEarly(row);
      const channel = await sessions.channels.byId(row.channel ?? '');
      // What was spent before; the end of the stream brings another one.
      if (channel && row.credential)
        receipt = sessionReceipt({ ...channel, voucher: acknowledged(row.credential, channel) }, row.credentialId);
    } catch (error) {
      await response.body.cancel().catch(() => {});
      throw error;
    } finally {
      deadline.final();
    }
    const headers = liveHeaders(response, row, visit);
    headers.delete('content-length');
    if (receipt !== undefined) headers.set('payment-receipt', receipt);
    const { body } = this.#stream(visit, row, response.body, done);
    return new Response(body, { status: response.status, statusText: response.statusText, headers });
  }

  /** @throws Problem `conflict`: a stream is delivered once */
  again({ row }: { row: PaymentRow }): never {
    throw new Problem('conflict', 'This payment was used before. A stream of events takes a payment of its own.', {
      headers: receiptHeaders(row),
      extensions: { payment: row.id },
    });
  }

  /**
   * A voucher for a stream, sent beside it under the challenge of the stream.
   * @returns undefined for a credential that asks for a stream of its own
   */
  async voucher(presented: Presented): Promise<Response | undefined> {
    const { machine, sessions } = this.#options;
    const channel = sessions.voucherOf(presented);
    const row = channel === undefined ? undefined : await machine.store.byCredential(presented.id);
    if (!row || row.channel !== channel || row.credentialHash === presented.hash) return undefined;
    if (termsFromText(row.terms).perEvent === undefined) return undefined;
    const answer = await sessions.noted(presented);
    this.#waiting.get(row.credentialId)?.();
    return answer;
  }

  #stream(visit: Visit, row: PaymentRow, source: ReadableStream<Uint8Array>, done: () => void): MeteredEvents {
    const { live, machine, sessions } = this.#options;
    const parted = Promise.withResolvers<void>();
    let result: { delivered: Money; clientGone: boolean } | undefined;
    let call: LiveCall | undefined;
    let forget: (() => void) | undefined;
    const meter: EventMeter = {
      price: parseUsd(visit.route.perEvent ?? visit.route.price),
      limit: visit.limit,
      ...(row.channel === null ? this.#held(visit.limit) : this.#inChannel(row, row.channel)),
      note: async (total) => void (await call?.report(total)),
      end: async (delivered, clientGone) => {
        result = { delivered, clientGone };
        parted.resolve();
        await over;
        const channel = await sessions.channels.byId(row.channel ?? '');
        return channel && receiptEvent(channel, row.credentialId);
      },
    };
    const events = new MeteredEvents(source, visit.request.signal, meter);
    const over = live.run(
      row,
      visit.limit,
      () => events.cut(),
      async (begun) => {
        call = begun;
        forget = row.channel === null ? undefined : sessions.calls.add(row.channel, (problem) => begun.end(problem));
        done();
        await parted.promise;
      },
      () =>
        machine
          .exclusively(row, async () => {
            const { delivered, clientGone } = result ?? {};
            const current = (await machine.store.byId(row.id)) ?? row;
            if (!(await chargeMetered(machine, current, delivered, clientGone)))
              await machine.release(current, 'no event was delivered');
          })
          .finally(() => forget?.()),
      true,
    );
    over.catch(() => {});
    return events;
  }

  /** What was paid first is all there is. */
  #held(limit: Money): Pick<EventMeter, 'cover' | 'ask' | 'more'> {
    return { cover: async () => limit, ask: async () => undefined, more: async () => false };
  }

  #inChannel(begun: PaymentRow, id: string): Pick<EventMeter, 'cover' | 'ask' | 'more'> {
    const { machine, sessions } = this.#options;
    const price = parseUsd(termsFromText(begun.terms).perEvent ?? '0');
    let row = begun;
    /** The greatest voucher when the payer was asked for more. */
    let before = ZERO;
    const channelOf = async () => {
      const channel = await sessions.channels.byId(id);
      if (channel?.state !== 'open' || channel.closeRequestedAt !== 0)
        throw new Problem('conflict', 'The channel is closed, or its payer closes it.');
      return channel;
    };
    return {
      cover: async (wanted) => {
        if (row.authorized >= wanted) return row.authorized;
        const { voucher, captured, reserved } = await channelOf();
        const free = voucher - captured - reserved;
        const missing = wanted - row.authorized;
        const more = micro((least<bigint>(free, missing) / price) * price);
        // Another call may take it first, or the payer close the channel: the database decides.
        if (more > 0n)
          row = await machine.store.channel.extended(row, more).catch((error) => {
            if (brokenConstraint(error) === 'CHECK') return row;
            throw error;
          });
        return row.authorized;
      },
      ask: async (wanted) => {
        const channel = await channelOf();
        before = channel.voucher;
        return needVoucherEvent(channel, channel.captured + channel.reserved + wanted - row.authorized);
      },
      more: async (signal) => {
        const end = performance.now() + VOUCHER_MS;
        while (!signal.aborted && performance.now() < end) {
          const { voucher, captured, reserved } = await channelOf();
          if (voucher > before || voucher - captured - reserved >= price) return true;
          await this.#poked(row.credentialId, signal);
        }
        return false;
      },
    };
  }

  #poked(credentialId: string, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, LOOK_MS);
    this.#waiting.set(credentialId, resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
    return promise.finally(() => {
      clearTimeout(timer);
      this.#waiting.delete(credentialId);
    });
  }
}

function isEncoded({ headers }: Response): boolean {
  return (headers.get('content-encoding') ?? 'identity').toLowerCase() !== 'identity';
}

function noEvents(): Problem {
  return new Problem(
    'upstream_failed',
    'The handler answered no text/event-stream without a content-encoding, which is sold here by the event. Nothing was charged.',
  );
}
