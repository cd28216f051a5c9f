import { expect, test } from 'vitest';
import { HostClient } from '../../host/cli/host-client.ts';

test('an event whose text has line separators of Unicode is not lost', async () => {
  const data = JSON.stringify({ id: 1, text: 'a\u2028b\u2029c\u0085d' });
  const client = new HostClient({
    url: new URL('http://host.example'),
    fetch: (async () => new Response(`id: 1\ndata: ${data}\n\n`)) as typeof fetch,
    signal: new AbortController().signal,
    paying: async () => Promise.reject(new Error('nothing to pay')),
  });
  const events: { id: string; data: string }[] = [];
  for await (const event of client.events('/x', {})) events.push(event);
  expect(events).toEqual([{ id: '1', data }]);
});
