/** What programs read, generated from the table of operations: llms.txt, openapi.json, auth.md and the small files. */
import { type JsonSchema, METERS, OPERATIONS, type Operation, priceText, SCHEMAS } from '../http/operations.ts';

/** Where the service and its shop window are. */
export interface Addresses {
  /** Public origin. */
  host: string;
  /** This tenant. */
  base: string;
  /** Where its operations are called. */
  pay: string;
  /** Where credit for watches is bought. */
  credit: string;
  /** The pay platform. */
  platform: string;
}

export function addressesOf(appUrl: string): Addresses {
  return {
    host: appUrl,
    base: `${appUrl}/deals`,
    pay: `${appUrl}/pay/deals`,
    credit: `${appUrl}/pay/deals-watches`,
    platform: `${appUrl}/pay`,
  };
}

/** Pages that search engines and programs may read. */
export const PUBLIC_PAGES = ['/', '/search', '/docs', '/llms.txt', '/auth.md', '/openapi.json'];

const TERMS = [
  'Prices are integer minor units of an ISO 4217 currency (exponent says how many decimals); nothing is converted.',
  'A deal is an offer that is at least 5 % below the lowest price that this service itself observed in the 30 days before the drop, on at least 14 days.',
  "A shop's own list price is reported (claimed_discount_bps), never scored as such.",
  'Score and confidence can be recomputed from facts with the rules of GET /v1/rules in any CEL engine.',
  'demo: true marks generated data.',
];

export function llmsText(where: Addresses): string {
  const operations = OPERATIONS.map(
    (operation) =>
      `- ${operation.method} ${where.pay}${operation.path} (${priceText(operation)}): ${operation.summary}. ${operation.description}${parameterText(operation)}`,
  ).join('\n');
  const create = OPERATIONS.find(({ id }) => id === 'create-watch');
  return `# Deals

> Price drops that are verified by observed history, with the evidence, and watches for them. Call it through the pay platform at ${where.pay}; each call is paid for itself, or from prepaid credit. Direct calls of ${where.base}/v1/* are refused.

## Operations

${operations}

## Paying

An unpaid call of a priced operation is answered 402 with its price: WWW-Authenticate: Payment (MPP) and PAYMENT-REQUIRED (x402). Any client of either pays it; the 402 states the price of the moment. Answers of 4xx and 5xx cost nothing. Watches are paid from credit alone: ${METERS.watch_created.priceUsd} USD for the first 24 hours, ${METERS.watch_day.priceUsd} USD for each further 24 hours.

Accounts, credit and credentials: ${where.base}/auth.md

## What is said

${TERMS.map((line) => `- ${line}`).join('\n')}

## A watch

POST ${where.pay}/v1/watches
${JSON.stringify(create?.example.body, null, 2)}

Events are of type enter, new_low, drop, rise, restock and expire. Webhooks are signed as Standard Webhooks say (webhook-id, webhook-timestamp, webhook-signature) and come at least once, in the order of each watch; any 2xx takes one, 410 ends them. The same events are in GET ${where.pay}/v1/watches?events_after=

## More

- ${where.base}/openapi.json
- ${where.base}/docs
- ${where.base}/auth.md
`;
}

export function authText(where: Addresses): string {
  const needs = (account: boolean) =>
    OPERATIONS.filter((operation) => operation.account === account)
      .map((operation) => `- ${operation.method} ${operation.path}: ${priceText(operation)}`)
      .join('\n');
  return `# Who may call, and how it is paid

All operations are called at ${where.pay}.

## Without an account

${needs(false)}

Call without anything, pay what the 402 asks for (MPP or x402), and repeat the call with the payment. Every MPP and x402 client does that by itself.

## With an account

${needs(true)}

1. An agent: POST ${where.platform}/accounts/anonymous -> {"accountId", "credential"}. The credential is shown once.
   The same by the auth.md protocol, with metadata and claims: ${where.platform}/auth.md.
   A person: the device flow (RFC 8628) at ${where.platform}/oauth/device_authorization and ${where.platform}/oauth/token.
2. Send it as \`Authorization: Bearer tpk_...\`.
3. Buy credit: POST ${where.credit}/plans/default/purchase {"amountUsd": "5.00"} (5 USD or more) -> 402 for that amount, paid per MPP or x402 -> credit.
4. POST ${where.pay}/v1/watches with the Bearer credential -> 402 with WWW-Authenticate: Payment ... method="credit". Repeat the call with \`Authorization: Payment <base64url of {"challenge": {all parameters of the 402}, "payload": {"type": "credit", "credential": "tpk_..."}}>\`.

Balance and statement: GET ${where.platform}/me

## On the command line

\`\`\`
turnpike pay "${where.pay}/v1/deals?currency=EUR" --max-pay 1
turnpike account register --host-url ${where.host}
turnpike account topup 5.00 --max-pay 5 --host-url ${where.host}
turnpike pay "${where.pay}/v1/watches" --credit --max-pay 1 --body '{"query":{},"trigger":{"on":["enter"]}}'
turnpike pay "${where.pay}/v1/watches?events_after=" --credit
turnpike pay -X DELETE "${where.pay}/v1/watches/wat_..." --credit
\`\`\`

\`--max-pay\` is the most that may be paid, in USD: more is refused.
`;
}

