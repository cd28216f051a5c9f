/** The label that a body may give to what it makes; no body is needed. */
export async function labelIn(request: Request, otherwise: string): Promise<string> {
  const body: unknown = await request.json().catch(() => undefined);
  const { label } = (typeof body === 'object' && body !== null ? body : {}) as { label?: unknown };
  return typeof label === 'string' ? label : otherwise;
}
