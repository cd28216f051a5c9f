/** What a request says of the form in which it wants a file: conditions, ranges (RFC 9110, 13 and 14) and codings. */

export interface Wanted {
  ifNoneMatch: string;
  ifRange: string;
  /** undefined: the whole file. */
  range: string | undefined;
  authorized: boolean;
  acceptEncoding: string;
}

export type Coding = 'br' | 'gz';

/** Content codings, by the endings of their files. */
export const CODING_NAMES: Readonly<Record<Coding, string>> = { br: 'br', gz: 'gzip' };

const FIELDS = /^(accept-encoding|range|if-range|if-none-match|authorization):[\t ]*(.*)$/gim;

/** @param fields block of a request */
export function wanted(fields: string): Wanted {
  const found: Wanted = {
    ifNoneMatch: '',
    ifRange: '',
    range: undefined,
    authorized: false,
    acceptEncoding: '',
  };
  FIELDS.lastIndex = 0;
  for (let match = FIELDS.exec(fields); match; match = FIELDS.exec(fields)) {
    const value = (match[2] ?? '').trim();
    switch ((match[1] ?? '').toLowerCase()) {
      case 'accept-encoding':
        found.acceptEncoding += found.acceptEncoding === '' ? value : `,${value}`;
        break;
      case 'if-none-match':
        found.ifNoneMatch += found.ifNoneMatch === '' ? value : `,${value}`;
        break;
      case 'range':
        // Two of them are none that could be understood.
        found.range = found.range === undefined ? value : '';
        break;
      case 'if-range':
        found.ifRange = value;
        break;
      default:
        found.authorized = true;
    }
  }
  return found;
}

const MAX_REMEMBERED = 256;
const remembered = new Map<string, Coding[]>();

/** The codings that a caller takes, the best first. */
export function acceptedCodings(acceptEncoding: string): readonly Coding[] {
  const known = remembered.get(acceptEncoding);
  if (known) return known;
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.toLowerCase().split(',')) {
    const [name = '', ...parameters] = part.split(';').map((each) => each.trim());
    const quality = parameters.find((each) => each.startsWith('q='));
    weights.set(name === 'x-gzip' ? 'gzip' : name, quality === undefined ? 1 : Number(quality.slice(2)) || 0);
  }
  const codings = (['br', 'gz'] as const).filter((coding) => (weights.get(CODING_NAMES[coding]) ?? 0) > 0);
  if (remembered.size < MAX_REMEMBERED && acceptEncoding.length < 128) remembered.set(acceptEncoding, codings);
  return codings;
}
