import { expect, it } from 'vitest';
import type { Line } from '../../host/cli/logs.ts';
import { isShown, type TailFlags } from '../../host/cli/tail.ts';

const request = (status: number, method = 'GET', path = '/a?b=c'): Line => ({
  kind: 'request',
  time: '',
  method,
  path,
  status,
  ms: 1,
});
const said = (kind: 'console' | 'exception' | 'platform', text = 'text'): Line => ({ id: 1, time: '', kind, text });

it.each<[string, TailFlags, Line, boolean]>([
  ['everything without filters', {}, request(500), true],
  ['a failed request as an error', { status: 'error' }, request(500), true],
  ['no refusal of the handler as an error', { status: 'error' }, request(404), false],
  ['an exception as an error', { status: 'error' }, said('exception'), true],
  ['no console line as an error', { status: 'error' }, said('console'), false],
  ['a refusal of the handler as ok', { status: 'ok' }, request(404), true],
  ['console lines as ok', { status: 'ok' }, said('console'), true],
  ['no exception as ok', { status: 'ok' }, said('exception'), false],
  ['requests of a method in any case', { method: ['put', 'post'] }, request(200, 'POST'), true],
  ['no requests of another method', { method: ['POST'] }, request(200), false],
  ['other lines whatever the method', { method: ['POST'] }, said('console'), true],
  ['what has the text in its path', { search: 'b=c' }, request(200), true],
  ['what has the text in its line', { search: 'ex' }, said('console'), true],
  [
    'what has the text in its stack',
    { search: 'deep.ts' },
    { ...said('exception'), stack: 'at deep.ts:1' } as Line,
    true,
  ],
  ['nothing without the text', { search: 'b=d' }, request(200), false],
  ['requests within the share', { samplingRate: 0.6 }, request(200), true],
  ['no requests beyond the share', { samplingRate: 0.4 }, request(200), false],
  ['other lines whatever the share', { samplingRate: 0.1 }, said('exception'), true],
])('shows %s', (_, flags, line, shown) => {
  expect(isShown(line, flags, () => 0.5)).toBe(shown);
});
