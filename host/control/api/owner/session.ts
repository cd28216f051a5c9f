/**
 * Tokens in place of proofs: POST /_admin/session/:slug for a series of calls of one slug, and a session of a wallet in a
 * browser: POST /_admin/sign-in, then POST /_admin/session; DELETE /_admin/session ends it.
 */
import { z } from 'zod';
import { type ConsolePlace, consolePlace } from '../../../shared/console-place.ts';
import { Problem } from '../../../shared/problem.ts';
import { readJson } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Call, type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { badToken, bearerOf, requireOwner } from '../../ownership.ts';

const MAX_BODY_BYTES = 4_096;
const address = z.string().describe('The wallet: 0x and 40 hexadecimal digits.');
const signInBody = z.strictObject({ address });
const proofBody = z.strictObject({
  address,
  nonce: z.string().max(200).describe('Of the answer of POST /_admin/sign-in.'),
  signature: z.string().max(2_000).describe('Of its message, as personal_sign makes it.'),
});

export function sessionEndpoints(deps: ControlDeps): Endpoint[] {
  const { config, payments } = deps;
  const page = consolePlace(deps.publicUrl, config.baseDomain);
  const headers = { 'access-control-allow-origin': page.origin };

  async function read<T>(call: Call, body: z.ZodType<T>): Promise<T> {
    const trouble = signInTrouble(call.request, page, config.edge.pathPages);
    if (trouble) throw new Problem('forbidden', trouble, { headers });
    return await readJson(call.request, body, { maxBytes: MAX_BODY_BYTES, caller: call.context.clientIp });
  }

  return [
    {
      method: 'POST',
      path: '/_admin/session/:slug',
      access: 'owner',
      summary: 'Get an owner token',
      description:
        'For a long log tail or a series of calls: `Authorization: Bearer <token>` for this slug, 15 minutes.',
      responses: {
        201: '`{token, slug, expiresAt}`',
        403: 'Another wallet owns the slug.',
        404: 'No such deployment.',
      },
      handle: async (call) => {
        // Who has got hold of a token would have it for ever.
        if (bearerOf(call.request) !== undefined)
          throw new Problem('forbidden', 'Neither a session nor a token makes tokens; this takes the wallet.');
        const owned = await requireOwner(deps, call, `POST /_admin/session/${call.params.slug}`);
        if ('response' in owned) return owned.response;
        const { token, expiresAt } = payments.ownerTokens.issue(owned.deployment.slug, owned.payer);
        return json({ token, slug: owned.deployment.slug, expiresAt: iso(expiresAt) }, 201);
      },
    },
    {
      method: 'POST',
      path: '/_admin/sign-in',
      access: 'public',
      summary: 'Begin to sign in',
      description:
        'For a wallet in a browser, on pages of this host alone. Answers a message (EIP-4361) that the wallet signs with `personal_sign`; it is good once, for five minutes.',
      body: jsonBody(signInBody),
      responses: { 200: '`{message, nonce, expiresAt}`', 403: 'Another site may not sign in.' },
      handle: async (call) => {
        const { address } = await read(call, signInBody);
        const { message, nonce, expiresAt } = await payments.signIns.begin(address);
        return json({ message, nonce, expiresAt: iso(expiresAt) }, 200, headers);
      },
    },
    {
      method: 'POST',
      path: '/_admin/session',
      access: 'public',
      summary: 'Sign in',
      description:
        'Answers a session: a bearer token for all deployments of the wallet, for an hour. It moves no money: what costs is paid by the wallet, and it changes neither prices nor payTo, and makes no keys.',
      body: jsonBody(proofBody),
      responses: {
        201: '`{token, address, expiresAt}`',
        401: 'The signature is not of this message, or the message is used or over.',
        403: 'Another site may not sign in.',
      },
      handle: async (call) => {
        const payer = await payments.signIns.finish(await read(call, proofBody));
        const { token, expiresAt } = payments.ownerTokens.issue(null, payer);
        return json({ token, address: payer.address, expiresAt: iso(expiresAt) }, 201, headers);
      },
    },
    {
      method: 'DELETE',
      path: '/_admin/session',
      access: 'public',
      summary: 'Sign out',
      description: 'Ends the owner token that the call brings.',
      responses: { 204: 'It is worth nothing any more.', 401: 'It was worth nothing.' },
      handle: async ({ request }) => {
        if (!(await payments.ownerTokens.end(bearerOf(request) ?? ''))) throw badToken();
        return new Response(null, { status: 204 });
      },
    },
  ];
}

/** @returns why the host refuses to sign in a request from this origin; undefined: it does not */
function signInTrouble({ headers }: Request, page: ConsolePlace, pathPages: 'sandbox' | 'trust'): string | undefined {
  if (!page.isOwn && pathPages === 'trust')
    return 'This host lets pages of tenants act for its own origin (edge.pathPages = trust), so nobody can sign in here safely. Use the turnpike command.';
  const origin = headers.get('origin');
  const site = headers.get('sec-fetch-site');
  if ((origin === null || origin === page.origin) && (site === null || site === 'same-origin')) return undefined;
  return `Sign in at ${page.url}; other pages may not.`;
}