export function openApi(where: Addresses): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {};
  for (const operation of OPERATIONS)
    paths[operation.path] = { ...paths[operation.path], [operation.method.toLowerCase()]: described(operation) };
  return {
    openapi: '3.1.0',
    info: {
      title: 'Deals',
      version: '1.0',
      summary: 'Price drops verified by observed history, and watches for them.',
      description: `Called through the pay platform. In plain text: ${where.base}/llms.txt`,
    },
    servers: [{ url: where.pay }],
    'x-service-info': {
      categories: ['commerce', 'data'],
      docs: { apiReference: `${where.base}/docs`, homepage: `${where.base}/`, llms: `${where.base}/llms.txt` },
    },
    paths,
    components: {
      securitySchemes: {
        credential: {
          type: 'http',
          scheme: 'bearer',
          description: `A credential of the pay platform; see ${where.base}/auth.md`,
        },
      },
      schemas: SCHEMAS,
    },
  };
}

/** What is paid per call, as x402's indexers look for it (x402scan, docs/DISCOVERY.md). */
export function forSale(where: Addresses): JsonSchema {
  const sold = OPERATIONS.filter(({ meter }) => meter && !meter.creditOnly);
  return {
    version: 1,
    resources: sold.map(({ path }) => `${where.pay}${path}`),
    instructions: `${where.base}/llms.txt`,
  };
}

function described(operation: Operation): JsonSchema {
  const { meter, body } = operation;
  const problem = (description: string) => ({
    description,
    content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
  });
  return {
    operationId: operation.id,
    summary: operation.summary,
    description: operation.description,
    ...(operation.parameters.length > 0
      ? { parameters: operation.parameters.map((one) => ({ ...one, required: one.in === 'path' })) }
      : {}),
    ...(body
      ? {
          requestBody: {
            required: true,
            content: { 'application/json': { schema: body, example: operation.example.body } },
          },
        }
      : {}),
    security: operation.account ? [{ credential: [] }] : [{}, { credential: [] }],
    ...(meter ? { 'x-payment-info': { offers: offersOf(operation) } } : {}),
    responses: {
      ...Object.fromEntries(
        Object.entries(operation.answers).map(([status, { description, schema }]) => [
          status,
          { description, ...(schema ? { content: { 'application/json': { schema } } } : {}) },
        ]),
      ),
      ...(meter ? { 402: problem(`The price: ${priceText(operation)}; WWW-Authenticate says how it is paid`) } : {}),
      ...(operation.account ? { 401: problem('A credential of the pay platform is needed') } : {}),
      default: problem('Any other error; it costs nothing'),
    },
  };
}

/** Advisory, as discovery is: the 402 has the token and the recipient. */
function offersOf({ meter, summary }: Operation): JsonSchema[] {
  if (!meter) return [];
  const offer = { amount: meter.amount, currency: 'USD', description: summary };
  if (meter.creditOnly) return [{ intent: 'charge', method: 'credit', ...offer }];
  return [
    { intent: 'charge', method: 'tempo', ...offer },
    { intent: 'exact', method: 'x402', ...offer },
    { intent: 'charge', method: 'credit', ...offer },
  ];
}

function parameterText({ parameters }: Operation): string {
  if (parameters.length === 0) return '';
  return ` Parameters: ${parameters.map(({ name, description }) => `${name} (${description})`).join('; ')}.`;
}

export function robotsText({ base }: Addresses): string {
  return `User-agent: *\nDisallow: /v1/\nDisallow: /internal/\nDisallow: /demo/\nAllow: /\nSitemap: ${base}/sitemap.xml\n`;
}

export function sitemapText({ base }: Addresses): string {
  const urls = PUBLIC_PAGES.map((page) => `  <url><loc>${base}${page}</loc></url>`).join('\n');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n${urls}\n</urlset>\n`;
}

/** RFC 9116. @param now ms */
export function securityText({ base }: Addresses, now: number): string {
  const expires = new Date(now + 180 * 86_400_000).toISOString().slice(0, 10);
  return `Contact: ${base}/docs#contact\nExpires: ${expires}T00:00:00Z\nPreferred-Languages: en\nCanonical: ${base}/.well-known/security.txt\n`;
}

/** RFC 9727: what the service has for programs. */
export function apiCatalog({ base, pay }: Addresses): JsonSchema {
  return {
    linkset: [
      {
        anchor: pay,
        'service-desc': [{ href: `${base}/openapi.json`, type: 'application/json' }],
        'service-doc': [
          { href: `${base}/docs`, type: 'text/html' },
          { href: `${base}/llms.txt`, type: 'text/plain' },
        ],
        status: [{ href: `${base}/healthz`, type: 'application/json' }],
      },
    ],
  };
}
