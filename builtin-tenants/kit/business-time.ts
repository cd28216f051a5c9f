/** Business time, ms: what money and history follow. Protocols, signatures and nonces use `Date.now()`. */
export function businessNow(env: {
  /** Set by the host when business time was moved. */
  CLOCK_OFFSET_MS?: string;
}): number {
  return Date.now() + Number(env.CLOCK_OFFSET_MS ?? 0);
}
