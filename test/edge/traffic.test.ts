/** What is reported of each slug's traffic. */
import { expect, test } from 'vitest';
import { Traffic } from '../../host/edge/traffic.ts';

test('counts are since the last report; requests in flight stay', () => {
  const traffic = new Traffic();
  const hello = traffic.of('hello');
  hello.requests += 2;
  hello.inFlight += 1;
  hello.bytesOut += 10;
  const nothing = { slug: 'hello', requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 };
  expect(traffic.report()).toEqual([{ ...nothing, requests: 2, bytesOut: 10, inFlight: 1 }]);
  expect(traffic.report()).toEqual([{ ...nothing, inFlight: 1 }]);
  hello.inFlight -= 1;
  expect(traffic.report()).toEqual([nothing]);
  expect(traffic.report()).toEqual([]);
  expect(traffic.report()).toEqual([]);
});
