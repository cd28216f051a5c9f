/** What probes, scrapers and proxies on this machine ask. */
import { json } from '../../endpoint.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

export function healthEndpoints(deps: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'GET',
      path: '/metrics',
      access: 'public',
      summary: 'Metrics',
      description: 'In the text format of Prometheus.',
      responses: { 200: 'text/plain; version=0.0.4' },
      handle: async () =>
        new Response(await deps.metrics(), {
          headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        }),
    },
    {
      method: 'GET',
      path: '/healthz',
      access: 'public',
      summary: 'Health of the host and each of its components',
      description: '503 while something essential does not answer; `components` names it.',
      responses: { 200: '`{status, components}`', 503: 'not ready' },
      async handle() {
        const { ready, body } = deps.health();
        return json(body, ready ? 200 : 503);
      },
    },
    {
      method: 'GET',
      path: '/ask',
      access: 'public',
      summary: 'May a certificate be made for a name?',
      description: 'For on-demand TLS of Caddy: `?domain=api.example.com`.',
      responses: { 200: 'a domain of this host', 404: 'none' },
      async handle({ request }) {
        const domain = new URL(request.url).searchParams.get('domain') ?? '';
        return new Response(null, { status: (await deps.mayServe(domain)) ? 200 : 404 });
      },
    },
  ];
}
