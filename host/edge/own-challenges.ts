/**
 * Challenges of this host in the answers of handlers. A client answers a challenge whoever shows it: one of the host's
 * own (prove that you own this, pay for that deploy), shown by a handler, would make the client sign for that handler.
 * A handler may show what `env.PAYMENTS` of its deployment gave it, and challenges of other servers.
 */

/** Where a handler answers. */
export interface Shown {
  /** As the caller wrote it, with port. */
  host: string;
  /** Whose place it is; none of the host's own. */
  route?: { tenant?: string };
}

/** What a challenge's `opaque` is written in (MPP: base64url of JSON). */
const ENCODED = /[\w-]{24,}/g;
/** What a challenge of ours is for; see `Terms.scope`. */
const SCOPE = /"scope":"((?:operation|route|binding|mandate|proof):[^"]*)"/;

/** Where owners prove themselves. */
const ADMIN = '/_admin/';

/** Of what x402's header says, what is read here. The handler wrote it. */
interface PaymentRequired {
  extensions?: { 'sign-in-with-x'?: { info?: { uri?: unknown } } };
}

/**
 * @param lines `name: value\r\n` of the fields that carry challenges
 * @returns those that a handler at this place may show
 */
export function tenantChallenges(lines: string, place: Shown): string {
  return lines
    .split('\r\n')
    .slice(0, -1)
    .filter((line) => {
      const colon = line.indexOf(':');
      const value = line.slice(colon + 1);
      return /^payment-required$/i.test(line.slice(0, colon)) ? isNoSignIn(value, place) : isOfTenant(value, place);
    })
    .map((line) => `${line}\r\n`)
    .join('');
}

/** MPP: who uses a challenge of ours needs its `opaque` to the letter, and that says what the challenge is for. */
function isOfTenant(value: string, { route }: Shown): boolean {
  const tenant = route?.tenant ?? '';
  for (const [encoded] of value.replaceAll('\\', '').matchAll(ENCODED)) {
    const scope = SCOPE.exec(Buffer.from(encoded, 'base64url').toString())?.[1];
    const own = [`binding:${tenant}`, `mandate:${tenant}`];
    if (scope !== undefined && !own.includes(scope) && !scope.startsWith(`proof:tenant:${tenant}:`)) return false;
  }
  return true;
}

/**
 * x402's sign-in: clients sign what names the host that they called, and where tenants share an origin that is this
 * one. (An offer of x402 is bound to nothing: whoever copies one sends a payer's money to the host, and no rights.)
 */
function isNoSignIn(value: string, { host }: Shown): boolean {
  let required: PaymentRequired | null;
  try {
    required = JSON.parse(Buffer.from(value, 'base64').toString());
  } catch {
    // No client finds one in it either.
    return true;
  }
  const uri = required?.extensions?.['sign-in-with-x']?.info?.uri;
  const url = typeof uri === 'string' ? URL.parse(uri) : undefined;
  return url?.host !== host.toLowerCase() || !url.pathname.startsWith(ADMIN);
}
