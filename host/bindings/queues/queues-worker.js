/**
 * What queues can do beyond what workerd has built in: a queue can be paused, purged and measured as a whole, by the
 * owner of the deployment alone. It extends workerd's own classes and touches nothing of them but the table of messages
 * (workerd 1.20261117.1), and runs inside workerd alone: objects-config.ts embeds it.
 */
import { DurableObject, WorkerEntrypoint } from 'cloudflare:workers';
import queues, { QueueShard as Shard } from './queues.js';

/** A message of a paused queue becomes visible so much later than it should, ms: never, as long as it is kept. */
const HELD = 2 ** 50;
/** Whatever makes a message visible while the queue is paused; one without attempts left still goes to the dead letters. */
const PAUSE = `
CREATE TRIGGER IF NOT EXISTS paused_sent AFTER INSERT ON messages BEGIN
  UPDATE messages SET visible_at = visible_at + ${HELD} WHERE seq = NEW.seq;
END;
CREATE TRIGGER IF NOT EXISTS paused_tried AFTER UPDATE OF visible_at ON messages WHEN NEW.dead = 0 AND NEW.visible_at < ${HELD} BEGIN
  UPDATE messages SET visible_at = visible_at + ${HELD} WHERE seq = NEW.seq;
END;
UPDATE messages SET visible_at = visible_at + ${HELD} WHERE lease IS NULL AND dead = 0 AND visible_at < ${HELD};
`;
const RESUME = `
DROP TRIGGER IF EXISTS paused_sent;
DROP TRIGGER IF EXISTS paused_tried;
UPDATE messages SET visible_at = visible_at - ${HELD} WHERE visible_at >= ${HELD};
`;

export default queues;

/**
 * A consumer that lets requests in between its batches: workerd looks for them when nothing is left to do or a timer is
 * due, and batches of a backlog follow each other without either.
 */
function inTurns(consumer) {
  return {
    async queue(...batch) {
      await scheduler.wait(0);
      return consumer.queue(...batch);
    },
  };
}

/** Messages of a queue, in order. Most queues have one. */
export class QueueShard extends Shard {
  #queue;

  constructor(ctx, env) {
    super(ctx, { ...env, MAIN: inTurns(env.MAIN) });
    const { name } = ctx.id;
    this.#queue = name.slice(0, name.lastIndexOf('#'));
    ctx.blockConcurrencyWhile(async () => this.#set(await env.QUEUES.getByName(this.#queue).join(name)));
  }

  setPaused(paused) {
    this.#set(paused);
    this.#look();
  }

  purge() {
    // As if they had been kept too long: the sweep removes them, those that are out for delivery included.
    this.ctx.storage.sql.exec('UPDATE messages SET timestamp = 0');
    this.#look();
  }

  measure() {
    return this.#look();
  }

  #set(paused) {
    const { kv, sql } = this.ctx.storage;
    if ((kv.get('paused') ?? false) === paused) return;
    kv.put('paused', paused);
    sql.exec(paused ? PAUSE : RESUME);
  }

  /** Sweeps, and sets the alarm for what is next. */
  #look() {
    return JSON.parse(this.call(this.#queue, '/metrics').body);
  }
}

/** One queue as a whole. */
export class Queue extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS shards (name TEXT PRIMARY KEY)');
  }

  get #paused() {
    return this.ctx.storage.kv.get('paused') ?? false;
  }

  /** A shard is there. @returns whether it is paused */
  join(shard) {
    const { sql } = this.ctx.storage;
    // A shard starts on a full disk, too.
    if (!this.#shards().includes(shard)) sql.exec('INSERT INTO shards VALUES (?)', shard);
    return this.#paused;
  }

  async setPaused(paused) {
    // First here: a shard that comes meanwhile learns it.
    if (this.#paused !== paused) this.ctx.storage.kv.put('paused', paused);
    await this.#each((shard) => shard.setPaused(paused));
  }

  async purge() {
    await this.#each((shard) => shard.purge());
  }

  async measure() {
    const all = await this.#each((shard) => shard.measure());
    const sum = (key) => all.reduce((total, one) => total + one[key], 0);
    const oldest = all.map((one) => one.oldestMessageTimestamp).filter((at) => at > 0);
    return {
      backlogCount: sum('backlogCount'),
      backlogBytes: sum('backlogBytes'),
      oldestMessageTimestamp: oldest.length > 0 ? Math.min(...oldest) : 0,
      paused: this.#paused,
    };
  }

  #shards() {
    return this.ctx.storage.sql
      .exec('SELECT name FROM shards')
      .toArray()
      .map(({ name }) => name);
  }

  async #each(act) {
    const found = [];
    for (const name of this.#shards()) found.push(await act(this.env.SHARD.getByName(name)));
    return found;
  }
}

/** The owner's side of a queue. */
export class QueueControl extends WorkerEntrypoint {
  get #queue() {
    return this.env.QUEUES.getByName(this.ctx.props.queue);
  }

  /** What a producer in another deployment of the owner sends. */
  fetch(request) {
    return queues.fetch(request, this.env, this.ctx);
  }

  async act(action) {
    if (action === 'pause' || action === 'resume') await this.#queue.setPaused(action === 'pause');
    else if (action === 'purge') await this.#queue.purge();
    else throw new Error('This is a queue: it takes an action, which is pause, resume or purge.');
    return this.measure();
  }

  measure() {
    return this.#queue.measure();
  }
}
