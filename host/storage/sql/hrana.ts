/**
 * The part of Hrana over HTTP that is needed: one pipeline of one batch a request, without a stream that outlives it.
 * https://github.com/tursodatabase/libsql/blob/main/docs/HRANA_3_SPEC.md; figures per step as sqld 0.24 sends them.
 */
import type { IncomingMessage, RequestOptions, request } from 'node:http';
import type { Parameter } from './parameters.ts';
import type { RemoteSettings } from './settings.ts';

export type HranaValue =
  | { type: 'null' }
  | { type: 'integer'; value: string }
  | { type: 'float'; value: number | null }
  | { type: 'text'; value: string }
  | { type: 'blob'; base64: string };

export type Condition = { type: 'ok'; step: number } | { type: 'not'; cond: Condition };

export interface Step {
  stmt: { sql: string; args?: HranaValue[]; named_args?: { name: string; value: HranaValue }[] };
  condition?: Condition;
}

export interface StepResult {
  cols: { name: string | null }[];
  rows: HranaValue[][];
  rows_read?: number;
  rows_written?: number;
  query_duration_ms?: number;
}

export interface HranaError {
  message: string;
  code: string;
}

export type BatchOutcome =
  | { kind: 'done'; results: (StepResult | null)[]; errors: (HranaError | null)[] }
  | { kind: 'failed'; error: HranaError };

/** The server did not answer in time; whether it did the work is unknown. */
export class RemoteTimeout extends Error {}
/** The server could not be reached or answered something else. The text is for the log, not for tenants. */
export class RemoteUnavailable extends Error {}

const MAX_SOCKETS = 8;

export class HranaClient {
  readonly #options: RequestOptions;
  readonly #request: typeof request;
  readonly #timeoutMs: number;
  readonly #maxBytes: number;

  /**
   * @param timeoutMs longest wait for an answer
   * @param maxBytes largest answer
   */
  constructor(remote: RemoteSettings, timeoutMs: number, maxBytes: number) {
    const url = new URL(remote.url.replace(/^libsql:/, 'https:'));
    // Not imported: TLS is megabytes that a local database has no use for.
    const http = process.getBuiltinModule(url.protocol === 'https:' ? 'node:https' : 'node:http');
    this.#request = http.request;
    this.#timeoutMs = timeoutMs;
    this.#maxBytes = maxBytes;
    this.#options = {
      host: url.hostname,
      ...(url.port === '' ? {} : { port: url.port }),
      path: `${url.pathname.replace(/\/$/, '')}/v3/pipeline`,
      method: 'POST',
      agent: new http.Agent({ keepAlive: true, maxSockets: MAX_SOCKETS }),
      headers: {
        // The server takes the namespace from the first label of the Host header.
        host: `${remote.namespace}.${url.host}`,
        'content-type': 'application/json',
        ...(remote.token === '' ? {} : { authorization: `Bearer ${remote.token}` }),
      },
    };
  }

  /** @throws RemoteTimeout, RemoteUnavailable */
  async batch(steps: Step[]): Promise<BatchOutcome> {
    const answer = await this.#send([{ type: 'batch', batch: { steps } }, { type: 'close' }]);
    if (answer.type === 'error') return { kind: 'failed', error: answer.error };
    const { step_results: results, step_errors: errors } = answer.response.result as {
      step_results: (StepResult | null)[];
      step_errors: (HranaError | null)[];
    };
    return { kind: 'done', results, errors };
  }

  /** Names of the columns a statement would answer. @throws RemoteTimeout, RemoteUnavailable */
  async describe(sql: string): Promise<string[] | HranaError> {
    const answer = await this.#send([{ type: 'describe', sql }, { type: 'close' }]);
    if (answer.type === 'error') return answer.error;
    return (answer.response.result as { cols: { name: string }[] }).cols.map((column) => column.name);
  }

  async #send(requests: unknown[]): Promise<StreamResult> {
    const body = JSON.stringify({ baton: null, requests });
    const { status, text } = await this.#exchange(body);
    let parsed: { results?: StreamResult[]; error?: string };
    try {
      parsed = JSON.parse(text);
    } catch {
      throw new RemoteUnavailable(`the SQL server answered ${status}: ${text.slice(0, 200)}`);
    }
    if (typeof parsed.error === 'string') return { type: 'error', error: { message: parsed.error, code: 'SERVER' } };
    const first = parsed.results?.[0];
    if (first === undefined) throw new RemoteUnavailable(`the SQL server answered ${status} without results`);
    return first;
  }

  #exchange(body: string): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void =>
        reject(error instanceof RemoteTimeout ? error : new RemoteUnavailable(error.message));
      const headers = { ...(this.#options.headers as object), 'content-length': Buffer.byteLength(body) };
      const request = this.#request({ ...this.#options, headers }, (response: IncomingMessage) => {
        const parts: Buffer[] = [];
        let length = 0;
        response.on('data', (part: Buffer) => {
          length += part.length;
          if (length > this.#maxBytes) request.destroy(new Error('the answer is too large'));
          parts.push(part);
        });
        response.on('error', fail);
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString('utf8') }),
        );
      });
      const deadline = setTimeout(() => request.destroy(new RemoteTimeout()), this.#timeoutMs);
      request.on('close', () => clearTimeout(deadline));
      request.on('error', fail);
      request.end(body);
    });
  }
}

type StreamResult = { type: 'ok'; response: { type: string; result?: unknown } } | { type: 'error'; error: HranaError };

export function toHrana(value: Parameter): HranaValue {
  if (value === null) return { type: 'null' };
  if (typeof value === 'number') return { type: 'float', value };
  // Half a surrogate pair is no JSON the server would take.
  if (typeof value === 'string') return { type: 'text', value: value.toWellFormed() };
  return { type: 'blob', base64: Buffer.from(value).toString('base64') };
}

/** As D1 answers it: numbers lose what JavaScript cannot hold, blobs are arrays of numbers or, if asked, bytes. */
export function fromHrana(value: HranaValue, bytes: boolean): unknown {
  switch (value.type) {
    case 'null':
      return null;
    case 'integer':
      return Number(value.value);
    case 'blob': {
      const buffer = Buffer.from(value.base64, 'base64');
      return bytes ? buffer : Array.from(buffer);
    }
    default:
      return value.value;
  }
}
