/** Calls of this host's own instances on the edges' unix socket: as many of one tenant at a time as connections of one address. */
import type { Exchange } from '../http/message/exchange.ts';

/** Unix sockets have no addresses: this one is nobody's (RFC 6666), and no proxy's. */
export const INSIDE = '100::1';
const MOST_OF_ONE = 512;

export class InsideCalls {
  readonly #underWay = new Map<Exchange, string>();
  readonly #of = new Map<string, number>();

  /** @param caller address under which the tenant counts @returns false: it has too many */
  enter(exchange: Exchange, caller: string): boolean {
    if (exchange.peer.address !== INSIDE) return true;
    const present = this.#of.get(caller) ?? 0;
    if (present >= MOST_OF_ONE) return false;
    this.#of.set(caller, present + 1);
    this.#underWay.set(exchange, caller);
    return true;
  }

  left(exchange: Exchange): void {
    if (exchange.peer.address !== INSIDE) return;
    const caller = this.#underWay.get(exchange);
    if (caller === undefined) return;
    this.#underWay.delete(exchange);
    const others = (this.#of.get(caller) ?? 1) - 1;
    if (others === 0) this.#of.delete(caller);
    else this.#of.set(caller, others);
  }
}
