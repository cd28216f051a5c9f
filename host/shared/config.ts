/**
 * Every setting of the host: one schema, which gives the defaults, the checks, the environment names, the flags
 * and the table of host/SETTINGS.md. Order: config/turnpike.default.json < turnpike.host.json < environment < flags.
 */
import { z } from 'zod';
import {
  addressRange,
  dnsServerOrEmpty,
  egressTarget,
  hostAndPortOrEmpty,
  hostName,
  httpUrl,
  httpUrlOrEmpty,
  ipAddress,
  originOrEmpty,
  plainUrlOrEmpty,
  postgresUrlOrEmpty,
  sqlServer,
} from './config-checks.ts';

const port = z.number().int().min(0).max(65_535);
const bytes = z.number().int().positive();
/** Node's timers end at once where they are given more: that is 24 days. */
const ms = z.number().int().positive().max(2_147_483_647);
/** Base58 of 32 bytes. */
export const SOLANA_ADDRESS = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;
const address = z.string().regex(/^(?:0x[0-9a-fA-F]{40})?$/, 'expected 0x and 40 hexadecimal digits');
const price = z
  .string()
  .regex(/^\d{1,6}(\.\d{1,6})?$/, 'expected a decimal amount in USD such as "0.20"')
  // A challenge over nothing asks for a proof of ownership, not for a payment.
  .refine((amount) => /[1-9]/.test(amount), 'expected more than 0');

const usdOrEmpty = z
  .string()
  .regex(/^(?:\d{1,6}(?:\.\d{1,6})?)?$/, 'expected a decimal amount in USD such as "0.20", or nothing');

const NEEDED_FOR_S3 = ['endpoint', 'bucket', 'accessKey', 'secretKey'] as const;
/** @param variables begin of the names of environment variables */
const s3 = (variables: string) =>
  z.strictObject({
    endpoint: httpUrlOrEmpty.describe('S3 endpoint URL'),
    region: z.string().describe('S3 region'),
    bucket: z.string().describe('S3 bucket'),
    prefix: z.string().describe('prefix of all object names'),
    accessKey: z.string().describe(`S3 access key; better in ${variables}_ACCESS_KEY`),
    secretKey: z.string().describe(`S3 secret key; better in ${variables}_SECRET_KEY`),
  });

