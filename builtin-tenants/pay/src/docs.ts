/** What the platform says of itself to programs: /llms.txt and /openapi.json. */

export function llmsText(payUrl: string, pagesUrl: string): string {
  return `# Pay

Sells APIs per call (MPP, x402) and from prepaid credit. Base: ${payUrl}

- ${payUrl}/<service>/<path>: the API of a service, such as ${payUrl}/deals/v1/deals. An unpaid call answers 402 with what it costs and how to pay; pay with any MPP or x402 client.
- POST ${payUrl}/accounts/anonymous: an account for an agent, {"accountId","credential"}. Send the credential as "Authorization: Bearer tpk_...".
- ${payUrl}/auth.md: the same by the auth.md protocol (anonymous, claimed by a person later), with its metadata at ${payUrl}/.well-known/oauth-protected-resource.
- POST ${payUrl}/oauth/device_authorization (client_id=<name of the program>), then POST ${payUrl}/oauth/token (RFC 8628): an account of a person, who confirms at ${pagesUrl}/device.
- POST ${payUrl}/deals-watches/plans/default/purchase {"amountUsd":"5.00"} with the Bearer credential: 402 for that amount, then one grant of credit.
- Paying from credit: the 402 has WWW-Authenticate: Payment ... method="credit". Repeat the request with "Authorization: Payment <base64url of {"challenge":{all parameters},"payload":{"type":"credit","credential":"tpk_..."}}>".
- At once: the Bearer credential, "X-Pay-Up-To: 0.25" (USD) and an Idempotency-Key pay a call from credit by one request; what costs more is answered with the 402.
- Idempotency-Key makes a repeated call answer what the first one answered.
- GET ${payUrl}/me: balance by grant, runway, statement (?format=csv). GET, POST, PUT, DELETE ${payUrl}/me/credentials; {"dailyCapUsd":"2.00"} limits what one may spend in a day (UTC), and such a credential manages nothing. POST ${payUrl}/me/disputes {"requestId","reason"} tells the operator that a charge was wrong; GET tells what was decided. POST ${payUrl}/me/claim: a code with which a person takes an anonymous account over.
- POST ${payUrl}/me/webhooks {"url"}: what happens to the account is sent there, signed by Standard Webhooks with the secret of the answer: balance_low, account_suspended, account_resumed, topup_failed, renewal_failed, test. GET lists them, GET /me/webhooks/events what was sent, POST /me/webhooks/<id>/test tries one, DELETE /me/webhooks/<id> ends it. PUT ${payUrl}/me/notices {"lowBalanceUsd":"2.00"} says when credit is low.
- POST ${payUrl}/me/auto-topup {"amountUsd":"5.00","belowUsd":"1.00","limitUsd":"20.00","everyDays":30,"until":"2027-01-31T00:00:00Z"} with the Bearer credential: 402 with WWW-Authenticate: Payment method="tempo" intent="subscription". An MPP client that has subscriptions signs it once; from then on credit below belowUsd is topped up, at most limitUsd in everyDays days. GET shows the mandate and its draws, DELETE ends it at once.
- POST ${payUrl}/me/renewals {"slug":"hello","mostUsd":"2.50"} lets a deployment of the host renew from the credit: its owner gives the token of the answer to PUT /_admin/renew/<slug>/auto {"credit":"rnw_..."} of the host. GET lists them, DELETE ${payUrl}/me/renewals/<slug> ends it at once.
- GET ${payUrl}/.well-known/http-message-signatures-directory: keys that sign what the gateway forwards.
`;
}

