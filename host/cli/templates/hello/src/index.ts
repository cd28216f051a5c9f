export default {
  async fetch(_request: Request, env: { GREETING: string; VISITS: KVNamespace }): Promise<Response> {
    const visits = Number((await env.VISITS.get('count')) ?? 0) + 1;
    await env.VISITS.put('count', String(visits));
    return new Response(`${env.GREETING}, visitor ${visits}\n`);
  },
};
