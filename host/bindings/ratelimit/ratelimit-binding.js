/**
 * A rate-limit binding inside workerd: counts calls of each key in windows of its period, in this isolate. As on
 * Cloudflare, a limit is about one place and not exact: https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/
 *
 * It is the module of a `wrapped` binding (workerd.capnp): config.ts embeds it, and workerd alone runs it.
 */

/** Keys counted at a time: a caller who makes up keys takes no more memory than this. */
const MOST_KEYS = 100_000;
/** Namespace and period -> the present window. Bindings of one namespace count together. */
const windows = new Map();

/** @param {{options: {namespace: string, limit: number, period: number}}} inner */
export default function bindLimit({ options: { namespace, limit, period } }) {
  return {
    async limit(asked) {
      const key = asked?.key;
      if (typeof key !== 'string') throw new TypeError('limit() takes { key }, a string.');
      const number = Math.floor(Date.now() / (period * 1_000));
      const name = `${period} ${namespace}`;
      let window = windows.get(name);
      if (window?.number !== number) {
        window = { number, counts: new Map() };
        windows.set(name, window);
      }
      const { counts } = window;
      const count = (counts.get(key) ?? 0) + 1;
      if (count > limit) return { success: false };
      if (counts.size >= MOST_KEYS && count === 1) counts.delete(counts.keys().next().value);
      counts.set(key, count);
      return { success: true };
    },
  };
}
