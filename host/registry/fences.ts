/**
 * What whoever acts under a lease has to check with each write: that the lease is still its own. It is found by the
 * caller's asynchronous context, so nothing that is written there can leave it out; the client of PostgreSQL puts it
 * into the transaction. Timers and connections that outlive the work are made outside (`unfenced`).
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { InValue } from '@libsql/client/sqlite3';

export interface Fence {
  name: string;
  /** Fails, and with it the transaction, where the lease is another's by now. */
  check: { sql: string; args: InValue[] };
}

const NONE: readonly Fence[] = [];
const context = new AsyncLocalStorage<readonly Fence[]>();

/** The work goes on after its lease ended, or was another's. Nothing of the write that failed with it has happened. */
export class LeaseLost extends Error {
  constructor(name: string) {
    super(`the lease "${name}" is no longer this node's`);
  }
}

/** Of whoever asks. */
export function fences(): readonly Fence[] {
  return context.getStore() ?? NONE;
}

// Statements of drizzle run when they are waited for: that is here.
export function fenced<T>(fence: Fence, work: () => Promise<T>): Promise<T> {
  return context.run([...fences(), fence], async () => await work());
}

export function unfenced<T>(work: () => Promise<T>): Promise<T> {
  return context.run(NONE, async () => await work());
}
