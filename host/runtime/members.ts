/** The instances of this node that are members of their tenants' clusters, and the way to them from other nodes. */
import { randomInt } from 'node:crypto';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import type { TenantId } from '../shared/contracts.ts';
import { ClusterMember, type MemberId, type MemberPart, type ObjectsCluster } from './cluster-member.ts';
import { JointUpdates, type Serving } from './joint-updates.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';

/** A path at which nobody listens. */
const NOWHERE = '/dev/null/nowhere';

export class Members {
  readonly updates: JointUpdates;
  readonly #cluster: ObjectsCluster;
  readonly #log: Logger;
  readonly #members = new Map<string, ClusterMember>();
  /** What is written of instances that are gone. */
  readonly #endings = new Set<Promise<void>>();
  /** A node that was killed and is started again gives no address anew whose lease still holds. */
  readonly #first = randomInt(65_536);

  /** @param serving on this node @param onChange objects are away, or can be reached again */
  constructor(cluster: ObjectsCluster, log: Logger, serving: Serving, onChange: () => void) {
    this.updates = new JointUpdates(cluster.others, serving);
    // Two instances of a node, the old and the new one, talk to each other without leaving it.
    this.#cluster = {
      ...cluster,
      dialPeer: (to) => (to.node === cluster.node ? this.#here(to) : cluster.dialPeer(to)),
    };
    this.#log = log;
    cluster.bucket.watch(onChange);
  }

  /** Whether an instance would end, were it a member now. */
  get away(): boolean {
    return this.#cluster.bucket.away;
  }

  /** @param number any that counts up from instance to instance of this node */
  async join(
    tenant: TenantId,
    number: number,
    part: MemberPart,
    sandbox: Pick<PrewarmedSandbox, 'process' | 'listenFolder'>,
  ): Promise<ClusterMember> {
    const member = await ClusterMember.join(this.#cluster, tenant, this.#first + number, part, sandbox);
    const key = keyOf(member.id);
    this.#members.set(key, member);
    void sandbox.process.exited.then(() => {
      if (this.#members.get(key) === member) this.#members.delete(key);
      // Nobody has to wait for the end of its lease: it is known to be gone.
      const ending = this.#cluster.bucket
        .ended(tenant, member.config.advertise)
        .catch((error: Error) =>
          this.#log.warn({ err: error, tenant }, 'the lease of an instance with objects ends by itself'),
        )
        .finally(() => this.#endings.delete(ending));
      this.#endings.add(ending);
    });
    return member;
  }

  /** Resolves when the leases of all instances that are gone have ended. */
  async settled(): Promise<void> {
    await Promise.all(this.#endings);
  }

  /** Takes a connection of another node's that is meant for an instance of this one. */
  receive(to: Omit<MemberId, 'node'>, stream: Duplex): void {
    const member = this.#members.get(keyOf(to));
    if (member) member.receive(stream);
    else stream.destroy();
  }

  /** The stream fails, as a connection does, where that instance has ended. */
  #here(to: MemberId): Duplex {
    return connect(this.#members.get(keyOf(to))?.socket ?? NOWHERE);
  }
}

function keyOf({ tenant, member }: Omit<MemberId, 'node'>): string {
  return `${tenant}/${member}`;
}
