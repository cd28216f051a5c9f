/** Nodes of a cluster for tests of what it keeps in objects: processes that are told what to do, asked, killed. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CertifiedKey, certifyNode, createAuthority } from '../../../host/peers/authority.ts';
import { processTree } from '../../bench/processes.ts';
import { PostgresServer } from '../../registry/support/postgres-server.ts';
import type { NodeInit, NodeOrder } from './objects-node.ts';

const PROGRAM = fileURLToPath(new URL('objects-node.ts', import.meta.url));
/** Of what every node serves. */
export const SLUG = 'count';
/** Longest wait for one answer, ms. */
const PATIENCE_MS = 40_000;

export class ClusterNode {
  readonly #child: ChildProcess;
  #orders = 0;
  port = 0;
  peers = 0;
  folder = '';
  /** The last answer that was none. */
  refusal = '';

  constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(init: NodeInit): Promise<ClusterNode> {
    const child = fork(PROGRAM, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const node = new ClusterNode(child);
    const ready = once(child, 'message');
    child.send(init);
    const [{ answer }] = (await ready) as [{ answer: { port: number; peers: number; folder: string } }];
    return Object.assign(node, answer);
  }

  /** The node with all that runs on it. */
  get pids(): number[] {
    return processTree([this.#child.pid ?? 0]);
  }

  async order(order: NodeOrder): Promise<unknown> {
    const id = ++this.#orders;
    return await new Promise((resolve, reject) => {
      const hear = (message: { id: number; answer?: { error?: string } }): void => {
        if (message.id !== id) return;
        this.#child.off('message', hear);
        if (message.answer?.error !== undefined) reject(new Error(message.answer.error));
        else resolve(message.answer);
      };
      this.#child.on('message', hear);
      this.#child.send({ ...order, id });
    });
  }

  fetch(target: string, init?: RequestInit): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.port}/${SLUG}${target}`, init);
  }

  /** @returns undefined where there is no good answer */
  async ask<T>(target: string, patienceMs = PATIENCE_MS): Promise<T | undefined> {
    try {
      const response = await this.fetch(target, { signal: AbortSignal.timeout(patienceMs) });
      const text = await response.text();
      if (response.status !== 200) this.refusal = `${response.status} ${text.slice(0, 300)}`;
      return response.status === 200 ? (JSON.parse(text) as T) : undefined;
    } catch (error) {
      this.refusal = String(error);
      return undefined;
    }
  }

  /** The node with all that runs on it. */
  async kill(): Promise<void> {
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    await this.order({ do: 'stop' });
    await exit;
  }
}

/** Nodes over one PostgreSQL, each a process of its own, that all serve one slug. */
export class ClusterNodes {
  readonly #deploy: NodeOrder;
  readonly #folder = mkdtempSync(path.join(tmpdir(), 'oc-'));
  readonly #postgres: PostgresServer;
  readonly #url: string;
  readonly #authority: CertifiedKey;
  readonly #nodes = new Map<number, ClusterNode>();
  #numbers = 0;

  private constructor(deploy: NodeOrder, postgres: PostgresServer, authority: CertifiedKey) {
    this.#deploy = deploy;
    this.#postgres = postgres;
    this.#url = postgres.create('objects');
    this.#authority = authority;
  }

  /** @param deploy what each node is told to serve */
  static async start(deploy: NodeOrder): Promise<ClusterNodes> {
    return new ClusterNodes(deploy, await PostgresServer.start(), await createAuthority());
  }

  async join(runtime: NodeInit['runtime'] = {}): Promise<ClusterNode> {
    const number = ++this.#numbers;
    const own = await certifyNode(this.#authority, number);
    const node = await ClusterNode.start({
      node: number,
      postgres: this.#url,
      blobs: this.#folder,
      authority: this.#authority.certificate,
      own,
      runtime,
    });
    this.#nodes.set(number, node);
    await node.order(this.#deploy);
    await this.#tell();
    return node;
  }

  async leave(node: ClusterNode, how: 'kill' | 'stop'): Promise<void> {
    for (const [number, known] of this.#nodes) if (known === node) this.#nodes.delete(number);
    await node[how]();
  }

  async stop(): Promise<void> {
    for (const node of this.#nodes.values()) await node.stop();
    await this.#postgres.stop();
    rmSync(this.#folder, { recursive: true });
  }

  /** Everybody learns where the others are. */
  async #tell(): Promise<void> {
    const ports = Object.fromEntries([...this.#nodes].map(([number, { peers }]) => [number, peers]));
    await Promise.all([...this.#nodes.values()].map((node) => node.order({ do: 'peers', ports })));
  }
}
