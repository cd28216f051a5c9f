/**
 * Talks to a Turnpike host: public calls, calls that prove the owner's wallet, calls that cost money.
 * Turns the host's problem documents into failures with the right exit code.
 */
import { z } from 'zod';
import type { ProblemDocument } from '../shared/problem.ts';
import { answerBytes, readJson, readText, requireTls } from './answer.ts';
import { eventsOf, type ServerEvent } from './events.ts';
import type { Offer } from './paying/offers.ts';
import {
  type PaidAnswer,
  type PayableRequest,
  type PayOptions,
  payRequest,
  proveRequest,
} from './paying/pay-request.ts';
import { Failure } from './terminal/failure.ts';

/** What a host says of a failure, as far as it has the right form; the rest of it is passed on to `--json`. */
const problemSchema = z.looseObject({
  detail: z.string().optional().catch(undefined),
  code: z.string().optional().catch(undefined),
  status: z.number().optional().catch(undefined),
  requestId: z.string().optional().catch(undefined),
  errors: z
    .array(
      z.looseObject({
        pointer: z.string(),
        detail: z.string(),
        file: z.string().optional(),
        line: z.number().optional(),
        column: z.number().optional(),
      }),
    )
    .optional()
    .catch(undefined),
});

const operationSchema = z.looseObject({
  'x-payment-info': z
    .looseObject({ offers: z.array(z.looseObject({ currency: z.string(), amount: z.string().regex(/^\d{1,78}$/) })) })
    .optional(),
});
const publishedSchema = z.looseObject({ paths: z.record(z.string(), z.record(z.string(), operationSchema)) });

/** A token of the owner lives for 15 minutes. */
const TOKEN_MS = 10 * 60_000;

export interface HostClientOptions {
  /** Public origin of the host. */
  url: URL;
  fetch: typeof fetch;
  signal: AbortSignal;
  /** Whether code, secrets and proofs may go to a host without TLS. */
  allowHttp?: boolean;
  /** A deploy key, which takes the place of proofs. */
  deployKey?: string | undefined;
  /** How to pay and prove; asked for only when it is needed, so that public calls need no wallet. */
  paying(): Promise<PayOptions>;
}

export class HostClient {
  readonly #options: HostClientOptions;

  constructor(options: HostClientOptions) {
    this.#options = options;
  }

  get origin(): string {
    return this.#options.url.origin;
  }

  /** A call that anybody may make. */
  async get<Body>(path: string): Promise<Body> {
    return this.#read<Body>(await this.#plain(this.#request('GET', path)));
  }

  /** A call without anything, as strangers make it, whatever it is answered with. */
  async probe(method: string, path: string): Promise<Response> {
    return await this.#plain(this.#request(method, path));
  }

  /** A call of the owner: with the deploy key, or a proof of the wallet. */
  async own<Body>(method: string, path: string, body?: unknown): Promise<Body> {
    return this.#read<Body>(await this.#owned(this.#request(method, path, body)));
  }

  /** A call of a series, with a token of `POST /_admin/session/<slug>`. @param body bytes of a file, or what is sent as JSON */
  async withToken<Body>(token: string, method: string, path: string, body: Uint8Array | object): Promise<Body> {
    return this.#read<Body>(await this.rawWithToken(token, method, path, body));
  }

