/**
 * The auth.md protocol (github.com/workos/auth.md, 0.6), its anonymous method: an agent finds the metadata, registers,
 * exchanges the assertion that it gets for a credential, and may have a person claim its account, by the device flow's
 * page and codes. Assertions are ours alone to read, and end soon: what outlives them is the credential.
 */
import type { Database } from '../environment.ts';
import { limit } from '../rate-limit.ts';
import type { Accounts } from './accounts.ts';
import type { DeviceCode, DeviceFlow } from './device-flow.ts';
import { base64url, fromBase64url, mac, newId, newSecret, sameText, sha256Hex } from './tokens.ts';

export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
export const CLAIM_GRANT = 'urn:workos:agent-auth:grant-type:claim';
const SCOPE = 'account';
const ASSERTION_LIFE_MS = 600_000;
const CLAIM_LIFE_MS = 24 * 3_600_000;
const EXCHANGES_A_DAY = 50;
const CLAIMS_AN_HOUR = 10;
const HEADER = { alg: 'HS256', typ: 'JWT' };

/** An OAuth error (RFC 6749, 5.2) with its status. */
export interface Refused {
  error: string;
  error_description: string;
  status: 400 | 403 | 404 | 409;
}

export interface Registration {
  registrationId: string;
  assertion: string;
  assertionExpires: number;
  claimToken: string;
  claimExpires: number;
}

interface Row {
  id: string;
  account: string;
  claimExpires: number;
  deviceHash: string | null;
  humanId: string | null;
}

export class Agents {
  readonly #db: Database;
  readonly #accounts: Accounts;
  readonly #device: DeviceFlow;
  readonly #secret: string;
  readonly #issuer: string;
  readonly #verificationUri: string;

  constructor(parts: {
    db: Database;
    accounts: Accounts;
    device: DeviceFlow;
    secret: string;
    /** Address of the platform, as its metadata has it. */
    issuer: string;
    /** Where people type codes. */
    verificationUri: string;
  }) {
    this.#db = parts.db;
    this.#accounts = parts.accounts;
    this.#device = parts.device;
    this.#secret = parts.secret;
    this.#issuer = parts.issuer;
    this.#verificationUri = parts.verificationUri;
  }

