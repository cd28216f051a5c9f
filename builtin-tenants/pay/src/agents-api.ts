/** What agents find and call to register: metadata, auth.md, and the endpoints that these name. */
import type { Context, Hono } from 'hono';
import { type Agents, registrationAnswer, resourceMetadata, serverMetadata } from './accounts/agents.ts';
import type { Database } from './environment.ts';
import { limitCaller } from './rate-limit.ts';

const HOUR_MS = 3_600_000;
/** With accounts that are opened otherwise. */
export const REGISTRATIONS_PER_HOUR = 60;

export function agentRoutes(app: Hono, { db, agents, base }: { db: Database; agents: Agents; base: string }): void {
  app.get('/.well-known/oauth-protected-resource', (c) => c.json(resourceMetadata(base)));
  app.get('/.well-known/oauth-authorization-server', (c) => c.json(serverMetadata(base)));
  app.get('/auth.md', (c) => c.text(authText(base), 200, { 'content-type': 'text/markdown; charset=utf-8' }));
  app.post('/agent/identity', async (c) => {
    const { type } = await body(c);
    if (type === 'service_auth')
      return refuse(c, 403, 'service_auth_not_enabled', 'Register anonymously; a person can claim the account.');
    if (type === 'identity_assertion')
      return refuse(c, 403, 'issuer_not_enabled', 'No provider is trusted here; register anonymously.');
    if (type !== 'anonymous') return refuse(c, 400, 'invalid_request', '{"type": "anonymous"} is expected.');
    await limitCaller(db, 'register', c.req.header('cf-connecting-ip'), REGISTRATIONS_PER_HOUR, HOUR_MS);
    return c.json(registrationAnswer(base, await agents.register()), 200, { 'cache-control': 'no-store' });
  });
  app.post('/agent/identity/claim', async (c) => {
    const { claim_token } = await body(c);
    if (typeof claim_token !== 'string') return refuse(c, 400, 'invalid_request', 'claim_token is missing.');
    const code = await agents.claim(claim_token);
    if ('error' in code) return refuse(c, code.status, code.error, code.error_description);
    const attempt = {
      user_code: code.userCode,
      verification_uri: code.verificationUri,
      verification_uri_complete: `${code.verificationUri}?user_code=${code.userCode}`,
      expires_in: code.expiresInSeconds,
      interval: code.intervalSeconds,
    };
    return c.json({ claim_attempt: attempt }, 200, { 'cache-control': 'no-store' });
  });
}

function refuse(c: Context, status: 400 | 403 | 404 | 409, error: string, error_description: string): Response {
  return c.json({ error, error_description }, status, { 'cache-control': 'no-store' });
}

async function body(c: Context): Promise<Record<string, unknown>> {
  const value: unknown = await c.req.json().catch(() => undefined);
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function authText(base: string): string {
  return `# auth.md

You are an agent. Pay (${base}) takes registrations of agents without a form: discover, register, exchange, call; a person may claim the account later. Resource and authorization server are one.

## 1. Discover

GET ${base}/.well-known/oauth-protected-resource, then GET ${base}/.well-known/oauth-authorization-server: its \`agent_auth\` names the endpoints. A 401 here has the first address in \`WWW-Authenticate\`.

## 2. Register

The one method is \`anonymous\`:

\`\`\`http
POST ${base}/agent/identity
Content-Type: application/json

{"type": "anonymous"}
\`\`\`

200: \`registration_id\`, \`identity_assertion\` (ten minutes), \`claim_token\` (a day, shown once), \`claim_url\`.

## 3. Exchange

\`\`\`http
POST ${base}/oauth/token
Content-Type: application/x-www-form-urlencoded

grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=<identity_assertion>
\`\`\`

200: \`access_token\` (it does not expire; a person who has claimed the account can revoke it), \`account_id\`.

## 4. Call

\`Authorization: Bearer <access_token>\`. How calls are paid: ${base}/llms.txt

## 5. Have it claimed, where a person wants the account

POST ${base}/agent/identity/claim {"claim_token": "clm_..."} answers \`claim_attempt\` with \`user_code\` and \`verification_uri\`. Show both to the person, who signs in there and confirms. Ask every \`interval\` seconds:

\`\`\`http
POST ${base}/oauth/token
Content-Type: application/x-www-form-urlencoded

grant_type=urn:workos:agent-auth:grant-type:claim&claim_token=<claim_token>
\`\`\`

\`authorization_pending\`, \`slow_down\`, \`access_denied\` and \`expired_token\` are those of RFC 8628. 200 has a new \`access_token\`, once; the one before stays good, and assertions end.

## Errors

\`{"error", "error_description"}\`: \`service_auth_not_enabled\`, \`issuer_not_enabled\` (methods that are not taken here), \`invalid_request\`, \`invalid_grant\`, \`invalid_claim_token\`, \`claim_expired\`, \`previously_claimed\`. 429 says in \`Retry-After\` when to try again.
`;
}
