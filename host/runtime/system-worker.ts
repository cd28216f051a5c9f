/**
 * Our own worker beside the tenant's in the same process: it answers health pings (it can only do so while the event
 * loop turns) and runs the tenant's `scheduled()`. It is reachable on system.sock alone, never from the tenant.
 */

/** Fixed: the worker is ours, and its behaviour must not follow the tenant's date. */
export const SYSTEM_COMPATIBILITY_DATE = '2026-01-01';

/** Path and answer of the ping. */
export const PING_PATH = '/ping';
/** `POST` with `{cron, scheduledTime}`; answers `{outcome, error?, stack?}`. */
export const SCHEDULED_PATH = '/scheduled';

/**
 * `MAIN.scheduled()` is a JS RPC call on the tenant's default export: the dedicated method of service bindings needs
 * an experimental flag (workerd 1.20261117.1). It resolves when the handler's promise does.
 */
export const SYSTEM_WORKER = `
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === '${PING_PATH}') return new Response('pong');
    if (pathname !== '${SCHEDULED_PATH}' || request.method !== 'POST') return new Response(null, { status: 404 });
    const { cron, scheduledTime } = await request.json();
    try {
      await env.MAIN.scheduled({ type: 'scheduled', cron, scheduledTime, noRetry() {} });
      return Response.json({ outcome: 'ok' });
    } catch (error) {
      const text = error instanceof Error ? error.name + ': ' + error.message : String(error);
      return Response.json({ outcome: 'exception', error: text.slice(0, 1000) });
    }
  },
};
`;
