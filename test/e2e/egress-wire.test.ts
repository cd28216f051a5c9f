/** The way out against servers, and handlers, that do what no library would. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Notices } from '../../host/egress/notices.ts';
import { TenantProxy } from '../../host/egress/proxy.ts';
import { CheckedResolver } from '../../host/egress/resolver.ts';
import { Authorities } from '../../host/egress/secure.ts';
import type { EdgeTls } from '../../host/shared/contracts.ts';
import { startHarness } from './edge/harness.ts';

let folder: string;
let outside: Server;
let at: string;
let proxy: TenantProxy;
let charged: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tp-wire-'));
  charged = 0;
  outside = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const [, path] = bytes.toString().split(' ');
      if (path === '/switch') socket.write('HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n');
      else if (path === '/odd') socket.write('HTTP/1.1 099 Odd\r\ncontent-length: 0\r\n\r\n');
      else if (path === '/charge') {
        charged += 1;
        socket.destroy();
      } else if (path !== '/silent') socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
    });
  }).listen(0, '127.0.0.1');
  await once(outside, 'listening');
  at = `127.0.0.1:${(outside.address() as AddressInfo).port}`;
  await open(1);
});

afterEach(async () => {
  await proxy.close();
  outside.close();
  await rm(folder, { recursive: true });
});

async function open(edgePort: number, edgeProxyHeader = false): Promise<void> {
  proxy = new TenantProxy(
    {
      tenant: 't00000000000000000001',
      slug: 'hello',
      socket: join(folder, 'egress.sock'),
      allow: [at],
      limits: { inFlight: 2, bytesPerHour: 1e9, timeoutMs: 1_000 },
    },
    {
      surroundings: {
        ownHosts: ['api.test'],
        baseDomain: 'tenants.test',
        edgeAddress: { host: '127.0.0.1', port: edgePort },
        edgeTlsAddress: undefined,
        edgeProxyHeader,
        connectPorts: undefined,
      },
      resolver: new CheckedResolver([]),
      notices: new Notices(() => {}),
      authorities: new Authorities(undefined),
      finished: () => {},
      failed: () => {},
    },
  );
  await proxy.listen();
}

/** @returns all that is answered until the end of the connection */
function say(text: string): Promise<string> {
  return new Promise((resolve) => {
    const client = connect(join(folder, 'egress.sock'));
    let heard = '';
    client.setTimeout(30_000, () => client.destroy());
    client.on('data', (bytes) => {
      heard += bytes;
    });
    client.on('close', () => resolve(heard));
    client.write(text);
  });
}

const ask = (line: string, fields = '') => say(`${line} HTTP/1.1\r\n${fields}connection: close\r\n\r\n`);

test('a POST without a body is never sent twice', async () => {
  expect(await ask(`GET http://${at}/`)).toMatch(/ 200 /);
  expect(await ask(`POST http://${at}/charge`, 'content-length: 0\r\n')).toMatch(/ 502 .*closed before an answer/s);
  expect(charged).toBe(1);
});

test('an answer that switches to a protocol nobody asked for is told, and frees its slot', async () => {
  expect(await ask(`GET http://${at}/switch`)).toMatch(/ 502 .*egress_failed/s);
  expect(proxy.allowance.counters.inFlight).toBe(0);
});

test('a status that HTTP does not have is told', async () => {
  expect(await ask(`GET http://${at}/odd`)).toMatch(/ 502 .*has the status 99/s);
  expect(proxy.allowance.counters.inFlight).toBe(0);
});

test('a WebSocket handshake that nobody answers ends in time', async () => {
  const told = await say(`GET http://${at}/silent HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n`);
  expect(told).toMatch(/ 504 .*egress_timeout/s);
  expect(proxy.allowance.counters.inFlight).toBe(0);
});

test('a handler names no other caller than itself to an edge that trusts a proxy beside it', async () => {
  const harness = await startHarness({ trustedProxies: ['127.0.0.1/32'], publicUrl: 'https://api.test' });
  await proxy.close();
  await open(harness.port);
  const forged = 'x-forwarded-for: 203.0.113.7\r\nx-forwarded-proto: http\r\nx-forwarded-host: api.test:1\r\n';
  const heard = await ask('GET https://api.test/_admin/x', forged);
  const raw = await say(
    `CONNECT api.test:80 HTTP/1.1\r\n\r\nGET /_admin/x HTTP/1.1\r\nhost: api.test\r\n${forged}connection: close\r\n\r\n`,
  );
  await harness.close();
  expect.soft(heard).toContain('"clientIp":"127.0.0.1","proto":"https","host":"api.test"');
  expect.soft(raw).not.toContain('203.0.113.7');
  expect(raw).toMatch(/^HTTP\/1\.1 403 /);
});

test('a handler reaches an edge that expects a PROXY header from this machine', async () => {
  const tls = {
    mode: 'off' as const,
    port: 0,
    redirect: false,
    proxyProtocol: true,
    certificates: [],
  } satisfies EdgeTls;
  const harness = await startHarness({ trustedProxies: ['127.0.0.1/32'], publicUrl: 'https://api.test', tls });
  await proxy.close();
  await open(harness.port, true);
  const heard = await ask('GET https://api.test/_admin/x');
  const socket = await ask('GET https://api.test/_admin/x', 'upgrade: websocket\r\nconnection: Upgrade\r\n');
  await harness.close();
  expect.soft(heard).toContain('"clientIp":"127.0.0.1","proto":"https","host":"api.test"');
  expect(socket).toContain(`"upgrade":"websocket"`);
});
