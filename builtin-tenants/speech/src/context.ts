/**
 * What one request is served with: the settings, the engines, the caller's limit and the way to go on after the answer.
 */
import type { ListenEngine, ReadEngine, SpeakEngine } from './engines/engine.ts';
import type { PaymentsBinding, Settings, Store } from './settings.ts';

export interface Engines {
  listen: ListenEngine;
  speak: SpeakEngine;
  read: ReadEngine;
}

export interface Visit {
  request: Request;
  url: URL;
  requestId: string;
  settings: Settings;
  engines: Engines;
  /** Undefined: no STORE binding. */
  store: Store | undefined;
  /** Undefined: no PAYMENTS binding. */
  payments: PaymentsBinding | undefined;
  /** Lets work go on after the answer. */
  waitUntil(work: Promise<unknown>): void;
}