export function openApi(payUrl: string): object {
  const json = (description: string) => ({ description, content: { 'application/json': {} } });
  const bearer = [{ credential: [] }];
  const problem = { description: 'Problem (RFC 9457)', content: { 'application/problem+json': {} } };
  const id = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };
  const bodyOf = (properties: Record<string, object>) => ({
    required: true,
    content: { 'application/json': { schema: { type: 'object', required: Object.keys(properties), properties } } },
  });
  const operation = (summary: string, success: string, security: object[] = []) => ({
    summary,
    security,
    responses: { [success]: json(summary), default: problem },
  });
  return {
    openapi: '3.1.0',
    info: { title: 'Pay', version: '1.0', description: 'Accounts, credit, and the gateway before paid APIs.' },
    servers: [{ url: payUrl }],
    components: { securitySchemes: { credential: { type: 'http', scheme: 'bearer' } } },
    paths: {
      '/accounts/anonymous': { post: operation('Make an account for an agent', '201') },
      '/agent/identity': {
        post: {
          ...operation('Register an agent (auth.md)', '200'),
          requestBody: bodyOf({ type: { const: 'anonymous' } }),
        },
      },
      '/agent/identity/claim': {
        post: {
          ...operation('Begin a claim of an agent’s account by a person (auth.md)', '200'),
          requestBody: bodyOf({ claim_token: { type: 'string' } }),
        },
      },
      '/.well-known/oauth-protected-resource': { get: operation('Metadata of the resource (RFC 9728)', '200') },
      '/.well-known/oauth-authorization-server': {
        get: operation('Metadata of the server (RFC 8414), with agent_auth', '200'),
      },
      '/oauth/device_authorization': { post: operation('Begin the device flow (RFC 8628)', '200') },
      '/oauth/token': { post: operation('Ask whether the person confirmed (RFC 8628)', '200') },
      '/{service}/plans/{plan}/purchase': {
        parameters: ['service', 'plan'].map((name) => ({
          name,
          in: 'path',
          required: true,
          schema: { type: 'string' },
        })),
        post: {
          ...operation('Buy credit', '201', bearer),
          requestBody: bodyOf({ amountUsd: { type: 'string', pattern: '^\\d{1,6}(\\.\\d{1,2})?$' } }),
        },
      },
      '/me': { get: operation('Balance and statement', '200', bearer) },
      '/me/credentials': {
        get: operation('Credentials of the account', '200', bearer),
        post: operation('Make a credential', '201', bearer),
      },
      '/me/notices': {
        get: operation('When credit is low, whether it is, and whether work is suspended', '200', bearer),
        put: {
          ...operation('Say below which amount credit is low', '200', bearer),
          requestBody: bodyOf({ lowBalanceUsd: { type: ['string', 'null'], pattern: '^\\d{1,7}(\\.\\d{1,6})?$' } }),
        },
      },
      '/me/webhooks': {
        get: operation('Webhooks of the account, with the last event of each', '200', bearer),
        post: {
          ...operation('Add a webhook; its secret is shown this once', '201', bearer),
          requestBody: bodyOf({ url: { type: 'string', format: 'uri', maxLength: 2_000 } }),
        },
      },
      '/me/webhooks/events': { get: operation('What was sent, or is to be, the newest first', '200', bearer) },
      '/me/webhooks/{id}': { parameters: [id], delete: operation('Remove a webhook', '204', bearer) },
      '/me/webhooks/{id}/test': { parameters: [id], post: operation('Send a test event', '202', bearer) },
      '/me/auto-topup': {
        get: operation('The mandate of a wallet, and what was drawn on it', '200', bearer),
        post: {
          ...operation('Ask for a mandate (402), and take it when a wallet has signed', '201', bearer),
          requestBody: bodyOf({
            amountUsd: { type: 'string', pattern: '^\\d{1,6}(\\.\\d{1,2})?$' },
            belowUsd: { type: 'string' },
            limitUsd: { type: 'string' },
            everyDays: { type: 'integer', minimum: 1, maximum: 366, default: 30 },
            until: { type: 'string', format: 'date-time' },
          }),
        },
        delete: operation('End the mandate', '204', bearer),
      },
      '/me/renewals': {
        get: operation('Deployments of the host that renew from the credit', '200', bearer),
        post: {
          ...operation('Let a deployment renew from the credit; its token is shown this once', '201', bearer),
          requestBody: bodyOf({ slug: { type: 'string' }, mostUsd: { type: 'string' } }),
        },
      },
      '/me/renewals/{slug}': {
        parameters: [{ ...id, name: 'slug' }],
        delete: operation('Let it renew from the credit no more', '204', bearer),
      },
      '/me/claim': { post: operation('A code with which a person takes the account over', '200', bearer) },
      '/.well-known/http-message-signatures-directory': { get: operation('Signing keys', '200') },
    },
  };
}
