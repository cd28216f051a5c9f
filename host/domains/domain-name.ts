/** The boundary for names of domains that tenants attach: what a caller sent becomes lowercase punycode, or a refusal. */
import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { Problem } from '../shared/problem.ts';

const LABEL = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/;
/** What DNS allows is 253; the rest is for the record below the name and for files that are named after it. */
const LONGEST_NAME = 240;

/**
 * @param own names that belong to the host: its public name and its base domain; neither they nor names below the
 * base domain can be attached
 * @throws Problem invalid_field
 */
export function parseDomain(given: unknown, own: { publicHost: string; baseDomain: string }): string {
  if (typeof given !== 'string' || given.trim() === '') throw refused('is missing: send {"domain": "api.example.com"}');
  const text = given.trim().replace(/\.$/, '').toLowerCase();
  if (text.includes('*')) throw refused('cannot be a wildcard; attach each name by itself');
  if (/[/:@?#\s%\\]/.test(text)) throw refused('is a name alone: no scheme, port or path');
  const ascii = domainToASCII(text);
  if (ascii === '' || ascii.length > LONGEST_NAME) throw refused('is not a domain name');
  if (isIP(ascii) !== 0) throw refused('is an address; attach a name');
  const labels = ascii.split('.');
  if (labels.length < 2) throw refused('needs at least two labels, such as example.com');
  if (!labels.every((label) => LABEL.test(label)) || /^\d+$/.test(labels.at(-1) ?? '')) {
    throw refused('is not a domain name');
  }
  const { publicHost, baseDomain } = own;
  if (ascii === publicHost || ascii === baseDomain || ascii.endsWith(`.${baseDomain}`)) {
    throw refused('belongs to this host');
  }
  return ascii;
}

function refused(detail: string): Problem {
  return new Problem('invalid_field', `Not acceptable: /domain ${detail}.`, {
    errors: [{ pointer: '/domain', detail }],
  });
}
