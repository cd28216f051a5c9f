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
    return { kind: 'done', ...readBatch(answer.response?.result, steps.length) };
  }

  /** Names of the columns a statement would answer. @throws RemoteTimeout, RemoteUnavailable */
  async describe(sql: string): Promise<string[] | HranaError> {
    const answer = await this.#send([{ type: 'describe', sql }, { type: 'close' }]);
    if (answer.type === 'error') return answer.error;
    const cols = (answer.response?.result as { cols?: unknown } | undefined)?.cols;
    return listOf(cols).map((column) => String((column as { name?: unknown } | null)?.name ?? ''));
  }

  async #send(requests: unknown[]): Promise<StreamResult> {
    const body = JSON.stringify({ baton: null, requests });
    const { status, text } = await this.#exchange(body);
    let parsed: { results?: unknown; error?: unknown } | null;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw new RemoteUnavailable(`the SQL server answered ${status}: ${text.slice(0, 200)}`);
    }
    if (typeof parsed?.error === 'string') return { type: 'error', error: { message: parsed.error, code: 'SERVER' } };
    const [first] = status === 200 && Array.isArray(parsed?.results) ? (parsed.results as unknown[]) : [];
    if (typeof first !== 'object' || first === null)
      throw new RemoteUnavailable(`the SQL server answered ${status} without results`);
    const { type, response, error } = first as { type?: unknown; response?: { result?: unknown }; error?: unknown };
    if (type === 'error') return { type: 'error', error: readError(error) };
    return { type: 'ok', response };
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
          if (length <= this.#maxBytes) parts.push(part);
          else request.destroy(new Error('the answer is too large'));
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

type StreamResult = { type: 'ok'; response: { result?: unknown } | undefined } | { type: 'error'; error: HranaError };

/**
 * What a batch of so many steps came to: for each step a result, an error, or neither where its condition did not hold.
 * @throws RemoteUnavailable where that is not what the server sent
 */
function readBatch(result: unknown, steps: number): { results: (StepResult | null)[]; errors: (HranaError | null)[] } {
  const { step_results: results, step_errors: errors } = (result ?? {}) as Record<string, unknown>;
  const read = {
    results: listOf(results).map((one) => (one === null ? null : readStep(one))),
    errors: listOf(errors).map((one) => (one === null ? null : readError(one))),
  };
  if (read.results.length !== steps || read.errors.length !== steps) throw notHrana();
  return read;
}

function readStep(step: unknown): StepResult {
  const { cols, rows, rows_read, rows_written, query_duration_ms } = Object(step) as Record<string, unknown>;
  const names = listOf(cols).map((column) => ({ name: textOf((Object(column) as { name?: unknown }).name) }));
  const values = listOf(rows) as HranaValue[][];
  for (const row of values) {
    if (!Array.isArray(row) || row.length !== names.length || !row.every(isValue)) throw notHrana();
  }
  return {
    cols: names,
    rows: values,
    rows_read: countOf(rows_read),
    rows_written: countOf(rows_written),
    query_duration_ms: countOf(query_duration_ms),
  };
}

function readError(error: unknown): HranaError {
  const { message, code } = Object(error) as { message?: unknown; code?: unknown };
  if (typeof message !== 'string') throw notHrana();
  return { message, code: typeof code === 'string' ? code : '' };
}

/** Anything else could be taken for something else later: `Buffer.from` makes as many bytes as an object says it has. */
function isValue(value: unknown): boolean {
  const { type, value: content, base64 } = Object(value) as { type?: unknown; value?: unknown; base64?: unknown };
  switch (type) {
    case 'null':
      return true;
    case 'integer':
      return typeof content === 'string' && /^-?\d{1,19}$/.test(content);
    case 'float':
      return content === null || typeof content === 'number';
    case 'text':
      return typeof content === 'string';
    case 'blob':
      return typeof base64 === 'string';
    default:
      return false;
  }
}

function listOf(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw notHrana();
  return value;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function countOf(value: unknown): number {
  return typeof value === 'number' && value >= 0 ? value : 0;
}

function notHrana(): RemoteUnavailable {
  return new RemoteUnavailable('the SQL server answered what is not Hrana');
}

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
