/** The edge processes as one: every call goes to all of them; one that is restarting catches up by itself. */
import type { Logger } from 'pino';
import type { Channel, Methods } from '../shared/channel.ts';
import type { EdgeInit, EdgeMethods, Route } from '../shared/contracts.ts';
import { Child } from './child.ts';
import type { ListeningSocket } from './listening-socket.ts';

export interface EdgesOptions {
  count: number;
  log: Logger;
  /** The methods of ControlForEdge. */
  local: Methods;
  init(): EdgeInit;
  routes(): Promise<Route[]>;
  listeners: { kind: 'http' | 'https'; socket: ListeningSocket }[];
}

export class Edges {
  readonly children: Child<EdgeMethods>[];

  constructor(options: EdgesOptions) {
    this.children = Array.from({ length: options.count }, (_, index) => {
      const name = options.count === 1 ? 'edge' : `edge-${index + 1}`;
      return new Child<EdgeMethods>({
        name,
        process: 'edge',
        log: options.log,
        local: options.local,
        async setUp(channel) {
          await channel.call('init', options.init());
          await channel.call('setRoutes', await options.routes());
          for (const { kind, socket } of options.listeners) await channel.call('listen', { kind }, socket.handle);
        },
      });
    });
  }

  async start(): Promise<void> {
    await Promise.all(this.children.map((child) => child.start()));
  }

  channels(): Channel<EdgeMethods>[] {
    return this.children.flatMap((child) => {
      try {
        return [child.channel()];
      } catch {
        return [];
      }
    });
  }

  /** @returns the answers of the edges that are there */
  async each<K extends keyof EdgeMethods & string>(method: K, argument: Parameters<EdgeMethods[K]>[0]) {
    const answers = await Promise.allSettled(this.channels().map((channel) => channel.call(method, argument)));
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  }

  /** Lets requests in flight end, then stops the processes. */
  async stop(drainMs: number): Promise<void> {
    await this.each('drain', { timeoutMs: drainMs });
    await Promise.all(this.children.map((child) => child.stop()));
  }
}
