import { once } from 'node:events';
import { createServer } from 'node:tls';
import { expect, it } from 'vitest';
import { addressesOf } from '../../host/cli/addresses.ts';

const one = { url: 'http://host.test:8402/hello/', subdomainUrl: 'http://hello.host.test:8402/' };
const names = (known: Record<string, string[]>) => async (name: string) => {
  const found = known[name];
  if (!found) throw new Error(`ENOTFOUND ${name}`);
  return found;
};

it('names the subdomain first where it leads to the same host', async () => {
  const resolve = names({ 'host.test': ['192.0.2.1', '192.0.2.2'], 'hello.host.test': ['192.0.2.2'] });
  expect(await addressesOf(one, resolve)).toEqual([one.subdomainUrl, one.url]);
});

it.each([
  ['is not in the DNS', { 'host.test': ['192.0.2.1'] }],
  ['is answered for by somebody else', { 'host.test': ['192.0.2.1'], 'hello.host.test': ['198.51.100.1'] }],
])('leaves it out where it %s', async (_, known) => {
  expect(await addressesOf(one, names(known))).toEqual([one.url]);
});

it('leaves it out where nobody can trust its certificate, or there is none', async () => {
  const server = createServer({});
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as { port: number };
  const secure = { url: `https://127.0.0.1:${port}/hello/`, subdomainUrl: `https://localhost:${port}/` };
  const here = async () => ['127.0.0.1'];
  expect(await addressesOf(secure, here)).toEqual([secure.url]);
  server.close();
  await once(server, 'close');
  expect(await addressesOf(secure, here)).toEqual([secure.url]);
});
