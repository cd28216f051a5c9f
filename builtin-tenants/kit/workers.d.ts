/** What workerd's module offers, as far as built-in tenants use it (workerd's `src/cloudflare/workers.ts`). */
declare module 'cloudflare:workers' {
  /** Lets work of the present request go on after its answer. */
  export function waitUntil(work: Promise<unknown>): void;
}