export const configSchema = z.strictObject({
  port: port.describe('public port; 0 picks a free one'),
  host: ipAddress.describe('address the public port listens on'),
  adminPort: port.describe('operator port: metrics and operator API; loopback only'),
  adminNames: z.array(hostName).describe('names, beside localhost and 127.0.0.1, that the operator port answers to'),
  data: z.string().min(1).describe('data folder: everything worth keeping is in it'),
  publicUrl: originOrEmpty.describe('public origin such as https://api.example.com; empty: http://localhost:<port>'),
  baseDomain: hostName.describe(
    "tenants also answer at <slug>.<baseDomain>, the owner's console at console.<baseDomain>; localhost: the console is at /_admin/console",
  ),
  trustedProxies: z.array(addressRange).describe('CIDRs of reverse proxies whose x-forwarded-* are believed'),
  log: z.strictObject({ level: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).describe('log level') }),
  cluster: z
    .strictObject({
      database: postgresUrlOrEmpty.describe(
        'PostgreSQL that several nodes share, postgres://user:password@host/database; with standbys that take over: postgres://user:password@one:5432,two:5432/database; better in TURNPIKE_CLUSTER_DATABASE; empty: this host is one box',
      ),
      key: z
        .string()
        .regex(/^(?:.{32,})?$/s, 'expected 32 characters at least, such as openssl rand -base64 32 prints')
        .describe('seals the keys that all nodes share, the same on each; better in TURNPIKE_CLUSTER_KEY'),
      node: z
        .string()
        .regex(/^(?:[a-zA-Z0-9][a-zA-Z0-9._-]{0,62})?$/, 'expected letters, digits, dots and hyphens')
        .describe('name of this node; empty: one is made at the first start, and kept'),
      address: hostAndPortOrEmpty.describe(
        'host:port on which this node listens for the others, and under which they reach it; port 0 is a free one; empty: the first address of this machine, on a free port',
      ),
      storage: s3('TURNPIKE_CLUSTER_STORAGE'),
    })
    .refine(
      ({ database, key, node, address, storage }) =>
        database !== '' ||
        [key, node, address, ...NEEDED_FOR_S3.map((name) => storage[name])].every((text) => text === ''),
      { path: ['database'], error: 'all settings of cluster are of several nodes: set cluster.database, too' },
    )
    .refine(({ database, key }) => database === '' || key !== '', {
      path: ['key'],
      error:
        'a cluster needs one key for all nodes, which seals what they share: make it with openssl rand -base64 32, and set it on each node',
    })
    .refine(({ database, storage }) => database === '' || NEEDED_FOR_S3.every((name) => storage[name] !== ''), {
      path: ['storage'],
      error: `a cluster needs a bucket of an S3 for what all nodes keep: set ${NEEDED_FOR_S3.join(', ')}, the same on each node`,
    }),
  clock: z.strictObject({ movable: z.boolean().describe('operator may move business time (tests only)') }),
  slugs: z.strictObject({
    reserved: z.array(z.string()).describe('names that no tenant may take'),
    termDays: z.number().int().positive().describe('days that a deploy or a renewal pays for'),
    graceDays: z.number().int().min(0).describe('days from expiry to decommissioning, and from deletion to purge'),
    cooldownDays: z.number().int().min(0).describe('days until a decommissioned slug is free for other owners'),
  }),
  prices: z.strictObject({
    deploy: price.describe('price of a deploy, USD'),
    renew: price.describe('price of a renewal, USD'),
  }),
  builtinTenants: z.strictObject({
    enabled: z.array(z.string()).describe('built-in tenants deployed at start'),
    secrets: z
      .record(z.string(), z.record(z.string(), z.string()))
      .describe('secrets of built-in tenants: name -> {SECRET: value}'),
  }),
  edge: z.strictObject({
    processes: z.number().int().min(1).max(64).describe('edge processes that share the public port'),
    maxHeaderBytes: bytes.describe('largest request head, bytes'),
    pathPages: z
      .enum(['sandbox', 'trust'])
      .describe('pages of tenants at /<slug>/: sandbox gives each an origin of its own, trust lets them share one'),
  }),
  tls: z.strictObject({
    mode: z.enum(['off', 'files', 'acme']).describe('off: a proxy in front ends TLS'),
    port: port.describe('HTTPS port'),
    redirect: z.boolean().describe('redirect http to https'),
    proxyProtocol: z.boolean().describe('expect PROXY protocol v2 from trusted proxies'),
    certificates: z
      .array(z.strictObject({ names: z.array(z.string()), cert: z.string(), key: z.string() }))
      .describe('certificate files: names (wildcards allowed), cert and key paths'),
    acme: z.strictObject({
      directory: httpUrl.describe('ACME directory URL'),
      email: z.string().describe('contact of the ACME account'),
      caFile: z.string().describe('PEM of a private authority to trust for the directory itself'),
      challenge: z.enum(['http-01', 'tls-alpn-01']).describe('preferred challenge'),
      dnsHook: z.string().describe('command for DNS-01: called with set|clear, name, value'),
    }),
  }),
  domains: z.strictObject({
    resolver: dnsServerOrEmpty.describe('DNS server address:port for verification; empty: the system resolver'),
    registrarTokens: z
      .array(z.string().regex(/^[0-9a-fA-F]{64}$/, 'expected 64 hexadecimal digits'))
      .describe('SHA-256 hex of tokens that registrars may verify domains with'),
  }),
  runtime: z.strictObject({
    sandbox: z.enum(['auto', 'bwrap', 'unshare', 'none']).describe('how instances are confined'),
    idleMs: ms.describe('idle time after which an instance is ended'),
    bloatedIdleMs: ms.describe('idle time after which an instance over bloatedBytes is ended'),
    bloatedBytes: bytes.describe('private bytes from which an idle instance counts as bloated'),
    startTimeoutMs: ms.describe('longest start of an instance, without what it waits for a core'),
    cpuStallMs: ms.describe('event loop stall under CPU load after which an instance is killed'),
    heapMb: z.number().int().positive().describe('JS heap of an instance, MB'),
    memoryBytes: bytes.describe('private memory of an instance, bytes'),
    totalMemoryBytes: z.number().int().min(0).describe('memory for all instances, bytes; 0: 70 % of the machine'),
    instances: z
      .number()
      .int()
      .min(0)
      .max(64)
      .describe(
        'instances of a slug that needs more than one core; 0: as many as the machine has cores, where these are more than two, otherwise 1',
      ),
    idleCores: z.number().min(0).describe('cores that have to be idle before a slug gets one more instance'),
    requestIdleMs: ms.describe('longest wait for a byte of an answer'),
    maxBodyBytes: bytes.describe('largest request body'),
    maxCodeBytes: bytes.describe('largest code after bundling'),
    maxSecrets: z.number().int().positive().describe('secrets per deployment'),
    maxSecretBytes: bytes.describe('bytes per secret'),
    subrequests: z.number().int().positive().describe('fetches in flight per tenant'),
    egressBytesPerHour: bytes.describe('bytes to and from the outside per tenant and hour'),
    egressTimeoutMs: ms.describe('longest life of one outbound request'),
    egressCaFile: z
      .string()
      .describe(
        'PEM file of authorities that fetch(), connect() and Hyperdrive trust beside the usual ones; empty: none',
      ),
    databaseConnections: z
      .number()
      .int()
      .positive()
      .max(1_000)
      .describe('connections of Hyperdrive per tenant, to all its databases'),
    logBytes: bytes.describe('log kept per tenant, bytes'),
    egressAllow: z
      .record(z.string(), z.array(egressTarget))
      .describe('private addresses opened per slug: slug -> [host:port or unix:/path]'),
  }),
  storage: z
    .strictObject({
      objects: z.enum(['disk', 's3']).describe('where objects of BUCKET live'),
      sql: sqlServer.describe('"local", or the URL of a libSQL server (libsql://, http://, https://)'),
      sqlToken: z.string().describe('token of the libSQL server; better in TURNPIKE_STORAGE_SQL_TOKEN'),
      sqlAdmin: httpUrlOrEmpty.describe(
        'admin URL of the libSQL server, which makes a namespace per tenant; empty: they exist',
      ),
      sqlTimeoutMs: ms.describe('deadline of one SQL query'),
      kvBytes: bytes.describe('KV quota per tenant'),
      sqlBytes: bytes.describe('SQL quota per tenant'),
      objectBytes: bytes.describe('object quota per tenant'),
      assetBytes: bytes.describe('quota of static files per tenant, all kept versions and compressed forms together'),
      durableObjectBytes: bytes.describe('quota of Durable Objects per tenant'),
      analyticsBytes: bytes.describe('disk for data points of Analytics Engine per tenant; the oldest go first'),
      analyticsDays: z.number().int().positive().describe('days that data points are kept'),
      cacheBytes: bytes.describe('what the Cache API keeps per tenant; what was used longest ago leaves first'),
      requestsInFlight: z.number().int().positive().describe('storage requests in flight per tenant'),
      s3: s3('TURNPIKE_STORAGE_S3'),
    })
    .refine(({ objects, s3 }) => objects === 'disk' || NEEDED_FOR_S3.every((name) => s3[name] !== ''), {
      path: ['s3'],
      error: `objects "s3" needs ${NEEDED_FOR_S3.join(', ')}`,
    }),
  payments: z.strictObject({
    network: z.enum(['local', 'tempo', 'tempo-testnet', 'none']).describe('network of MPP payments'),
    rpcUrl: httpUrlOrEmpty.describe('RPC URL of the Tempo network; empty: its public one'),
    recipient: address.describe('wallet that receives deploys and renewals; empty on local'),
    currency: address.describe('TIP-20 token address; empty: the network default'),
    x402: z.strictObject({
      network: z
        .enum(['', 'base', 'base-sepolia'])
        .describe('x402 network beside Tempo; empty: off (local has its own)'),
      rpcUrl: httpUrlOrEmpty.describe('RPC URL of the x402 network'),
      recipient: address.describe('wallet that receives x402 payments'),
      facilitator: z
        .strictObject({
          url: plainUrlOrEmpty.describe(
            'base URL of an x402 facilitator that settles in place of this host, such as https://api.cdp.coinbase.com/platform/v2/x402; empty: this host settles, and pays the gas',
          ),
          key: z
            .string()
            .describe('its API key, or the secret of one; better in TURNPIKE_PAYMENTS_X402_FACILITATOR_KEY'),
          keyId: z
            .string()
            .describe('id of that key, where it signs a token for each request (Coinbase, PayAI); empty: it is sent'),
          keyHeader: z
            .string()
            .regex(/^[A-Za-z0-9-]*$/)
            .describe('header that the key is sent in, such as x-api-key; empty: Authorization, as Bearer'),
          timeoutMs: ms.max(60_000).describe('longest answer of it; settlements are looked up on the chain after that'),
        })
        .refine(({ key, keyId }) => keyId === '' || key !== '', { path: ['key'], error: 'keyId needs key' }),
    }),
    also: z
      .array(
        z.strictObject({
          network: z.union([
            z.enum(['base', 'base-sepolia', 'tempo', 'tempo-testnet']),
            z
              .string()
              .regex(/^(?:eip155|tempo):[1-9]\d{0,11}$/, 'expected a network such as base, or eip155:<chain id>'),
          ]),
          rpcUrl: httpUrlOrEmpty.default(''),
          token: address.default(''),
          recipient: address.default(''),
          testMoney: z.boolean().default(false),
        }),
      )
      .max(8)
      .describe(
        'further networks, offered in the same 402: {network, rpcUrl, token, recipient}; network is base, base-sepolia, tempo or tempo-testnet, or eip155:<chain id> (x402) or tempo:<chain id> (MPP) with rpcUrl and token, and testMoney where it is worth nothing; recipient is that of the others by default',
      ),
    solana: z
      .strictObject({
        network: z
          .enum(['', 'solana', 'solana-devnet'])
          .describe('Solana network beside the others, by x402 with USDC, for paid routes; empty: off'),
        rpcUrl: httpUrlOrEmpty.describe('RPC URL of the Solana network; empty: its public one'),
        recipient: z
          .string()
          .regex(SOLANA_ADDRESS, 'expected an address of Solana')
          .or(z.literal(''))
          .describe('wallet on Solana that receives for routes that pay the operator; its account for USDC must exist'),
        coinUsd: z.number().positive().max(1_000_000).describe('price of SOL by which fees are counted, USD'),
      })
      .refine(({ network, recipient }) => network === '' || recipient !== '', {
        path: ['recipient'],
        error: 'set it to the wallet that receives payments on Solana',
      }),
    localChainId: z
      .number()
      .int()
      .positive()
      .describe('chain id of the local network; 1337 is the one that the mppx command knows'),
    localPort: port.describe('port of the local network RPC gateway on loopback; 0 picks a free one'),
    feeBps: z.number().int().min(0).max(10_000).describe('share of the operator in paid routes, 1/100 %'),
    gas: z.strictObject({
      minPrice: usdOrEmpty.describe('least price that is offered by x402, USD; empty: what settling costs in gas'),
      perDay: usdOrEmpty.describe(
        'gas that settlements for one tenant may cost the host in a day, USD; its channels of x402 as much again',
      ),
      coinUsd: z
        .number()
        .positive()
        .max(1_000_000)
        .describe('price of the x402 network’s coin by which gas is counted, USD'),
    }),
    welcome: z.strictObject({
      days: z
        .number()
        .int()
        .positive()
        .describe('days that the pay platform’s welcome bonus lasts; on local it has no end'),
      total: usdOrEmpty.describe('most that all welcome bonuses may come to, USD; on local there is no limit'),
    }),
    minPayout: usdOrEmpty.describe('payouts below wait up to a day, USD; empty: 0.10, on local 0'),
    answers: z.strictObject({
      tenantBytes: bytes.describe('disk for the kept answers of a tenant’s paid routes; the oldest go first'),
      totalBytes: bytes.describe('disk for all kept answers'),
      reserveBytes: z.number().int().min(0).describe('free disk below which no answer is kept'),
    }),
    allowTestMoneyInPublic: z.boolean().describe('allow test money on a public listener, and beside real money'),
  }),
  ai: z
    .strictObject({
      url: plainUrlOrEmpty.describe(
        'base URL of the OpenAI-compatible server behind env.AI, such as http://127.0.0.1:11434/v1; empty: off',
      ),
      key: z.string().describe('its API key; better in TURNPIKE_AI_KEY'),
      models: z
        .record(z.string(), z.string())
        .describe('models that handlers may run: name in env.AI.run() -> name at the server'),
      requestsInFlight: z.number().int().positive().max(32).describe('calls of models in flight per tenant'),
      timeoutMs: ms.describe('longest call of a model'),
    })
    .refine(({ url, models }) => url === '' || Object.keys(models).length > 0, {
      path: ['models'],
      error: 'url needs models',
    }),
  mail: z
    .strictObject({
      smtpUrl: z
        .string()
        .regex(/^(?:smtps?:\/\/\S+)?$/)
        .describe(
          'SMTP server that the pay platform sends e-mails by, such as smtps://user:password@mail.example.com; empty: off; better in TURNPIKE_MAIL_SMTP_URL',
        ),
      from: z.string().describe('sender of the e-mails, such as pay@example.com'),
    })
    .refine(({ smtpUrl, from }) => smtpUrl === '' || from !== '', { path: ['from'], error: 'smtpUrl needs from' }),
  speech: z.strictObject({
    engine: z.boolean().describe('run the embedded speech engine beside the speech tenant'),
    listenEngine: z
      .enum(['auto', 'pocketsphinx', 'whisper.cpp', 'sherpa-onnx', 'none'])
      .describe('what transcribes in the embedded engine'),
    listenModel: z.string().describe('whisper.cpp model file, or folder of a sherpa-onnx model'),
    listenProgram: z.string().describe('transcription program, where it is not on the path'),
    listenJobs: z.number().int().min(0).describe('transcriptions at the same time; 0: half of the processors'),
    listenWaiting: z.number().int().min(0).describe('transcriptions that may wait; further ones are refused with 429'),
    speakEngine: z.enum(['auto', 'espeak-ng', 'flite', 'sherpa-onnx']).describe('what speaks in the embedded engine'),
    speakModel: z.string().describe('folder of a sherpa-onnx voice, before those that are installed'),
    speakVoice: z.string().describe('voice for English, such as rms; empty: the best one installed'),
    maxAudioSeconds: z.number().int().positive().describe('longest audio the embedded engine takes'),
  }),
  backup: z.strictObject({
    schedule: z.string().describe('cron expression (UTC); empty: off'),
    target: z.string().describe('folder, or s3://bucket/prefix'),
    keep: z.number().int().positive().describe('backups kept'),
    passphraseFile: z.string().describe('file whose content wraps the key of the secrets'),
  }),
});

export type Config = z.infer<typeof configSchema>;

const TEST_NETWORKS = ['local', 'tempo-testnet', 'base-sepolia', 'solana-devnet'];

/** @param also networks of the operator's own */
export function isTestNetwork(name: string, also: Config['payments']['also']): boolean {
  return TEST_NETWORKS.includes(name) || also.some(({ network, testMoney }) => network === name && testMoney);
}

/** Whether payments move test money. Here, because it is asked before the code of the networks is loaded. */
export function usesTestMoney({ network, x402, solana, also }: Config['payments']): boolean {
  return [network, x402.network, solana.network, ...also.map((entry) => entry.network)].some((name) =>
    isTestNetwork(name, also),
  );
}
