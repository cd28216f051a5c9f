/**
 * The service as one Hono app: three paid operations, free pages, one error handler.
 */
import { type Context, Hono } from 'hono';
import { cors } from 'hono/cors';
import { requestId } from 'hono/request-id';
import type { Visit } from './context.ts';
import { chooseEngines } from './engines/choose.ts';
import { EmbeddedEngine } from './engines/embedded.ts';
import { asFailure, SpeechFailure } from './failure.ts';
import { mountPages } from './pages/pages.ts';
import { listen } from './routes/listen.ts';
import { listenLive } from './routes/listen-live.ts';
import { read } from './routes/read.ts';
import { speak } from './routes/speak.ts';
import { speakLive } from './routes/speak-live.ts';
import { type Env, readSettings } from './settings.ts';

export type AppEnv = { Bindings: Env; Variables: { requestId: string } };
export type App = Hono<AppEnv>;

const OPERATIONS = { '/v1/listen': listen, '/v1/speak': speak, '/v1/read': read };
/** For how long it is believed that the engine process runs. */
const REMEMBER_MS = 10_000;

export function createApp(): App {
  const app: App = new Hono();
  const engineRuns = rememberingCheck();
  // the host's id where it sends one, so that its logs and ours tell of the same call
  app.use(requestId());
  app.use(
    cors({
      origin: '*',
      allowHeaders: [
        'authorization',
        'content-type',
        'idempotency-key',
        'payment-signature',
        'x-max-price',
        'x-payment',
      ],
      exposeHeaders: ['x-request-id', 'dg-request-id', 'dg-char-count', 'dg-model-name', 'x-warnings', 'retry-after'],
    }),
  );
  app.get('/v1/listen', async (context) => await listenLive(await visitOf(context, engineRuns)));
  app.get('/v1/speak', async (context) => await speakLive(await visitOf(context, engineRuns)));
  for (const [path, operation] of Object.entries(OPERATIONS)) {
    app.post(path, async (context) => await operation(await visitOf(context, engineRuns)));
    app.all(path, (context) => {
      throw new SpeechFailure('METHOD_NOT_ALLOWED', `${context.req.method} is not offered here; use POST.`);
    });
  }
  mountPages(app);
  app.notFound((context) =>
    new SpeechFailure('NOT_FOUND', 'Nothing is here; see llms.txt for what is.').toResponse(context.get('requestId')),
  );
  app.onError((error, context) => {
    const failure = asFailure(error);
    if (failure.code === 'INTERNAL_SERVER_ERROR' && failure.cause !== undefined) console.error(failure.cause);
    return failure.toResponse(context.get('requestId'));
  });
  return app;
}

async function visitOf(context: Context<AppEnv>, engineRuns: (url: string) => Promise<boolean>): Promise<Visit> {
  const settings = readSettings(context.env);
  // remote engines have their audio measured by the engine process, where it runs
  const measures = settings.listenEngine !== 'embedded' && (await engineRuns(settings.engineUrl));
  return {
    request: context.req.raw,
    url: new URL(context.req.url),
    requestId: context.get('requestId'),
    settings,
    engines: chooseEngines(settings, measures),
    store: context.env.STORE,
    payments: context.env.PAYMENTS,
    waitUntil: (work) => context.executionCtx.waitUntil(work),
  };
}

function rememberingCheck(): (url: string) => Promise<boolean> {
  let runsUntil = 0;
  return async (url) => {
    if (Date.now() < runsUntil) return true;
    try {
      await new EmbeddedEngine(url).health();
      runsUntil = Date.now() + REMEMBER_MS;
      return true;
    } catch (error) {
      // one that is out of reach for the moment is no reason to send on audio that nobody has measured
      return asFailure(error).code !== 'SERVICE_UNAVAILABLE';
    }
  };
}
