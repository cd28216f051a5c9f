/**
 * The users that tenants' processes run as. A host that is root gives each a user of its own, as far as its user
 * namespace has them: a container often maps 65,536 user ids of the machine, and sometimes one.
 */
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** Ids from `first` to `last`, both included. */
interface Range {
  first: number;
  last: number;
}

/** Where ids are taken from, best first: far from all accounts, or from those of a container. */
const PREFERRED: readonly Range[] = [
  { first: 0x7000_0000, last: 0x7ffe_ffff },
  { first: 20_000, last: 59_999 },
];
/** With fewer, tenants would often share one. */
const FEWEST = 1_000;

let known: Range | undefined | false = false;

/** @returns undefined where processes cannot be given other users */
function ownUsers(): Range | undefined {
  if (known === false) known = isRoot() ? pickUsers(mapOf('uid'), mapOf('gid')) : undefined;
  return known;
}

function mapOf(kind: 'uid' | 'gid'): string {
  try {
    return readFileSync(`/proc/self/${kind}_map`, 'utf8');
  } catch {
    // A kernel without user namespaces.
    return '0 0 4294967295';
  }
}

/**
 * @param uidMap,gidMap as in /proc/self/uid_map and gid_map: see user_namespaces(7)
 * @returns ids that are there both as users and as groups; undefined where too few are
 */
export function pickUsers(uidMap: string, gidMap: string): Range | undefined {
  for (const preferred of PREFERRED) {
    const there = overlaps(overlaps(mapped(uidMap), mapped(gidMap)), [preferred]);
    const [longest] = there.sort((a, b) => b.last - b.first - (a.last - a.first));
    if (longest && longest.last - longest.first + 1 >= FEWEST) return longest;
  }
  return undefined;
}

/** The ids inside, in ascending order; lines that follow on one another are one range. */
function mapped(map: string): Range[] {
  const lines = map
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number));
  const found: Range[] = [];
  for (const [first = 0, , length = 0] of lines.sort(([a = 0], [b = 0]) => a - b)) {
    const before = found.at(-1);
    if (before && before.last + 1 === first) before.last += length;
    else if (length > 0) found.push({ first, last: first + length - 1 });
  }
  return found;
}

function overlaps(some: Range[], others: readonly Range[]): Range[] {
  return some
    .flatMap((one) =>
      others.map(({ first, last }) => ({ first: Math.max(one.first, first), last: Math.min(one.last, last) })),
    )
    .filter(({ first, last }) => first <= last);
}

/** Whether a host that may give its processes other users has none to give. */
export function lacksUsers(): boolean {
  return isRoot() && ownUsers() === undefined;
}

/** One phrase for the operator: which users tenants have, and what that costs. */
export function userCost(): string {
  if (ownUsers()) return 'own user per tenant';
  const why = isRoot() ? 'too few user ids are mapped here' : 'the host is not root';
  return `one user for the host and all tenants (${why}), so what breaks out of its namespaces has the rights of the host`;
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * A user for a tenant's processes, the same at every start and most likely shared with no other tenant.
 * @returns undefined where processes cannot be given other users
 */
export function tenantUser(tenant: string): number | undefined {
  let hash = 0;
  for (const character of tenant) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) >>> 0;
  return userAt(hash);
}

/** A user for one process' life, most likely shared with no other. */
export function randomUser(): number | undefined {
  return userAt(randomInt(0xffff_ffff));
}

function userAt(number: number): number | undefined {
  const users = ownUsers();
  return users && users.first + (number % (users.last - users.first + 1));
}
