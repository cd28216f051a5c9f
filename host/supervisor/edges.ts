/** The edge processes as one: every call goes to all of them; one that is restarting catches up by itself. */
import type { Logger } from 'pino';
import type { Channel, Methods } from '../shared/channel.ts';
import type { EdgeInit, EdgeMethods, ListenerKind, Route } from '../shared/contracts.ts';
import { Child } from './child.ts';
import type { ListeningSocket } from './listening-socket.ts';

/** What the processes need to serve. */
export interface EdgeSetUp {
  /** The methods of ControlForEdge. */
  local: Methods;
  init(): EdgeInit;
  routes(): Promise<Route[]>;
  /** Slugs whose requests are told one by one. */
  watched(): string[];
  listeners: { kind: ListenerKind; socket: Pick<ListeningSocket, 'handle'> }[];
}

export class Edges {
  readonly children: Child<EdgeMethods>[];

  constructor(count: number, log: Logger) {
    this.children = Array.from(
      { length: count },
      (_, index) => new Child<EdgeMethods>(count === 1 ? 'edge' : `edge-${index + 1}`, 'edge', log),
    );
  }

  async start({ local, init, routes, watched, listeners }: EdgeSetUp): Promise<void> {
    const setUp = async (channel: Channel<EdgeMethods>): Promise<void> => {
      await channel.call('init', init());
      await channel.call('setRoutes', await routes());
      await channel.call('watch', { slugs: watched() });
      for (const { kind, socket } of listeners) await channel.call('listen', { kind }, socket.handle);
    };
    await Promise.all(this.children.map((child) => child.start({ local, setUp })));
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
