/** What is read as a request or response head, and what is refused. */
import { describe, expect, test } from 'vitest';
import { answerField, blockPairs, requestField } from '../../host/http/message/fields.ts';
import { parseRequestHead, parseResponseHead } from '../../host/http/message/head.ts';
import { WireError } from '../../host/http/message/wire-error.ts';

function request(...lines: string[]) {
  return parseRequestHead(lines.map((line) => `${line}\r\n`).join(''), requestField);
}

function response(method: string, ...lines: string[]) {
  return parseResponseHead(lines.map((line) => `${line}\r\n`).join(''), method, answerField);
}

describe('requests', () => {
  test('the parts of a plain request', () => {
    expect(request('POST /a/b?c HTTP/1.1', 'Host: x.test:81', 'Content-Length: 5', 'X-Own:  a b \t')).toMatchObject({
      method: 'POST',
      target: '/a/b?c',
      host: 'x.test:81',
      version: '1.1',
      framing: { kind: 'length', length: 5 },
      keepAlive: true,
      upgrade: false,
      fields: 'X-Own:  a b \t\r\n',
    });
  });

  test.each([
    ['no version', 'GET /'],
    ['another protocol', 'GET / HTTPS/1.1'],
    ['another version', 'GET / HTTP/2.0'],
    ['two spaces', 'GET  / HTTP/1.1'],
    ['a tab', 'GET\t/ HTTP/1.1'],
    ['a trailing space', 'GET / HTTP/1.1 '],
    ['a small-letter method', 'get / HTTP/1.1'],
    ['a fragment', 'GET /a#b HTTP/1.1'],
    ['a relative target', 'GET a HTTP/1.1'],
    ['an asterisk', 'GET * HTTP/1.1'],
    ['an authority', 'GET x:80 HTTP/1.1'],
    ['another host in the target', 'GET http://y/ HTTP/1.1'],
    ['userinfo in the target', 'GET http://x@y/ HTTP/1.1'],
    ['a control character', 'GET /\x01 HTTP/1.1'],
    ['DEL', 'GET /\x7f HTTP/1.1'],
    ['NUL', 'GET /\0 HTTP/1.1'],
    ['a bare line feed', 'GET / HTTP/1.1\nx: y'],
    ['a bare return', 'GET / HTTP/1.1\rx: y'],
  ])('%s in the request line is refused', (_name, line) => {
    expect(() => request(line, 'Host: x')).toThrow(WireError);
  });

  test.each([
    ['a space before the colon', ['Host: x', 'A : b']],
    ['a leading space (folding)', ['Host: x', 'A: b', ' c']],
    ['no colon', ['Host: x', 'A']],
    ['no name', ['Host: x', ': b']],
    ['a bare line feed', ['Host: x', 'A: b\nC: d']],
    ['a bare return', ['Host: x', 'A: b\rC: d']],
    ['NUL', ['Host: x', 'A: b\0']],
    ['a bracket in a name', ['Host: x', 'A[]: b']],
    ['no host', ['A: b']],
    ['an empty host', ['Host:']],
    ['two hosts', ['Host: x', 'Host: x']],
    ['a list of hosts', ['Host: x, y']],
    ['a host with a path', ['Host: x/y']],
    ['a host with userinfo', ['Host: a@x']],
    ['a host with a space', ['Host: x y']],
    ['both framings', ['Host: x', 'Content-Length: 1', 'Transfer-Encoding: chunked']],
    ['two lengths', ['Host: x', 'Content-Length: 1', 'Content-Length: 1']],
    ['a list of lengths', ['Host: x', 'Content-Length: 1, 1']],
    ['a signed length', ['Host: x', 'Content-Length: +1']],
    ['a hexadecimal length', ['Host: x', 'Content-Length: 0x1']],
    ['an empty length', ['Host: x', 'Content-Length:']],
    ['a huge length', ['Host: x', 'Content-Length: 99999999999999999999']],
    ['two codings', ['Host: x', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked']],
    ['a list of codings', ['Host: x', 'Transfer-Encoding: gzip, chunked']],
    ['identity', ['Host: x', 'Transfer-Encoding: identity']],
    ['an obfuscated coding', ['Host: x', 'Transfer-Encoding: \x0bchunked']],
    ['a quoted coding', ['Host: x', 'Transfer-Encoding: "chunked"']],
    ['an empty coding', ['Host: x', 'Transfer-Encoding:']],
    ['another expectation', ['Host: x', 'Expect: 200-ok']],
  ])('%s is refused', (_name, lines) => {
    expect(() => request('POST / HTTP/1.1', ...lines)).toThrow(WireError);
  });

  test('a coding on HTTP/1.0 is refused, a missing host is not', () => {
    expect(() => request('POST / HTTP/1.0', 'Transfer-Encoding: chunked')).toThrow(WireError);
    expect(request('GET / HTTP/1.0')).toMatchObject({ host: '', version: '1.0', keepAlive: false });
  });

  test('absolute form is read where it names the same host', () => {
    expect(request('GET http://X.test/a HTTP/1.1', 'Host: x.test').target).toBe('/a');
    expect(request('GET http://x.test?q HTTP/1.1', 'Host: x.test').target).toBe('/?q');
    expect(request('OPTIONS * HTTP/1.1', 'Host: x').target).toBe('*');
  });

  test('bytes that belong into no path are escaped', () => {
    expect(request('GET /<a>`?b=<c> HTTP/1.1', 'Host: x').target).toBe('/%3Ca%3E%60?b=%3Cc%3E');
    expect(request('GET /\xc3\xa9?\xff HTTP/1.1', 'Host: x').target).toBe('/%C3%A9?%FF');
  });

  test('what only the host may say is taken out, in every spelling', () => {
    const head = request(
      'GET / HTTP/1.1',
      'Host: x',
      'X-Turnpike-CF: {}',
      'x-turnpike-context: e30',
      'X-PAYER: me',
      'x-payment-id: 1',
      'X-Payment-Check: 1',
      'x-charge: 0',
      'CF-Connecting-IP: 1.1.1.1',
      'cf-ray: 1',
      'Forwarded: for=1.1.1.1',
      'X-Real-IP: 1.1.1.1',
      'True-Client-IP: 1.1.1.1',
      'X-Forwarded-Prefix: /x',
      'X-Forwarded-For: 1.1.1.1',
      'Keep-Alive: 1',
      'Proxy-Authorization: x',
      'TE: trailers',
      'Trailer: x',
      'Own: kept',
    );
    expect(head.fields).toBe('Own: kept\r\n');
    expect(head).toMatchObject({ forwardedFor: '1.1.1.1', acceptsTrailers: true });
  });

  test('fields that Connection names end here, and framing cannot be named away', () => {
    const head = request(
      'POST / HTTP/1.1',
      'Host: x',
      'Connection: close, x-hop, content-length, host',
      'X-Hop: 1',
      'X-End: 2',
      'Content-Length: 3',
    );
    expect(head).toMatchObject({
      fields: 'X-End: 2\r\n',
      keepAlive: false,
      host: 'x',
      framing: { kind: 'length', length: 3 },
    });
  });

  test('only a WebSocket handshake is an upgrade', () => {
    const asked = ['Host: x', 'Connection: keep-alive, Upgrade'];
    expect(request('GET / HTTP/1.1', ...asked, 'Upgrade: WebSocket')).toMatchObject({ upgrade: true, fields: '' });
    expect(request('GET / HTTP/1.1', ...asked, 'Upgrade: h2c', 'HTTP2-Settings: x').upgrade).toBe(false);
    expect(request('GET / HTTP/1.1', ...asked, 'Upgrade: websocket, h2c').upgrade).toBe(false);
    expect(request('POST / HTTP/1.1', ...asked, 'Upgrade: websocket').upgrade).toBe(false);
    expect(request('GET / HTTP/1.1', ...asked, 'Upgrade: websocket', 'Content-Length: 1').upgrade).toBe(false);
    expect(request('GET / HTTP/1.1', 'Host: x', 'Upgrade: websocket').upgrade).toBe(false);
  });

  test('too many lines are refused', () => {
    expect(() => request('GET / HTTP/1.1', 'Host: x', ...new Array(300).fill('a: b'))).toThrow(/At most 256/);
  });
});

describe('responses', () => {
  test('the parts of a plain answer', () => {
    expect(response('GET', 'HTTP/1.1 200 OK', 'Content-Length: 5', 'X-Charge: 1', 'X-Own: 2')).toMatchObject({
      status: 200,
      reason: 'OK',
      framing: { kind: 'length', length: 5 },
      keepAlive: true,
      fields: 'X-Own: 2\r\n',
    });
    expect(response('GET', 'HTTP/1.1 404', 'Transfer-Encoding: chunked').framing).toEqual({ kind: 'chunked' });
    expect(response('GET', 'HTTP/1.1 200 ')).toMatchObject({ framing: { kind: 'close' }, keepAlive: false });
  });

  test.each([
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
    ['GET', 103],
  ])('%s %i has no body, whatever its length says', (method, status) => {
    const head = response(method, `HTTP/1.1 ${status} X`, 'Content-Length: 7');
    expect(head).toMatchObject({ framing: { kind: 'none' }, contentLength: '7' });
  });

  test('cookies and fields that speak for an origin are set apart', () => {
    const head = response('GET', 'HTTP/1.1 200 OK', 'Set-Cookie: a=1', 'set-cookie: b=2', 'Service-Worker-Allowed: /');
    expect(head).toMatchObject({ cookies: ['a=1', 'b=2'], originFields: 'Service-Worker-Allowed: /\r\n', fields: '' });
  });

  test.each([
    ['a bad status line', ['HTTP/1.1 20 OK']],
    ['another protocol', ['ICY 200 OK']],
    ['both framings', ['HTTP/1.1 200 OK', 'Content-Length: 1', 'Transfer-Encoding: chunked']],
    ['different lengths', ['HTTP/1.1 200 OK', 'Content-Length: 1', 'Content-Length: 2']],
    ['a coding of its own', ['HTTP/1.1 200 OK', 'Transfer-Encoding: gzip']],
    ['a line feed in a value', ['HTTP/1.1 200 OK', 'A: b\nSet-Cookie: c=d']],
  ])('%s is refused', (_name, lines) => {
    expect(() => response('GET', ...lines)).toThrow(WireError);
  });
});

test('a block reads as pairs', () => {
  expect(blockPairs('A: b\r\nC:d \r\n')).toEqual([
    ['A', 'b'],
    ['C', 'd'],
  ]);
});
