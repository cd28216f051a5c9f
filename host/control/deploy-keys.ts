/**
 * Deploy keys at the door: which key a call brings, and whether it may do what the call asks for. An endpoint is closed
 * to keys unless it names the actions that open it (`Endpoint.keyActions`).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { DeployKeys } from '../registry/deploy-keys.ts';
import type { DeployKey } from '../registry/schema/deploy-keys.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Clock } from '../shared/clock.ts';
import { deployKeyId, isDeployKey, type KeyAction, newDeployKey } from '../shared/deploy-keys.ts';
import { networkOf } from '../shared/network-of.ts';
import { Problem } from '../shared/problem.ts';
import type { BaseCall, Endpoint } from './endpoint.ts';

/** Wrong keys of one network in a period. After that none is looked at, right or wrong, until the period is over. */
const MOST_FAILED = 20;
const FAILED_PERIOD_MS = 60_000;
/** Networks that are remembered; where there are more, the oldest is forgotten. */
const MOST_NETWORKS = 10_000;

/** What the key in a request's `Authorization` is; undefined where it has another credential, or none. */
export function presentedKey({ headers }: Request): string | undefined {
  const bearer = /^Bearer (\S+)$/i.exec(headers.get('authorization') ?? '')?.[1];
  return bearer !== undefined && isDeployKey(bearer) ? bearer : undefined;
}

/** @throws Problem forbidden where a key is sent to an endpoint that takes the wallet alone */
export function refuseKeys({ access, keyActions, summary }: Endpoint<never>, { request }: BaseCall): void {
  if (access === 'public' || keyActions !== undefined || presentedKey(request) === undefined) return;
  throw new Problem(
    'forbidden',
    `A deploy key does not do this (${summary}); it takes the owner's wallet. Unset TURNPIKE_DEPLOY_KEY.`,
  );
}

/** How a person knows the key: in the log, and beside the versions that it made. */
export function keyLabel({ id, name }: Pick<DeployKey, 'id' | 'name'>): string {
  return `key ${id}${name === null ? '' : ` (${name})`}`;
}

export class KeyRing {
  readonly #keys: DeployKeys;
  readonly #clock: Clock;
  readonly #failed = new Map<string, { count: number; until: number }>();
  /** By the id of a key: ends what goes on with it. */
  readonly #goingOn = new Map<string, Set<() => void>>();

  constructor(keys: DeployKeys, clock: Clock) {
    this.#keys = keys;
    this.#clock = clock;
  }

  /** @returns the key itself, which is kept nowhere, and what is kept of it */
  async make(asked: Pick<DeployKey, 'owner' | 'name' | 'slugs' | 'actions' | 'expiresAt'>) {
    const id = randomBytes(6).toString('hex');
    const key = newDeployKey(id, randomBytes(32));
    const row: DeployKey = { ...asked, id, hash: sha256(key), createdAt: this.#clock.now(), usedAt: null };
    await this.#keys.add(row);
    return { key, row };
  }

  ofOwner(owner: string): Promise<DeployKey[]> {
    return this.#keys.ofOwner(owner);
  }

  /** At once, for what is under way, too. @returns whether the owner had such a key */
  async revoke(id: string, owner: string): Promise<boolean> {
    if (!(await this.#keys.remove(id, owner))) return false;
    for (const end of this.#goingOn.get(id) ?? []) end();
    return true;
  }

  async isValid(id: string): Promise<boolean> {
    return ((await this.#keys.byId(id))?.expiresAt ?? 0) > this.#clock.now();
  }

  /** For what outlives its call, such as a log that is followed. @param end called once the key is revoked @returns call it at the end */
  whileValid(id: string, end: () => void): () => void {
    const ends = this.#goingOn.get(id) ?? new Set();
    this.#goingOn.set(id, ends.add(end));
    return () => {
      ends.delete(end);
      if (ends.size === 0 && this.#goingOn.get(id) === ends) this.#goingOn.delete(id);
    };
  }

  /**
   * The key that a call brings, where it is right and may do one of these actions to this deployment.
   * @throws Problem unauthorized | forbidden | rate_limited
   */
  async present(key: string, clientIp: string, actions: readonly KeyAction[], of: Deployment): Promise<DeployKey> {
    const row = await this.#known(key, clientIp);
    const { owner, slugs } = row;
    if (owner !== of.owner || (slugs && !slugs.some(({ tenant }) => tenant === of.tenant)))
      throw new Problem(
        'forbidden',
        `This deploy key is not for ${of.slug}${slugs ? `, but for ${slugs.map(({ slug }) => slug).join(', ')}` : ''}${owner === of.owner ? '; a slug that was deployed anew takes a new key' : ''}.`,
      );
    requireAction(row, actions);
    await this.#keys.noteUse(row.id, this.#clock.now());
    return row;
  }

  async #known(key: string, clientIp: string): Promise<DeployKey> {
    const network = networkOf(clientIp);
    const failed = this.#failed.get(network);
    const now = performance.now();
    if (failed && failed.count >= MOST_FAILED && now < failed.until) {
      const seconds = Math.ceil((failed.until - now) / 1_000);
      throw new Problem('rate_limited', `Too many wrong deploy keys from here; try again in ${seconds} s.`, {
        headers: { 'retry-after': String(seconds) },
      });
    }
    const id = deployKeyId(key);
    const row = id === undefined ? undefined : await this.#keys.byId(id);
    if (!row || !timingSafeEqual(row.hash, sha256(key))) {
      this.#noteFailure(network);
      throw new Problem('unauthorized', 'The deploy key is wrong, or was revoked; make one with turnpike keys create.');
    }
    if (row.expiresAt <= this.#clock.now())
      throw new Problem('unauthorized', 'The deploy key has run out; make one with turnpike keys create.');
    return row;
  }

  #noteFailure(network: string): void {
    const now = performance.now();
    const known = this.#failed.get(network);
    this.#failed.delete(network);
    this.#failed.set(
      network,
      known && now < known.until ? { ...known, count: known.count + 1 } : { count: 1, until: now + FAILED_PERIOD_MS },
    );
    const [oldest] = this.#failed.keys();
    if (this.#failed.size > MOST_NETWORKS && oldest !== undefined) this.#failed.delete(oldest);
  }
}

/** @throws Problem forbidden unless the key has one of the actions */
export function requireAction({ actions }: Pick<DeployKey, 'actions'>, asked: readonly KeyAction[]): void {
  if (asked.some((action) => actions.includes(action))) return;
  throw new Problem(
    'forbidden',
    `This takes a deploy key that may ${asked.join(' or ')}; this one may ${actions.join(', ')}. Make another with turnpike keys create.`,
  );
}

function sha256(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
