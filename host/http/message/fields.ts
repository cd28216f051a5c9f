/**
 * Which HTTP header fields end at this hop, which carry framing, and which only the host may set.
 * A field block is text of the form `name: value\r\n...`; every block that is sent was checked by `head.ts` or `fieldBlock`.
 */

import { OWN_ANSWER } from '../../shared/problem.ts';
import { REISSUE_HEADER } from '../../shared/reissue.ts';

/** What a parser does with a field. `keep` stays in the block; all others are taken out of it. */
export const Field = {
  keep: 0,
  drop: 1,
  host: 2,
  contentLength: 3,
  transferEncoding: 4,
  connection: 5,
  upgrade: 6,
  expect: 7,
  forwardedFor: 8,
  forwardedProto: 9,
  forwardedHost: 10,
  requestId: 11,
  /** Must be written anew or dropped where tenants share an origin; see answer-fields.ts. */
  setCookie: 12,
  sharedOrigin: 13,
  te: 14,
  date: 15,
  /** A browser that asks for the script of a service worker. */
  serviceWorker: 16,
  /** See host/shared/own-caller.ts. */
  ownCaller: 17,
  /** Control's own answer, which no handler wrote: OWN_ANSWER of host/shared/problem.ts. */
  ownAnswer: 18,
  /** Asks the caller to pay or to prove something; see host/edge/own-challenges.ts. */
  challenge: 19,
  /** How control's 402 may be written again: host/shared/reissue.ts. */
  reissue: 20,
} as const;
export type FieldKind = (typeof Field)[keyof typeof Field];

