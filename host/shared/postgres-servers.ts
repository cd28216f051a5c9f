/** Addresses of a PostgreSQL whose standby takes over: `postgres://user:password@one:5432,two:5432/database`, as libpq has them. */

const PARTS = /^(postgres(?:ql)?:\/\/(?:[^/?@]*@)?)([^/?]*)(.*)$/s;

/** @returns one address for each server, in the order given */
export function serverUrls(url: string): string[] {
  const [, begin = '', servers = '', end = ''] = PARTS.exec(url) ?? [];
  return servers.includes(',') ? servers.split(',').map((server) => `${begin}${server}${end}`) : [url];
}

/** Which of several servers is asked: the one that was good last, until it is not. */
export class Servers {
  readonly #urls: string[];
  #at = 0;

  constructor(url: string) {
    this.#urls = serverUrls(url);
  }

  get count(): number {
    return this.#urls.length;
  }

  get present(): string {
    return this.#urls[this.#at] as string;
  }

  /** It cannot be reached, or takes no writes: the next one may. */
  failed(url: string): void {
    if (url === this.present) this.#at = (this.#at + 1) % this.count;
  }
}