  /** The same, for answers that are no JSON. @throws Failure with the host's own words */
  async rawWithToken(
    token: string,
    method: string,
    path: string,
    body?: Uint8Array | object,
    fields: Record<string, string> = {},
  ): Promise<Response> {
    requireTls(this.#options.url, this.#options.allowHttp === true);
    const isFile = body instanceof Uint8Array;
    const request = this.#request(method, path, isFile ? undefined : body);
    const headers = { ...request.headers, authorization: `Bearer ${token}`, ...fields };
    const response = await this.#plain({ ...request, headers }, isFile ? body : request.body);
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  /** What a series of calls about a slug is made with: the deploy key; else tokens, a new one where the last is nearly over. */
  tokens(slug: string): () => Promise<string> {
    const { deployKey } = this.#options;
    if (deployKey !== undefined) return async () => deployKey;
    let made: { at: number; token: Promise<string> } | undefined;
    return () => {
      if (made && performance.now() - made.at < TOKEN_MS) return made.token;
      const token = this.own<{ token: string }>('POST', `/_admin/session/${encodeURIComponent(slug)}`).then(
        (answer) => answer.token,
      );
      made = { at: performance.now(), token };
      return token;
    };
  }

  /** The same, for answers that are no JSON. */
  async ownText(path: string, accept: string): Promise<string> {
    const request = this.#request('GET', path);
    const response = await this.#owned({ ...request, headers: { ...request.headers, accept } });
    if (!response.ok) throw await problemOf(response);
    return readText(response);
  }

  /** A call that costs money. Sent again with the same key and credential, it costs nothing more. */
  async pay<Body>(
    method: string,
    path: string,
    body: unknown,
    key: string,
  ): Promise<{ body: Body } & Omit<PaidAnswer, 'response'>> {
    requireTls(this.#options.url, this.#options.allowHttp === true);
    const request = this.#request(method, path, body);
    const paying = await this.#options.paying();
    const answer = await payRequest(
      { ...request, headers: { ...request.headers, 'idempotency-key': key } },
      {
        ...paying,
        approve: async (price) => {
          if (paying.unasked) await this.#requirePublished(method, path, price.offer);
          return paying.approve(price);
        },
      },
    );
    return { body: await this.#read<Body>(answer.response), paid: answer.paid };
  }

  /** Where nobody looks at the price, it is the one that the host tells everybody. @throws Failure `payment` */
  async #requirePublished(method: string, path: string, { chainId, token, amount }: Offer): Promise<void> {
    const document = publishedSchema.safeParse(await this.get('/openapi.json'));
    const offers = Object.entries(document.data?.paths ?? {})
      .filter(([template]) => new RegExp(`^${template.replace(/\{\w+\}/g, '[^/]+')}$`).test(path))
      .flatMap(([, operations]) => operations[method.toLowerCase()]?.['x-payment-info']?.offers ?? []);
    const names = [token, `eip155:${chainId}/${token}`];
    if (offers.some((one) => names.includes(one.currency.toLowerCase()) && amount <= BigInt(one.amount))) return;
    throw new Failure(
      'payment',
      `${this.origin} asks for more than its /openapi.json says, or for another token. If that is right: --max-pay.`,
    );
  }

  /** Server-sent events of the owner; yields each `data` with its id, until the server ends the stream. */
  async *events(path: string, headers: Record<string, string>): AsyncGenerator<ServerEvent> {
    const request = this.#request('GET', path);
    const response = await this.#plain({
      ...request,
      headers: { ...request.headers, ...headers, accept: 'text/event-stream' },
    });
    if (!response.ok || !response.body) throw await problemOf(response);
    yield* eventsOf(answerBytes(response));
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

  async #owned(request: PayableRequest): Promise<Response> {
    const { url, allowHttp, deployKey, paying } = this.#options;
    requireTls(url, allowHttp === true);
    if (deployKey !== undefined) {
      const headers = { ...request.headers, authorization: `Bearer ${deployKey}` };
      return await this.#plain({ ...request, headers }, request.body);
    }
    const { signer, fetch } = await paying();
    return await proveRequest(request, { signer, fetch });
  }

  async #plain({ url, method, headers, signal }: PayableRequest, body?: RequestInit['body']): Promise<Response> {
    try {
      const options = {
        method,
        headers,
        redirect: 'manual',
        ...(signal ? { signal } : {}),
        ...(body ? { body } : {}),
      } as const;
      return await this.#options.fetch(url, options);
    } catch (error) {
      if (error instanceof Failure) throw error;
      if (signal?.aborted) throw new Failure('cancelled', 'Cancelled.');
      throw new Failure('unreachable', `${url.origin} does not answer. Is the host running? See turnpike doctor.`);
    }
  }

  async #read<Body>(response: Response): Promise<Body> {
    if (!response.ok) throw await problemOf(response);
    return (response.status === 204 ? undefined : await readJson(response)) as Body;
  }
}

/** A failure with the host's own words. */
export async function problemOf(response: Response): Promise<Failure> {
  const { data: document } = problemSchema.safeParse(await readJson(response).catch(() => undefined));
  const detail = document?.detail ?? `The host answered ${response.status}.`;
  const exit =
    document?.code === 'not_owner'
      ? 'notOwner'
      : response.status === 402
        ? 'payment'
        : response.status >= 500
          ? 'unreachable'
          : 'refused';
  return new Failure(exit, detail, document as Partial<ProblemDocument> | undefined);
}