/** RFC 9110 section 7.6.1, and what older software uses alike. */
const HOP_BY_HOP = ['keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'trailer'];

const REQUEST_KINDS: Readonly<Record<string, FieldKind>> = {
  ...Object.fromEntries(HOP_BY_HOP.map((name) => [name, Field.drop])),
  host: Field.host,
  'content-length': Field.contentLength,
  'transfer-encoding': Field.transferEncoding,
  connection: Field.connection,
  upgrade: Field.upgrade,
  expect: Field.expect,
  te: Field.te,
  'x-forwarded-for': Field.forwardedFor,
  'x-forwarded-proto': Field.forwardedProto,
  'x-forwarded-host': Field.forwardedHost,
  'x-request-id': Field.requestId,
  'service-worker': Field.serviceWorker,
  'x-turnpike-caller': Field.ownCaller,
  // Statements about the caller or its payment: the host makes them, or nobody.
  'x-forwarded-prefix': Field.drop,
  'x-forwarded-port': Field.drop,
  'x-forwarded-server': Field.drop,
  'x-forwarded-scheme': Field.drop,
  'x-real-ip': Field.drop,
  'true-client-ip': Field.drop,
  'x-client-ip': Field.drop,
  'x-cluster-client-ip': Field.drop,
  'fastly-client-ip': Field.drop,
  'x-appengine-user-ip': Field.drop,
  'x-forwarded': Field.drop,
  'forwarded-for': Field.drop,
  forwarded: Field.drop,
  // Proxies say with these which path was asked for; prices went by the path itself.
  'x-original-url': Field.drop,
  'x-rewrite-url': Field.drop,
  'x-payer': Field.drop,
  'x-payment-id': Field.drop,
  'x-payment-attempt': Field.drop,
  'x-payment-check': Field.drop,
  'x-charge': Field.drop,
  'http2-settings': Field.drop,
  // Compression takes 110 KB of an instance for each socket (workerd 1.20261117.1), and the way to it is a unix socket.
  'sec-websocket-extensions': Field.drop,
};
const REQUEST_PREFIXES = ['x-turnpike-', 'cf-'];

const RESPONSE_KINDS: Readonly<Record<string, FieldKind>> = {
  ...Object.fromEntries(HOP_BY_HOP.map((name) => [name, Field.drop])),
  'content-length': Field.contentLength,
  'transfer-encoding': Field.transferEncoding,
  connection: Field.connection,
  upgrade: Field.upgrade,
  // Node's HTTP/2 (24) throws where an answer has it.
  'http2-settings': Field.drop,
  'x-request-id': Field.requestId,
  date: Field.date,
  'set-cookie': Field.setCookie,
  'www-authenticate': Field.challenge,
  'payment-required': Field.challenge,
  ...Object.fromEntries(sharedOriginFields().map((name) => [name, Field.sharedOrigin])),
};

/**
 * Fields that speak for the whole origin, which on path addresses belongs to every tenant. What concerns the answer alone
 * stays: Link, Refresh, SourceMap, Reporting-Endpoints, Speculation-Rules, Supports-Loading-Mode, Document-Policy,
 * Permissions-Policy, the Cross-Origin-* policies, Origin-Trial; the page they act in is sandboxed (answer-fields.ts).
 */
function sharedOriginFields(): string[] {
  return [
    // Lets a service worker take paths above its script.
    'service-worker-allowed',
    // Takes cookies, storage and caches of all tenants away.
    'clear-site-data',
    // Kept by the browser for the host name: TLS, pins, other servers to connect to.
    'strict-transport-security',
    'public-key-pins',
    'public-key-pins-report-only',
    'expect-ct',
    'alt-svc',
    // Kept for the origin: where the browser reports other tenants' requests and failures to.
    'nel',
    'report-to',
    // Kept for the origin: how its pages are put into processes.
    'origin-agent-cluster',
    // Kept for the origin: what browsers tell of themselves with every request.
    'accept-ch',
    'accept-ch-lifetime',
    'critical-ch',
    // Kept for the origin: whether somebody is logged in, and the keys that bind sessions.
    'set-login',
    'sec-session-registration',
    'secure-session-registration',
    'sec-session-challenge',
    'secure-session-challenge',
    // Gives an embedded page the cookies and storage of the origin; writes that storage.
    'activate-storage-access',
    'shared-storage-write',
    // A dictionary for answers at any path of the origin.
    'use-as-dictionary',
    // Of RFC 2965; what still reads it does not know the paths that cookies are confined to.
    'set-cookie2',
  ];
}

/** Finds the kind of a field name; spellings seen before cost one map lookup. */
export type Classifier = (name: string) => FieldKind;

const MAX_REMEMBERED = 2_000;
const MAX_REMEMBERED_NAME = 64;

function classifier(kinds: Readonly<Record<string, FieldKind>>, droppedPrefixes: readonly string[]): Classifier {
  const table = new Map(Object.entries(kinds));
  const remembered = new Map<string, FieldKind>();
  return (name) => {
    const known = remembered.get(name);
    if (known !== undefined) return known;
    const lower = name.toLowerCase();
    const kind =
      table.get(lower) ?? (droppedPrefixes.some((prefix) => lower.startsWith(prefix)) ? Field.drop : Field.keep);
    // Callers choose names: the memory is bounded, and a copy keeps no request text alive.
    if (remembered.size < MAX_REMEMBERED && name.length <= MAX_REMEMBERED_NAME) {
      remembered.set(Buffer.from(name, 'latin1').toString('latin1'), kind);
    }
    return kind;
  };
}

/** Fields of a caller's request. */
export const requestField: Classifier = classifier(REQUEST_KINDS, REQUEST_PREFIXES);
/** Fields of an answer that goes on to a caller: no handler may speak for the host. */
export const answerField: Classifier = classifier(
  { ...RESPONSE_KINDS, 'x-charge': Field.drop, [OWN_ANSWER]: Field.ownAnswer, [REISSUE_HEADER]: Field.reissue },
  ['x-turnpike-'],
);
/** For callers of the upstream client that want to see every field of a handler's answer but those of the hop. */
export const plainAnswerField: Classifier = classifier(
  {
    ...Object.fromEntries(
      Object.entries(RESPONSE_KINDS).filter(
        ([, kind]) => ![Field.setCookie, Field.sharedOrigin, Field.requestId, Field.date].some((own) => own === kind),
      ),
    ),
    // A handler's answer is never the host's own.
    [OWN_ANSWER]: Field.drop,
    [REISSUE_HEADER]: Field.drop,
  },
  [],
);

/** RFC 9110 token, the form of a field name. */
export const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Field values: visible characters, spaces, tabs and obs-text; never CR, LF or NUL. */
export const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * Pairs as Node's `rawHeaders` gives them, as a block.
 * @throws TypeError for a name or value that could not be one line of a head
 */
export function fieldBlock(rawHeaders: readonly string[]): string {
  let block = '';
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const value = rawHeaders[i + 1] as string;
    if (!FIELD_NAME.test(name) || !FIELD_VALUE.test(value))
      throw new TypeError(`header ${JSON.stringify(name)} is not acceptable`);
    block += `${name}: ${value}\r\n`;
  }
  return block;
}

/** A block as [name, value] pairs, names as they were sent, values without surrounding white space. */
export function blockPairs(block: string): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at < block.length; ) {
    const colon = block.indexOf(':', at);
    const end = block.indexOf('\r\n', colon);
    if (colon < 0 || end < 0) break;
    pairs.push([block.slice(at, colon), block.slice(colon + 1, end).trim()]);
    at = end + 2;
  }
  return pairs;
}
