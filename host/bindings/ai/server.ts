/**
 * Serves `env.AI`: what workerd's `cloudflare-internal:ai-api` (1.20261117.1) asks of Cloudflare is asked of the
 * operator's model server. The server's key and address are here, in the host's process, and in no sandbox.
 */
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { Config } from '../../shared/config.ts';
import { FairPlaces, NoPlace } from '../../shared/fair-places.ts';
import type { BindingPlace, BindingServer, ServedBinding, ServerHost } from '../server.ts';
import { closeNow, endAnswer, listenAt, readBounded } from '../tenant-socket.ts';
import { AiFault, invalid, type ModelCall, modelCall } from './shapes.ts';
import { type ModelServer, modelServer } from './upstream.ts';

/** Inputs of a call, bytes. */
const MOST_BYTES = 1_048_576;
/** How long inputs hold the place of their call at least, by their size: to take them apart costs this process. */
const BYTES_PER_MS = 4_096;
/** Calls of all tenants together; those beyond it wait, and tenants take turns. */
const MOST_IN_ALL = 32;
const WAITING = { waiting: 512, waitingPerParty: 16, waitMs: 10_000 };
const MODEL_HEADER = 'cf-consn-model-id';

export function aiServer({ config: { ai }, log }: ServerHost): BindingServer {
  const models = modelServer(ai, (text) => log.warn(text));
  const places = new FairPlaces(MOST_IN_ALL, [{ places: MOST_IN_ALL, perParty: ai.requestsInFlight, ...WAITING }]);
  return { serve: (place) => new AiSocket(place, ai, models, places) };
}

class AiSocket implements ServedBinding {
  readonly #place: BindingPlace;
  readonly #settings: Config['ai'];
  readonly #models: ModelServer;
  #server: http.Server | undefined;
  readonly #places: FairPlaces;

  constructor(place: BindingPlace, settings: Config['ai'], models: ModelServer, places: FairPlaces) {
    this.#places = places;
    this.#place = place;
    this.#settings = settings;
    this.#models = models;
  }

  async open(): Promise<void> {
    if (this.#server) return this.#place.permit();
    const server = http.createServer({ requestTimeout: 60_000 }, (request, response) => {
      void this.#answer(request, response).catch((error) => {
        refuse(request, response, error instanceof AiFault ? error : new AiFault(500, 3_043, 'The call failed.'));
      });
    });
    server.maxConnections = 2 * (this.#settings.requestsInFlight + WAITING.waitingPerParty);
    this.#server = server;
    await listenAt(server, this.#place.socket);
    this.#place.permit();
  }

  async close(): Promise<void> {
    closeNow(this.#server);
    this.#server = undefined;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url ?? '/', 'http://ai');
    if (pathname === '/ai-api/models/search') return send(response, { success: true, result: this.#list() });
    if (pathname !== '/run' || request.method !== 'POST')
      throw new AiFault(404, 7_003, 'This host has run() and models() of Workers AI, and nothing else of it.');
    const release = await this.#places.take({ lane: 0, party: this.#place.tenant }).catch((error) => {
      if (!(error instanceof NoPlace)) throw error;
      throw new AiFault(429, 3_040, 'Too many calls of models are under way; try again in a few seconds.');
    });
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const startedAt = performance.now();
    let bytes = 0;
    try {
      const text = await this.#inputs(request);
      bytes = text.length;
      const call = this.#call(request, text);
      const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(this.#settings.timeoutMs)]);
      if (call.stream) await this.#stream(call, response, signal);
      else send(response, await this.#models.whole(call, signal));
    } finally {
      const early = bytes / BYTES_PER_MS - (performance.now() - startedAt);
      if (early > 1) setTimeout(release, early).unref();
      else release();
    }
  }

  /** Read only where the model is one of this host's. @throws AiFault */
  async #inputs(request: IncomingMessage): Promise<string> {
    this.#modelOf(request);
    if (request.headers['content-type'] !== 'application/json') throw invalid('This host takes no streams as inputs.');
    const bytes = await readBounded(request, MOST_BYTES);
    if (!bytes) throw new AiFault(413, 3_006, `The inputs are larger than ${MOST_BYTES} bytes.`);
    return bytes.toString();
  }

  /** @throws AiFault */
  #modelOf(request: IncomingMessage): string {
    const named = String(request.headers[MODEL_HEADER] ?? '');
    const { models, url } = this.#settings;
    // It was deployed while there was one.
    if (url === '') throw new AiFault(503, 3_040, 'This host has no model server; ask its operator.');
    const model = Object.hasOwn(models, named) ? models[named] : undefined;
    if (model === undefined)
      throw new AiFault(
        400,
        5_007,
        `No such model ${named.slice(0, 100)} on this host; it has ${Object.keys(models).slice(0, 20).join(', ')}.`,
      );
    return model;
  }

  /** @throws AiFault */
  #call(request: IncomingMessage, text: string): ModelCall {
    let asked: { inputs?: unknown; options?: Record<string, unknown> };
    try {
      asked = JSON.parse(text);
    } catch {
      throw invalid('The inputs are not JSON.');
    }
    const [option] = Object.keys(asked?.options ?? {}).filter((name) => name !== 'returnRawResponse');
    if (option !== undefined) throw invalid(`This host does not have the option ${option.slice(0, 40)} of run().`);
    return modelCall(this.#modelOf(request), asked?.inputs);
  }

  async #stream(call: ModelCall, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const events = this.#models.events(call, signal);
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    // Until its first event the server can still be answered for with an error.
    let next = await events.next();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    try {
      for (; !next.done; next = await events.next()) {
        if (response.write(next.value)) continue;
        await Promise.race([once(response, 'drain').catch(() => undefined), aborted]);
        if (signal.aborted) break;
      }
      response.end();
    } catch {
      // A stream that was begun can only be broken off: the handler is not to take it for whole.
      response.destroy();
    } finally {
      await events.return(undefined);
    }
  }

  #list(): object[] {
    return Object.keys(this.#settings.models).map((name) => ({
      id: name,
      name,
      description: '',
      tags: [],
      properties: [],
    }));
  }
}

function send(response: ServerResponse, body: unknown): void {
  // Exactly this type: workerd's binding compares it.
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

/** In the form that workerd's binding makes an error of. */
function refuse(request: IncomingMessage, response: ServerResponse, { status, code, message }: AiFault): void {
  if (response.headersSent) return void response.destroy();
  response.writeHead(status, { 'content-type': 'application/json' });
  endAnswer(request, response, JSON.stringify({ success: false, errors: [{ code, message }], result: null }));
}
