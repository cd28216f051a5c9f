/** What one tenant may take of the bucket of objects. */

/** Records up to here are rows of PostgreSQL: leases, owners, and most of what one write adds. */
export const INLINE_BYTES = 65_536;
/** About what a row takes beside its bytes. */
export const ROW_BYTES = 400;
/** Largest lease of an instance, or of an object's owner: workerd's take some hundred bytes. */
export const LEASE_BYTES = 4_096;
/** Room beyond a tenant's quota for the leases of its instances, without which none would start. */
export const INSTANCES_BYTES = 1_048_576;
/** Largest object: workerd sends a snapshot of one Durable Object at once, compressed. */
export const MOST_BODY_BYTES = 1_073_741_824;
/** Requests at work, of one tenant and of all. Tenants take turns for what is free. */
export const PER_TENANT = 12;
export const IN_ALL = 48;
/** Requests of one tenant that wait, and how long, ms. Leases have places of their own. */
export const WAITING_PER_TENANT = 1_024;
export const WAIT_MS = 5_000;
/** Connections of one instance that are served at once. */
export const CONNECTIONS = 1_024;
/** Of one instance, and of all, that wait until one of those has ended: each takes a descriptor, and 3 KB of memory. */
export const WAITING_CONNECTIONS = 8_192;
export const WAITING_CONNECTIONS_IN_ALL = 16_384;
/** An idle connection is closed by workerd, after 90 s: one that is closed here could just be used. ms */
export const IDLE_MS = 300_000;
/** Longest silence on a connection that is in the middle of a request or an answer, ms. */
export const SILENCE_MS = 30_000;
