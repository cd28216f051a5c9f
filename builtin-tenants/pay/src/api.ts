/** The platform's own API on the host's shared origin; everything that is not its own goes to the gateway. */

import { Hono } from 'hono';
import { cors } from 'hono/cors';
import { CLAIM_GRANT, JWT_BEARER, tokenAnswer } from './accounts/agents.ts';
import { meApp, requireAccount } from './accounts/me.ts';
import { labelIn } from './accounts/request.ts';
import { agentRoutes, REGISTRATIONS_PER_HOUR } from './agents-api.ts';
import { internalApp } from './credit/charges.ts';
import { llmsText, openApi } from './docs.ts';
import { payUrl } from './environment.ts';
import { OWN_SEGMENTS, operatorApp } from './operator.ts';
import type { Platform } from './platform.ts';
import { Problem } from './problem.ts';
import { limitCaller } from './rate-limit.ts';

const HOUR_MS = 3_600_000;
const DEVICE_CODES_PER_HOUR = 60;
const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

export function apiApp(platform: Platform): Hono {
  const { env, db, accounts, catalog, device, gateway, keys, ledger, purchases } = platform;
  const base = payUrl(env);
  const app = new Hono();
  app.use(
    cors({
      origin: '*',
      exposeHeaders: [
        'WWW-Authenticate',
        'PAYMENT-REQUIRED',
        'PAYMENT-RESPONSE',
        'Payment-Receipt',
        'Idempotent-Replay',
        'X-Request-Id',
      ],
    }),
  );
  app.onError((error) => {
    if (error instanceof Problem) {
      const answer = error.toResponse();
      if (answer.headers.get('www-authenticate') === 'Bearer')
        answer.headers.set(
          'www-authenticate',
          `Bearer resource_metadata="${base}/.well-known/oauth-protected-resource"`,
        );
      return answer;
    }
    console.error(error);
    return new Problem('internal', 'An unexpected error; try again, and tell the operator if it stays.').toResponse();
  });

  app.get('/', (c) => c.redirect(env.PAGES_URL));
  // Services know this address alone.
  app.get('/dashboard/watches', (c) => c.redirect(`${env.PAGES_URL}/dashboard/watches${new URL(c.req.url).search}`));
  app.get('/healthz', (c) => c.json({ status: 'ok' }));
  app.get('/llms.txt', (c) => c.text(llmsText(base, env.PAGES_URL)));
  app.get('/openapi.json', (c) => c.json(openApi(base)));
  // What is behind the gateway is in the list of the host.
  app.get('/.well-known/x402', (c) => c.redirect(`${env.APP_URL}/.well-known/x402`));
  agentRoutes(app, { db, agents: platform.agents, base });
  app.get('/.well-known/http-message-signatures-directory', async () => {
    const headers = {
      'content-type': 'application/http-message-signatures-directory+json',
      'cache-control': 'public, max-age=300',
    };
    return new Response(JSON.stringify(await keys.directory()), { headers });
  });

  app.post('/accounts/anonymous', async (c) => {
    await limitCaller(db, 'register', c.req.header('cf-connecting-ip'), REGISTRATIONS_PER_HOUR, HOUR_MS);
    const { account, credential } = await accounts.registerAnonymous(await labelIn(c.req.raw, 'agent'));
    const note = 'The credential is shown this once.';
    return c.json({ accountId: account, credential, balanceUsd: '0.00', note }, 201, { 'cache-control': 'no-store' });
  });
  app.post('/oauth/device_authorization', async (c) => {
    await limitCaller(db, 'device', c.req.header('cf-connecting-ip'), DEVICE_CODES_PER_HOUR, HOUR_MS);
    const { client_id } = await fields(c.req.raw);
    if (!client_id || client_id.length > 60) return c.json({ error: 'invalid_client' }, 401);
    const code = await device.begin(client_id.replace(/[^\x20-\x7e]/g, ' '));
    return c.json(
      {
        device_code: code.deviceCode,
        user_code: code.userCode,
        verification_uri: `${env.PAGES_URL}/device`,
        verification_uri_complete: `${env.PAGES_URL}/device?user_code=${code.userCode}`,
        expires_in: code.expiresInSeconds,
        interval: code.intervalSeconds,
      },
      200,
      { 'cache-control': 'no-store' },
    );
  });
  app.post('/oauth/token', async (c) => {
    const { grant_type, device_code, assertion, claim_token } = await fields(c.req.raw);
    if (grant_type === JWT_BEARER || grant_type === CLAIM_GRANT) {
      const { agents } = platform;
      const got = await (grant_type === JWT_BEARER
        ? agents.exchange(assertion ?? '')
        : agents.claimed(claim_token ?? ''));
      const noStore = { 'cache-control': 'no-store' };
      if (!('error' in got)) return c.json(tokenAnswer(got), 200, noStore);
      const { status, ...refused } = got;
      return c.json(refused, status, noStore);
    }
    if (grant_type !== DEVICE_GRANT) return c.json({ error: 'unsupported_grant_type' }, 400);
    const polled = await device.poll(device_code ?? '');
    if ('error' in polled) return c.json(polled, 400, { 'cache-control': 'no-store' });
    const { accountId, credential } = polled;
    return c.json({ access_token: credential, token_type: 'Bearer', account_id: accountId }, 200, {
      'cache-control': 'no-store',
    });
  });

  app.route(
    '/me',
    meApp({
      db,
      accounts,
      ledger,
      device,
      disputes: platform.disputes,
      webhooks: platform.webhooks,
      renewals: platform.renewals,
      topUps: platform.topUps,
      topUp: platform.topUp,
      pagesUrl: env.PAGES_URL,
      now: platform.now,
      deliver: platform.deliverEvents,
    }),
  );
  app.route(
    '/internal',
    internalApp({
      db,
      accounts,
      catalog,
      ledger,
      hostKey: env.PAY_SERVICE_KEY,
      hostServices: ['deals', 'deals-watches'],
      charged: platform.charged,
    }),
  );
  app.route(
    '/operator',
    operatorApp({
      db,
      catalog,
      ledger,
      events: platform.events,
      passwordReset: platform.passwordReset,
      disputes: platform.disputes,
      renewals: platform.renewals,
      operatorKey: env.PAY_OPERATOR_KEY,
      now: platform.now,
      deliver: platform.deliverEvents,
    }),
  );

  app.post('/:service/plans/:plan/purchase', async (c) => {
    const { service, plan: planId } = c.req.param();
    const plan = await catalog.plan(service, planId);
    if (!plan) throw new Problem('not_found', 'There is no such plan.');
    const body = (await c.req.json().catch(() => undefined)) as
      | { amountUsd?: unknown; accountId?: unknown }
      | undefined;
    if (typeof body !== 'object' || body === null) throw new Problem('invalid_json', 'A JSON object is expected.');
    const account = await purchaser(platform, c.req.raw, body.accountId);
    const resource = `${base}/${service}/plans/${planId}/purchase`;
    const work = purchases.purchase(plan, account, body.amountUsd, resource, c.req.raw);
    platform.waitUntil(work.catch(() => undefined));
    const answer = await work;
    if (answer.status === 201) platform.deliverEvents();
    return answer;
  });

  app.all('*', async (c) => {
    const url = new URL(c.req.url);
    const [, slug = ''] = url.pathname.split('/', 2);
    const rest = url.pathname.slice(slug.length + 1) + url.search;
    const sold = OWN_SEGMENTS.includes(slug) ? undefined : await gateway.handle(slug, rest, c.req.raw);
    if (!sold) throw new Problem('not_found', `Nothing is here; see ${base}/llms.txt.`);
    return sold;
  });
  return app;
}

/**
 * Whose credit is topped up: the Bearer credential's account, or one named in the body. Wallets that pay in MPP put
 * their payment where the credential was: then the challenge itself says whose.
 */
async function purchaser({ accounts }: Platform, request: Request, accountId: unknown) {
  const authorization = request.headers.get('authorization') ?? '';
  if (/(?:^|,)\s*Bearer\s/i.test(authorization)) return requireAccount(accounts, authorization);
  if (typeof accountId !== 'string') return undefined;
  const account = await accounts.find(accountId);
  if (!account) throw new Problem('not_found', 'There is no such account.');
  return account;
}

/** Form fields (RFC 8628) or the same as JSON. */
async function fields(request: Request): Promise<Record<string, string | undefined>> {
  if (/json/.test(request.headers.get('content-type') ?? '')) {
    const value: unknown = await request.json().catch(() => ({}));
    return Object.fromEntries(
      Object.entries(value ?? {}).map(([name, field]) => [name, typeof field === 'string' ? field : undefined]),
    );
  }
  return Object.fromEntries(new URLSearchParams(await request.text()));
}
