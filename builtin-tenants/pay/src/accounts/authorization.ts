/**
 * What follows a scheme in an Authorization header. Clients that keep the caller's own header beside their payment send
 * both, which HTTP joins by a comma.
 */
export function authorizationOf(header: string | null | undefined, scheme: 'Bearer' | 'Payment'): string | undefined {
  return new RegExp(`(?:^|,)\\s*${scheme}\\s+([^\\s,]+)\\s*(?:,|$)`, 'i').exec(header ?? '')?.[1];
}
