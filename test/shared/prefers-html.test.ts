import { expect, test } from 'vitest';
import { prefersHtml } from '../../builtin-tenants/kit/prefers-html.ts';

test.each([
  ['text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8'],
  ['text/html'],
  ['TEXT/HTML;q=0.9, */*;q=0.1'],
  ['text/html, application/json'],
  ['application/json;q=0.5, text/html;q=0.9'],
  ['text/html, application/problem+json;q=0'],
])('%s is a browser’s', (accept) => {
  expect(prefersHtml(accept)).toBe(true);
});

test.each([
  [undefined],
  [''],
  ['*/*'],
  ['text/*'],
  ['application/json'],
  ['application/json, text/plain, */*'],
  ['application/json, text/html'],
  ['application/problem+json, text/html;q=0.9'],
  ['text/html;q=0, */*'],
  ['text/html;q=NaN'],
  ['text/html;q=-1'],
  [`text/html,${'a/b,'.repeat(1_000)}`],
])('%s is not', (accept) => {
  expect(prefersHtml(accept)).toBe(false);
});
