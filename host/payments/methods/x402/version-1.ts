/**
 * x402 version 1 (x402 specification, specs/x402-specification-v1.md): its clients read their terms in the body of a
 * 402, pay by `exact` on networks that have a name, and say nothing of what they accepted beside what they sign.
 * Version 2 has its terms in a header, so that one 402 serves both.
 */
import type { Discovery } from '../../discovery.ts';
import { X402_NETWORKS } from '../../network/chains.ts';
import type { Issue } from '../method.ts';
import type { X402Requirements } from './requirements.ts';

type Schema = Record<string, unknown>;

/** @returns what version 2 calls a network of version 1, such as `eip155:8453` for `base`; undefined for unknown ones */
export function networkOfName(name: string): string | undefined {
  const known = Object.entries(X402_NETWORKS).find(([each]) => each === name);
  return known && `eip155:${known[1].chain.id}`;
}

/** @returns what version 1 calls a network of version 2; undefined where it has no name for it */
export function nameOfNetwork(network: string): string | undefined {
  return Object.entries(X402_NETWORKS).find(([, { chain }]) => network === `eip155:${chain.id}`)?.[0];
}

/** @param credential as it was sent; null where it is not kept */
export function isVersion1(credential: string | null): boolean {
  return /^{.*"x402Version":\s*1\b/s.test(Buffer.from(credential ?? '', 'base64').toString());
}

/** Members of a 402's body: none where clients of version 1 cannot pay, for they stop at the first entry that they do not know. */
export function bodyOfVersion1(requirements: readonly X402Requirements[], issue: Issue): Schema {
  const { resource, description, discovery, problem, version1 } = issue;
  const accepts = requirements.flatMap(({ scheme, network, amount, payTo, maxTimeoutSeconds, asset, extra }) => {
    const name = nameOfNetwork(network);
    // Clients send nothing back of what a tenant's own challenge carries; some tenants need none of it.
    const payable = extra.challenge === undefined || version1;
    if (scheme !== 'exact' || name === undefined || !payable) return [];
    return {
      scheme,
      network: name,
      maxAmountRequired: amount,
      resource,
      description,
      mimeType: mimeType(discovery),
      ...(discovery ? { outputSchema: outputSchema(discovery) } : {}),
      payTo,
      maxTimeoutSeconds,
      asset,
      extra: { name: extra.name, version: extra.version },
    };
  });
  if (accepts.length === 0) return {};
  return { x402Version: 1, error: problem?.message ?? 'X-PAYMENT header is required', accepts };
}

function mimeType(discovery: Discovery | undefined): string {
  const { output } = (discovery?.bazaar.info ?? {}) as { output?: { type?: string } };
  if (output?.type === undefined) return '';
  return output.type === 'json' ? 'application/json' : output.type;
}

/** How it is called, where indexers of version 1 look (@x402/extensions, bazaar/v1). */
function outputSchema({ bazaar: { info, schema } }: Discovery): Schema {
  const { input, output } = info as { input: Schema; output?: { example?: unknown } };
  const { properties } = schema as { properties: { input: { properties: Schema } } };
  const { type, method, bodyType } = input;
  const fields = (name: string) =>
    (properties.input.properties[name] as { properties?: Schema } | undefined)?.properties;
  return {
    input: {
      type,
      method,
      discoverable: true,
      ...(input.queryParams === undefined ? {} : { queryParams: fields('queryParams') ?? {} }),
      ...(bodyType === undefined ? {} : { bodyType, bodyFields: fields('body') ?? {} }),
    },
    ...(output?.example === undefined ? {} : { output: output.example }),
  };
}
