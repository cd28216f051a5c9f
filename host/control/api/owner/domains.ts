/** Domains of a slug: POST and GET /_admin/:slug/domains, DELETE /_admin/:slug/domains/:domain. */

import { z } from 'zod';
import type { DomainChecks } from '../../../domains/domain-checks.ts';
import { parseDomain } from '../../../domains/domain-name.ts';
import { recordName } from '../../../domains/ownership-record.ts';
import type { Domain } from '../../../registry/schema/deployments.ts';
import { Problem } from '../../../shared/problem.ts';
import { readBody } from '../../../shared/request-body.ts';
import { fieldProblem } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Call, type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { assertChangeable, living, requireOwner } from '../../ownership.ts';

const attachBody = z.strictObject({
  domain: z
    .string()
    .describe('Name to attach, without a port.')
    .meta({ examples: ['api.example.com'] }),
  registrarToken: z
    .string()
    .max(500)
    .optional()
    .describe('Of a registrar that the operator trusts, whose word stands for the TXT record and the owner.'),
});
const MAX_DOMAINS = 100;
const MAX_BODY_BYTES = 16_384;

export function domainEndpoints(deps: ControlDeps, checks: DomainChecks): Endpoint[] {
  const { domains, config, publicUrl } = deps;
  const own = { publicHost: new URL(publicUrl).hostname, baseDomain: config.baseDomain };

  const attach: Endpoint = {
    method: 'POST',
    path: '/_admin/:slug/domains',
    access: 'owner',
    summary: 'Attach a domain',
    description:
      'Answers what to set in the DNS: a CNAME (or A) record to this host and a TXT record that shows the domain is yours. ' +
      'The state goes pending, verified, active; it is looked at in the background and with every GET. ' +
      'A registrar that the operator trusts attaches and verifies at once with its registrarToken, without the owner.',
    body: jsonBody(attachBody),
    responses: {
      202: '`{domain, state, dns, reason}`',
      400: 'Not a domain that can be attached.',
      403: 'Not the owner, or not a registrar that is trusted.',
      409: 'Another slug has it; where that one has not proved it, the detail says how to.',
    },
    handle: async (call) => {
      const body = attachBody.safeParse(await readSmall(call));
      const vouched = body.success && body.data.registrarToken !== undefined;
      if (vouched && !checks.vouches(body.data.registrarToken ?? '')) {
        throw new Problem(
          'forbidden',
          'The operator of this host does not trust this registrarToken; ask the operator to add it to domains.registrarTokens.',
        );
      }
      const scope = `POST /_admin/${call.params.slug}/domains`;
      const owned = vouched
        ? { deployment: await living(deps, call.params.slug ?? '') }
        : await requireOwner(deps, call, scope, { changes: true });
      if ('response' in owned) return owned.response;
      if (vouched) assertChangeable(deps, owned.deployment);
      if (!body.success) throw fieldProblem('/domain', 'is the name to attach: send {"domain": "api.example.com"}');
      const domain = parseDomain(body.data.domain, own);
      const { tenant } = owned.deployment;
      const present = await domains.ofTenant(tenant);
      if (present.length >= MAX_DOMAINS && !present.some((row) => row.domain === domain)) {
        throw new Problem('conflict', `A slug has at most ${MAX_DOMAINS} domains; detach one first.`);
      }
      return json(view(await checks.attach(domain, tenant, vouched)), 202);
    },
  };

  const list: Endpoint = {
    method: 'GET',
    path: '/_admin/:slug/domains',
    access: 'owner',
    summary: 'List domains',
    description: 'State of each domain, the reason where it waits for something, and what to set in the DNS.',
    responses: { 200: '`{domains: [...]}`' },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/domains`);
      if ('response' in owned) return owned.response;
      const rows = await domains.ofTenant(owned.deployment.tenant);
      return json({ domains: (await Promise.all(rows.map((row) => checks.refresh(row)))).map((row) => view(row)) });
    },
  };

  const detach: Endpoint = {
    method: 'DELETE',
    path: '/_admin/:slug/domains/:domain',
    access: 'owner',
    summary: 'Detach a domain',
    description: 'The host stops serving it at once.',
    responses: { 204: 'Detached.', 404: 'The slug has no such domain.' },
    handle: async (call) => {
      const { slug, domain = '' } = call.params;
      const owned = await requireOwner(deps, call, `DELETE /_admin/${slug}/domains/${domain}`);
      if ('response' in owned) return owned.response;
      const name = parseDomain(domain, own);
      if (!(await checks.detach(name, owned.deployment.tenant))) {
        throw new Problem('not_found', `${slug} has no domain ${name}; turnpike domains lists what it has.`);
      }
      return new Response(null, { status: 204 });
    },
  };

  function view(row: Domain) {
    return {
      domain: row.domain,
      state: row.state,
      ...(row.reason ? { reason: row.reason } : {}),
      dns: [
        { type: 'CNAME', name: row.domain, value: own.publicHost, note: 'or an A/AAAA record to the same address' },
        { type: 'TXT', name: recordName(row.domain), value: row.token },
      ],
      createdAt: iso(row.createdAt),
      ...(row.verifiedAt ? { verifiedAt: iso(row.verifiedAt) } : {}),
      ...(row.checkedAt ? { checkedAt: iso(row.checkedAt) } : {}),
    };
  }

  return [attach, list, detach];
}

/** The JSON of a body that anybody may send, without a proof yet; undefined where it is none. @throws Problem too_large */
async function readSmall({ request, context }: Call): Promise<unknown> {
  const bytes = await readBody(request, MAX_BODY_BYTES, context.clientIp);
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}
