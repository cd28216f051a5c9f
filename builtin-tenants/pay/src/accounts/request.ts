/** What a request says of its caller, and of what the caller wants to be made. */

/**
 * What follows a scheme in an Authorization header. Clients that keep the caller's own header beside their payment send
 * both, which HTTP joins by a comma.
 */
export function authorizationOf(header: string | null | undefined, scheme: 'Bearer' | 'Payment'): string | undefined {
  return new RegExp(`(?:^|,)\\s*${scheme}\\s+([^\\s,]+)\\s*(?:,|$)`, 'i').exec(header ?? '')?.[1];
}

/** The label that a body may give to what it makes; no body is needed. */
export async function labelIn(request: Request, otherwise: string): Promise<string> {
  const body: unknown = await request.json().catch(() => undefined);
  const { label } = (typeof body === 'object' && body !== null ? body : {}) as { label?: unknown };
  return typeof label === 'string' ? label : otherwise;
}
