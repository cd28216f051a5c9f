import { describe, expect, test } from 'vitest';
import { chooseWay, type Surroundings } from '../../host/egress/route.ts';
import { parseConnectTarget, parseHttpTarget } from '../../host/egress/target.ts';
import { Problem } from '../../host/shared/problem.ts';

const surroundings: Surroundings = {
  ownHosts: ['api.example.com', 'localhost:8402'],
  baseDomain: 'localhost',
  edgeAddress: { host: '127.0.0.1', port: 8402 },
  edgeTlsAddress: undefined,
  connectPorts: undefined,
};

const way = (url: string, allow: string[] = [], more: Partial<Surroundings> = {}) =>
  chooseWay(parseHttpTarget(url), allow, { ...surroundings, ...more });
const tcpWay = (authority: string, allow: string[] = [], more: Partial<Surroundings> = {}) =>
  chooseWay(parseConnectTarget(authority), allow, { ...surroundings, ...more });

describe('target', () => {
  test.each([
    ['http://2130706433/', '127.0.0.1'],
    ['http://0x7f.1/', '127.0.0.1'],
    ['http://0177.0.0.01/', '127.0.0.1'],
    ['http://127.1/', '127.0.0.1'],
    ['http://①②⑦.⓪.⓪.①/', '127.0.0.1'],
    ['http://[::ffff:127.0.0.1]/', '::ffff:7f00:1'],
    ['http://[0:0:0:0:0:0:0:1]/', '::1'],
    ['http://localhost./', 'localhost'],
    ['http://user:secret@10.0.0.1/', '10.0.0.1'],
    ['http://EXAMPLE.com/', 'example.com'],
    ['http://bücher.example/', 'xn--bcher-kva.example'],
  ])('%s is %s', (url, host) => {
    expect(parseHttpTarget(url).host).toBe(host);
  });

  test.each([
    '/relative',
    'ftp://example.com/',
    'file:///etc/passwd',
    'http://',
    'http://[fe80::1%25eth0]/',
    'http://a b/',
    'http://example.com:99999/',
    'http://example.com:0/',
    '',
  ])('%s is not one', (url) => {
    expect(() => parseHttpTarget(url)).toThrow(Problem);
  });

  test('keeps the query, drops the fragment, knows the implied ports', () => {
    expect(parseHttpTarget('https://example.com/a%20b?c=d#e')).toMatchObject({ path: '/a%20b?c=d', port: 443 });
    expect(parseHttpTarget('http://[2606:4700::1]:81/')).toMatchObject({ name: '[2606:4700::1]:81', literal: true });
  });

  test.each([
    'example.com',
    'example.com:',
    'example.com:0',
    'example.com:65536',
    'a@b:80',
    'a:80/x',
    'a:80?x',
    ':80',
    '[fe80::1%eth0]:80',
    'a b:80',
    'a:1:80',
    '',
  ])('connect() refuses %s', (authority) => {
    expect(() => parseConnectTarget(authority)).toThrow(Problem);
  });

  test('connect() takes names and addresses with a port', () => {
    expect(parseConnectTarget('db.example.com:5432')).toMatchObject({
      host: 'db.example.com',
      port: 5432,
      kind: 'tcp',
    });
    expect(parseConnectTarget('[::1]:80')).toMatchObject({ host: '::1', port: 80 });
    expect(parseConnectTarget('0x7f000001:80')).toMatchObject({ host: '127.0.0.1', literal: true });
  });
});

describe('way', () => {
  test('own names and tenants go to the edge', () => {
    const edge = { kind: 'edge', host: '127.0.0.1', port: 8402 };
    expect(way('http://localhost:8402/hello')).toEqual(edge);
    expect(way('http://hello.localhost:8402/')).toEqual(edge);
    expect(way('https://api.example.com/x')).toEqual(edge);
    expect(way('http://api.example.com/x')).toEqual(edge);
    expect(() => tcpWay('hello.localhost:8402')).toThrow(/fetch\(\) does/);
  });

  test('https to an own name goes to where the edge speaks TLS, if it does', () => {
    const edgeTlsAddress = { host: '127.0.0.1', port: 8443 };
    expect(way('https://api.example.com/', [], { edgeTlsAddress })).toEqual({ kind: 'edge', ...edgeTlsAddress });
    expect(way('http://api.example.com/', [], { edgeTlsAddress })).toMatchObject({ port: 8402 });
  });

  test('the operator port on an own name is not the edge', () => {
    expect(() => way('http://localhost:8403/metrics')).toThrow(/this machine itself/);
    expect(() => way('http://x.localhost:8403/metrics')).toThrow(/this machine itself/);
    expect(way('http://api.example.com:8403/')).toEqual({ kind: 'public' });
  });

  test('a name that only ends like an own one is not own', () => {
    expect(way('http://api.example.com.evil.test/')).toEqual({ kind: 'public' });
    expect(way('http://notapi.example.com/')).toEqual({ kind: 'public' });
    expect(way('http://evillocalhost/')).toEqual({ kind: 'public' });
  });

  test('what the operator opened is opened, at that port alone', () => {
    expect(way('http://10.0.0.5:9000/', ['10.0.0.5:9000'])).toEqual({ kind: 'opened' });
    expect(way('http://10.0.0.5:9001/', ['10.0.0.5:9000'])).toEqual({ kind: 'public' });
    expect(way('http://engine.internal/', ['unix:/run/x/engine.sock'])).toEqual({
      kind: 'unix',
      path: '/run/x/engine.sock',
    });
    expect(way('http://other.internal/', ['unix:/run/x/engine.sock'])).toEqual({ kind: 'public' });
  });

  test('port 25 is closed, and connect() keeps to the ports that were set', () => {
    expect(() => tcpWay('mail.example.net:25')).toThrow(/port 25 is closed/);
    expect(() => way('http://mail.example.net:25/')).toThrow(/port 25 is closed/);
    expect(tcpWay('mail.example.net:587')).toEqual({ kind: 'public' });
    expect(() => tcpWay('db.example.net:5432', [], { connectPorts: [443] })).toThrow(/port 5432 is closed/);
    expect(tcpWay('db.example.net:443', [], { connectPorts: [443] })).toEqual({ kind: 'public' });
  });
});
