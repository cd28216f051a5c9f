/** What service bindings need of the host: who may call whom, and the instances that are called. Types only. */
import type { TenantId } from '../../shared/contracts.ts';
import type { Called } from './access.ts';

/** An instance that is called; it is not ended because nobody uses it while work is done. */
export interface Visit {
  /** Path of the socket of one of its entrypoints; undefined where the code that runs has none of that name. */
  entrySocket(entrypoint: string | undefined): string | undefined;
  /** Of the host's own worker in it (runtime/system-worker.ts). */
  systemSocket: string;
  /** Aborted when it is about to end: what begins now should go to the next one. */
  leaving: AbortSignal;
  during<Result>(work: () => Promise<Result>): Promise<Result>;
}

export interface ServiceDirectory {
  /**
   * Whether the caller may call now.
   * @returns the callee's tenant, and whether both have one owner
   * @throws Problem not_found | forbidden | suspended | gone
   */
  check(caller: TenantId, called: Called): Promise<{ tenant: TenantId; related: boolean }>;
  /** Starts the deployment's instance where it is cold. @throws Problem start_failed | crash_loop | overloaded | … */
  visit(slug: string): Promise<Visit>;
  /** Counts a call as a request of the callee. @param failed it was answered 500 or above */
  count(callee: TenantId, failed: boolean): void;
  /** Tells the caller's owner why a call was refused. */
  refused(caller: TenantId, detail: string): void;
}
