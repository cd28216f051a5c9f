/**
 * Talks to a Turnpike host: public calls, calls that prove the owner's wallet, calls that cost money.
 * Turns the host's problem documents into failures with the right exit code.
 */
import type { ProblemDocument } from '../shared/problem.ts';
import {
  type PaidAnswer,
  type PayableRequest,
  type PayOptions,
  payRequest,
  proveRequest,
} from './paying/pay-request.ts';
import { Failure } from './terminal/failure.ts';

export interface HostClientOptions {
  /** Public origin of the host. */
  url: URL;
  fetch: typeof fetch;
  signal: AbortSignal;
  /** How to pay and prove; asked for only when it is needed, so that public calls need no wallet. */
  paying(): Promise<PayOptions>;
}

export class HostClient {
  readonly #options: HostClientOptions;

  constructor(options: HostClientOptions) {
    this.#options = options;
  }

  /** A call that anybody may make. */
  async get<Body>(path: string): Promise<Body> {
    return this.#read<Body>(await this.#plain(this.#request('GET', path)));
  }

  /** A call that proves the owner's wallet first. */
  async own<Body>(method: string, path: string, body?: unknown): Promise<Body> {
    const { signer, fetch } = await this.#options.paying();
    return this.#read<Body>(await proveRequest(this.#request(method, path, body), { signer, fetch }));
  }

  /** The same, for answers that are no JSON. */
  async ownText(path: string, accept: string): Promise<string> {
    const { signer, fetch } = await this.#options.paying();
    const request = this.#request('GET', path);
    const response = await proveRequest({ ...request, headers: { ...request.headers, accept } }, { signer, fetch });
    if (!response.ok) throw await problemOf(response);
    return response.text();
  }

  /** A call that costs money. Sent again with the same key and credential, it costs nothing more. */
  async pay<Body>(
    method: string,
    path: string,
    body: unknown,
    key: string,
  ): Promise<{ body: Body } & Omit<PaidAnswer, 'response'>> {
    const request = this.#request(method, path, body);
    const answer = await payRequest(
      { ...request, headers: { ...request.headers, 'idempotency-key': key } },
      await this.#options.paying(),
    );
    return { body: await this.#read<Body>(answer.response), paid: answer.paid };
  }

  /** Server-sent events of the owner; yields each `data` with its id, until the server ends the stream. */
  async *events(path: string, headers: Record<string, string>): AsyncGenerator<{ id: string; data: string }> {
    const request = this.#request('GET', path);
    const response = await this.#plain({
      ...request,
      headers: { ...request.headers, ...headers, accept: 'text/event-stream' },
    });
    if (!response.ok || !response.body) throw await problemOf(response);
    let rest = '';
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      rest += piece;
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const event = parseEvent(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (event) yield event;
      }
    }
  }

  #request(method: string, path: string, body?: unknown): PayableRequest {
    return {
      url: new URL(path, this.#options.url),
      method,
      headers: {
        accept: 'application/json',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: this.#options.signal,
    };
  }

  async #plain({ url, method, headers, signal }: PayableRequest): Promise<Response> {
    try {
      return await this.#options.fetch(url, { method, headers, redirect: 'manual', ...(signal ? { signal } : {}) });
    } catch {
      if (signal?.aborted) throw new Failure('cancelled', 'Cancelled.');
      throw new Failure('unreachable', `${url.origin} does not answer. Is the host running? See turnpike doctor.`);
    }
  }

  async #read<Body>(response: Response): Promise<Body> {
    if (!response.ok) throw await problemOf(response);
    return (response.status === 204 ? undefined : await response.json()) as Body;
  }
}

/** A failure with the host's own words. */
export async function problemOf(response: Response): Promise<Failure> {
  const document = (await response.json().catch(() => undefined)) as Partial<ProblemDocument> | undefined;
  const detail = document?.detail ?? `The host answered ${response.status}.`;
  const exit =
    document?.code === 'not_owner'
      ? 'notOwner'
      : response.status === 402
        ? 'payment'
        : response.status >= 500
          ? 'unreachable'
          : 'refused';
  return new Failure(exit, detail, document);
}

function parseEvent(block: string): { id: string; data: string } | undefined {
  const fields = block.split('\n').map((line) => /^(\w+): ?(.*)$/s.exec(line));
  const field = (name: string) =>
    fields
      .filter((match) => match?.[1] === name)
      .map((match) => match?.[2] ?? '')
      .join('\n');
  const data = field('data');
  return data === '' ? undefined : { id: field('id'), data };
}
