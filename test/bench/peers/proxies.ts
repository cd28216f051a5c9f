/** HAProxy, Caddy and nginx in front of a workerd on a unix socket. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { freePort } from '../../e2e/support/ports.ts';
import type { Starter } from '../subject.ts';
import { installed, startProgram, stopProgram } from './programs.ts';
import { startWorkerd } from './workerd.ts';

interface ProxyKind {
  name: string;
  program: string;
  config(port: number, socket: string, folder: string): string;
  args(file: string, folder: string): string[];
}

const HAPROXY: ProxyKind = {
  name: 'HAProxy',
  program: 'haproxy',
  config: (port, socket) => `global
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:${port}
  default_backend b
backend b
  server s unix@${socket}
`,
  args: (file) => ['-f', file, '-db'],
};

const CADDY: ProxyKind = {
  name: 'Caddy',
  program: 'caddy',
  config: (port, socket) => `{
  admin off
  auto_https off
}
http://127.0.0.1:${port} {
  reverse_proxy unix/${socket}
}
`,
  args: (file) => ['run', '--config', file, '--adapter', 'caddyfile'],
};

const NGINX: ProxyKind = {
  name: 'nginx',
  program: 'nginx',
  config: (port, socket, folder) => `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 1024; }
http {
  access_log off;
  client_max_body_size 0;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
  upstream b { server unix:${socket}; keepalive 64; }
  server {
    listen 127.0.0.1:${port};
    location / { proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; proxy_buffering on; }
  }
}
`,
  args: (file, folder) => ['-c', file, '-p', folder],
};

function proxy(kind: ProxyKind, code: string): Starter {
  return {
    name: kind.name,
    missing: () => installed(kind.program),
    async start() {
      const backend = await startWorkerd(code);
      const folder = mkdtempSync(path.join(tmpdir(), 'bench-proxy-'));
      const file = path.join(folder, 'config');
      const port = await freePort();
      writeFileSync(file, kind.config(port, backend.socket, folder));
      const child = await startProgram(kind.program, kind.args(file, folder), port, { HOME: folder });
      return {
        name: kind.name,
        origin: `http://127.0.0.1:${port}`,
        pids: () => [child.pid ?? 0, ...backend.pids()],
        async stop() {
          await stopProgram(child);
          await backend.stop();
          rmSync(folder, { recursive: true, force: true });
        },
      };
    },
  };
}

export const haproxy = (code: string): Starter => proxy(HAPROXY, code);
export const caddy = (code: string): Starter => proxy(CADDY, code);
export const nginx = (code: string): Starter => proxy(NGINX, code);
