/** Names that callers and callees agree on. */
import { randomBytes } from 'node:crypto';

/**
 * What workerd asks for on a service's socket to call methods. Tenants' code must not know it: `env.AUTH.connect()` asks
 * on the same socket.
 */
export const RPC_HOST = randomBytes(16).toString('hex');

/** The host writes entrypoints into workerd's configuration; JavaScript would allow any string. */
export const ENTRYPOINT = /^[A-Za-z_$][\w$]{0,63}$/;