  /** An account that nobody owns yet, for whoever has the assertion. */
  async register(): Promise<Registration> {
    const registrationId = newId('reg');
    const claimToken = newSecret('clm');
    const now = Date.now();
    const claimExpires = now + CLAIM_LIFE_MS;
    const account = newId('acc');
    await this.#db.batch([
      this.#accounts.opening(account),
      this.#db
        .prepare('INSERT INTO agent_registrations (id, account, claim_hash, claim_expires_at) VALUES (?, ?, ?, ?)')
        .bind(registrationId, account, await sha256Hex(claimToken), claimExpires),
    ]);
    const assertionExpires = now + ASSERTION_LIFE_MS;
    const assertion = await this.#sign({ sub: registrationId, exp: Math.floor(assertionExpires / 1_000) });
    return { registrationId, assertion, assertionExpires, claimToken, claimExpires };
  }

  /** @throws Problem rate_limited */
  async exchange(assertion: string): Promise<{ credential: string; account: string } | Refused> {
    const registration = await this.#read(assertion);
    const row = registration === undefined ? undefined : await this.#find('id', registration);
    // A person who has claimed the account decides who has a credential of it.
    if (!row || row.humanId !== null)
      return refused('invalid_grant', 'The assertion is not good any more: register anew, or use what the claim gave.');
    await limit(this.#db, `credentials:${row.account}`, EXCHANGES_A_DAY, 24 * 3_600_000);
    const { credential } = await this.#accounts.issueCredential(row.account, 'agent');
    return { credential, account: row.account };
  }

  /** Begins an attempt: the agent shows the code to its person. @throws Problem rate_limited */
  async claim(claimToken: string): Promise<(DeviceCode & { verificationUri: string }) | Refused> {
    const row = await this.#find('claim_hash', await sha256Hex(claimToken));
    if (!row) return refused('invalid_claim_token', 'The claim token is unknown.');
    if (row.humanId !== null) return refused('previously_claimed', 'The account has an owner already.', 409);
    if (row.claimExpires <= Date.now()) return refused('claim_expired', 'The registration can be claimed for a day.');
    await limit(this.#db, `claim:${row.account}`, CLAIMS_AN_HOUR, 3_600_000);
    const code = await this.#device.begin('an agent', row.account);
    await this.#db
      .prepare('UPDATE agent_registrations SET device_hash = ? WHERE id = ?')
      .bind(await sha256Hex(code.deviceCode), row.id)
      .run();
    return { ...code, verificationUri: this.#verificationUri };
  }

  /** Whether the person has claimed it; the credential is issued once. */
  async claimed(claimToken: string): Promise<{ credential: string; account: string } | Refused> {
    const row = await this.#find('claim_hash', await sha256Hex(claimToken));
    if (!row || row.deviceHash === null)
      return refused('invalid_grant', 'The claim token is unknown, or no attempt was begun.');
    const progress = await this.#device.progress(row.deviceHash, 'claim');
    if ('error' in progress) return refused(progress.error, 'See RFC 8628, 3.5.');
    // Whoever confirmed is its owner, and not somebody who was quicker.
    if (row.humanId === null || row.humanId !== progress.humanId)
      return refused('access_denied', 'Another person has claimed the account.');
    const { credential } = await this.#accounts.issueCredential(row.account, 'agent');
    return { credential, account: row.account };
  }

  async removeOld(): Promise<void> {
    await this.#db
      .prepare('DELETE FROM agent_registrations WHERE claim_expires_at < ?')
      .bind(Date.now() - CLAIM_LIFE_MS)
      .run();
  }

  async #find(column: 'id' | 'claim_hash', value: string): Promise<Row | undefined> {
    const row = await this.#db
      .prepare(
        `SELECT r.id, r.account, r.claim_expires_at AS claimExpires, r.device_hash AS deviceHash, a.human_id AS humanId
         FROM agent_registrations r JOIN accounts a ON a.id = r.account WHERE r.${column} = ?`,
      )
      .bind(value)
      .first<Row>();
    return row ?? undefined;
  }

  async #sign(claims: { sub: string; exp: number }): Promise<string> {
    const part = (value: object) => base64url(new TextEncoder().encode(JSON.stringify(value)));
    const { exp, sub } = claims;
    const text = `${part(HEADER)}.${part({ iss: this.#issuer, aud: this.#issuer, sub, exp })}`;
    return `${text}.${await mac(this.#secret, 'agent-assertion', text)}`;
  }

  /** @returns the registration that an assertion of ours is of, while it is good */
  async #read(assertion: string): Promise<string | undefined> {
    const [, text, signature] = /^([\w-]{1,200}\.[\w-]{1,1000})\.([\w-]{43})$/.exec(assertion) ?? [];
    if (text === undefined || signature === undefined) return undefined;
    if (!sameText(signature, await mac(this.#secret, 'agent-assertion', text))) return undefined;
    const claims = JSON.parse(new TextDecoder().decode(fromBase64url(text.split('.')[1] ?? ''))) as {
      iss: string;
      aud: string;
      sub: string;
      exp: number;
    };
    return claims.aud === this.#issuer && claims.exp * 1_000 > Date.now() ? claims.sub : undefined;
  }
}

/** RFC 9728, as the protocol wants it. @param base address of the platform */
export function resourceMetadata(base: string): object {
  return {
    resource: base,
    resource_name: 'Pay',
    authorization_servers: [base],
    scopes_supported: [SCOPE],
    bearer_methods_supported: ['header'],
    resource_documentation: `${base}/auth.md`,
  };
}

/** RFC 8414, with the protocol's block. */
export function serverMetadata(base: string): object {
  return {
    issuer: base,
    token_endpoint: `${base}/oauth/token`,
    device_authorization_endpoint: `${base}/oauth/device_authorization`,
    grant_types_supported: ['urn:ietf:params:oauth:grant-type:device_code', JWT_BEARER, CLAIM_GRANT],
    token_endpoint_auth_methods_supported: ['none'],
    response_types_supported: [],
    scopes_supported: [SCOPE],
    agent_auth: {
      skill: `${base}/auth.md`,
      identity_endpoint: `${base}/agent/identity`,
      claim_endpoint: `${base}/agent/identity/claim`,
      identity_types_supported: ['anonymous'],
    },
  };
}

/** The body of a registration's answer. */
export function registrationAnswer(base: string, made: Registration): object {
  return {
    registration_id: made.registrationId,
    registration_type: 'anonymous',
    identity_assertion: made.assertion,
    assertion_expires: new Date(made.assertionExpires).toISOString(),
    pre_claim_scopes: [SCOPE],
    claim_url: `${base}/agent/identity/claim`,
    claim_token: made.claimToken,
    claim_token_expires: new Date(made.claimExpires).toISOString(),
    post_claim_scopes: [SCOPE],
  };
}

/** The body of the token endpoint's answer (RFC 6749, 5.1). */
export function tokenAnswer({ credential, account }: { credential: string; account: string }): object {
  return { access_token: credential, token_type: 'Bearer', scope: SCOPE, account_id: account };
}

function refused(error: string, description: string, status: Refused['status'] = 400): Refused {
  return { error, error_description: description, status };
}
