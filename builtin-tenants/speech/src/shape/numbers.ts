/**
 * Spoken English numbers in digits, for `numerals` and `smart_format`. Words that make one number become one word: its
 * times are those of all of them, its confidence their mean. Pure, and linear in the number of words.
 */
import type { Word } from '../engines/engine.ts';

/** `plain`: digits only; `smart`: also dates, times, currency, percent, telephone numbers and separators. */
export type NumberStyle = 'plain' | 'smart';

const ONES = 'zero one two three four five six seven eight nine'.split(' ');
const TEENS = 'ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen'.split(' ');
const TENS = 'twenty thirty forty fifty sixty seventy eighty ninety'.split(' ');
const ORDINAL_ONES = 'zeroth first second third fourth fifth sixth seventh eighth ninth'.split(' ');
const ORDINAL_TEENS =
  'tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth'.split(' ');
const ORDINAL_TENS = 'twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth'.split(' ');
const MONTHS = 'january february march april may june july august september october november december'.split(' ');
const SCALES = new Map([
  ['thousand', 1e3],
  ['million', 1e6],
  ['billion', 1e9],
  ['trillion', 1e12],
]);
const CURRENCIES = new Map([
  ['dollar', '$'],
  ['dollars', '$'],
  ['euro', '€'],
  ['euros', '€'],
]);
/** Longer runs of digits are read, and left as they are, in parts. */
const MOST_DIGITS = 32;

/** What was found at a place: so many words, and how they are written. */
interface Found {
  count: number;
  text: string;
}

interface Cardinal {
  count: number;
  value: number;
  /** Digits behind the point. */
  decimals: string;
  ordinal: boolean;
  /** Made of more than one word, or written in digits already. */
  certain: boolean;
}

/** @param words with their punctuation where it was heard: a number ends at a comma or full stop */
export function writeNumbers(words: Word[], style: NumberStyle): Word[] {
  const reader = new Reader(words);
  const written: Word[] = [];
  for (let at = 0; at < words.length; ) {
    const found = reader.find(at, style);
    const part = words.slice(at, at + (found?.count ?? 1));
    written.push(...(found === undefined ? part : [asOne(part, found.text)]));
    at += part.length;
  }
  return written;
}

/** Several words as one that is written otherwise. */
export function asOne(part: Word[], text: string): Word {
  const [first] = part;
  const last = part.at(-1);
  const before = /^[^\p{L}\p{N}]*/u.exec(first?.punctuated ?? '')?.[0] ?? '';
  const after = /[^\p{L}\p{N}%]*$/u.exec(last?.punctuated?.replace(/^[ap]\.m\.$/i, '') ?? '')?.[0] ?? '';
  return {
    word: text.toLowerCase(),
    punctuated: `${before}${text}${text.endsWith(after) ? '' : after}`,
    start: first?.start ?? 0,
    end: last?.end ?? 0,
    confidence: part.reduce((sum, { confidence }) => sum + confidence, 0) / Math.max(1, part.length),
    ...(first?.speaker === undefined ? {} : { speaker: first.speaker }),
  };
}

class Reader {
  readonly #bare: string[] = [];
  /** Whether a number may go on behind the word. */
  readonly #open: boolean[] = [];

  constructor(words: Word[]) {
    for (const { word, punctuated } of words) {
      this.#bare.push(word.toLowerCase());
      this.#open.push(!/[,.;:?!]["')\]]*$/.test(punctuated ?? '') || /^[ap]\.m\.$/i.test(punctuated ?? ''));
    }
  }

  find(at: number, style: NumberStyle): Found | undefined {
    const smart = style === 'smart';
    if (smart) {
      const found = this.#date(at) ?? this.#time(at);
      if (found !== undefined) return found;
    }
    const digits = this.#digits(at, smart);
    if (digits !== undefined) return digits;
    const year = this.#year(at);
    if (year !== undefined) return { count: year.count, text: String(year.value) };
    const number = this.#cardinal(at);
    if (number === undefined) return undefined;
    return (smart ? this.#unit(at, number) : undefined) ?? this.#alone(at, number, smart);
  }

  #alone(at: number, number: Cardinal, smart: boolean): Found | undefined {
    const { count, value, ordinal, certain } = number;
    // `one` is a pronoun as often as a number, `second` a time: in letters they are never wrong
    const least = ordinal || smart ? 10 : 2;
    if (value < least && !certain && !(value === 0 && !smart)) return undefined;
    if (count === 1 && /\d/.test(this.#bare[at] ?? '')) return undefined;
    if (ordinal) return { count, text: `${grouped(value, smart)}${ending(value)}` };
    return { count, text: written(number, smart) };
  }

  /** `twelve dollars and fifty cents`, `ten percent`. */
  #unit(at: number, number: Cardinal): Found | undefined {
    if (number.ordinal) return undefined;
    const next = at + number.count;
    const unit = this.#follows(next);
    if (unit === 'percent') return { count: number.count + 1, text: `${written(number, true)}%` };
    const sign = CURRENCIES.get(unit ?? '');
    if (sign !== undefined) {
      if (number.decimals === '') {
        const and = this.#follows(next + 1) === 'and' ? 1 : 0;
        const cents = this.#joined(next + 1) ? this.#cardinal(next + 1 + and) : undefined;
        const end = next + 1 + and + (cents?.count ?? 0);
        if (cents !== undefined && isCents(cents) && /^cents?$/.test(this.#follows(end) ?? ''))
          return { count: end + 1 - at, text: `${sign}${written(number, true)}.${pad(cents.value)}` };
      }
      return { count: number.count + 1, text: `${sign}${written(number, true)}` };
    }
    if (/^cents?$/.test(unit ?? '') && isCents(number))
      return { count: number.count + 1, text: `$0.${pad(number.value)}` };
    return undefined;
  }

  /** `march fifth twenty twenty six`, `march fifth`. */
  #date(at: number): Found | undefined {
    const month = this.#bare[at] ?? '';
    if (!MONTHS.includes(month) || !this.#joined(at + 1)) return undefined;
    const day = this.#small(at + 1) ?? this.#small(at + 1, true);
    if (day === undefined || day.value < 1 || day.value > 31) return undefined;
    const name = `${month.charAt(0).toUpperCase()}${month.slice(1)}`;
    const next = at + 1 + day.count;
    const year = this.#year(next) ?? this.#fullYear(next);
    if (year !== undefined) return { count: next + year.count - at, text: `${name} ${day.value}, ${year.value}` };
    // `may one`, `march two by two`: without a year only an ordinal is surely a day
    if (!day.ordinal) return undefined;
    return { count: next - at, text: `${name} ${day.value}${ending(day.value)}` };
  }

  #fullYear(at: number): { count: number; value: number } | undefined {
    const number = this.#cardinal(at);
    const fits = number !== undefined && !number.ordinal && number.value >= 1000 && number.value <= 2100;
    return fits && number.decimals === '' ? number : undefined;
  }

  /** `three thirty p m`, `nine a.m.` */
  #time(at: number): Found | undefined {
    const hour = this.#small(at);
    if (hour === undefined || hour.ordinal || hour.value < 1 || hour.value > 12) return undefined;
    const oh = /^(oh|o)$/.test(this.#follows(at + hour.count) ?? '') ? 1 : 0;
    const minute = this.#joined(at + hour.count) ? this.#small(at + hour.count + oh) : undefined;
    const isMinute = minute !== undefined && !minute.ordinal && minute.value < 60 && oh === (minute.value < 10 ? 1 : 0);
    const next = at + hour.count + (isMinute ? oh + minute.count : 0);
    const first = this.#follows(next)?.replaceAll('.', '') ?? '';
    const [, half, whole] = /^(?:([ap])|([ap])m)$/.exec(first) ?? [];
    const spelled = half !== undefined && this.#follows(next + 1) === 'm';
    if (whole === undefined && !spelled) return undefined;
    const count = next + (spelled ? 2 : 1) - at;
    const clock = `${hour.value}:${pad(isMinute ? minute.value : 0)}`;
    return { count, text: `${clock} ${(whole ?? half ?? '').toUpperCase()}M` };
  }

  /** Three and more digits one by one: `four one five`, `nine oh two one oh`. */
  #digits(at: number, smart: boolean): Found | undefined {
    let digits = '';
    let next = at;
    for (; digits.length < MOST_DIGITS; next++) {
      if (next > at && !this.#joined(next)) break;
      const word = this.#bare[next] ?? '';
      const digit = /^(oh|o)$/.test(word) && next > at ? 0 : ONES.indexOf(word);
      if (digit < 0) break;
      digits += digit;
    }
    // `five six thousand`: the last one belongs to what follows
    if (this.#follows(next) === 'hundred' || SCALES.has(this.#follows(next) ?? '')) return undefined;
    if (digits.length < 3) return undefined;
    const phone = /^(1?)(\d{3})(\d{3})(\d{4})$/.exec(digits);
    const [, country, area, office, line] = phone ?? [];
    if (!smart || phone === null) return { count: next - at, text: digits };
    return { count: next - at, text: `${country === '1' ? '+1 ' : ''}(${area}) ${office}-${line}` };
  }

  /** `nineteen eighty four`, `twenty oh five`, `twenty twenty six`. */
  #year(at: number): { count: number; value: number } | undefined {
    const word = this.#bare[at] ?? '';
    const century = word === 'twenty' ? 20 : TEENS.indexOf(word) + 10;
    if (century < 11 || !this.#joined(at + 1)) return undefined;
    const oh = /^(oh|o)$/.test(this.#bare[at + 1] ?? '') && this.#joined(at + 2) ? 1 : 0;
    const rest = this.#small(at + 1 + oh);
    if (rest === undefined || rest.ordinal || (oh === 1 ? rest.value > 9 : rest.value < 10)) return undefined;
    const count = 1 + oh + rest.count;
    const after = this.#follows(at + count) ?? '';
    if (after === 'hundred' || SCALES.has(after)) return undefined;
    return { count, value: century * 100 + rest.value };
  }

  #cardinal(at: number): Cardinal | undefined {
    const first = this.#bare[at] ?? '';
    const digits = /^(\d{1,12})(?:\.(\d{1,9}))?$/.exec(first.replaceAll(',', ''));
    if (digits !== null)
      return { count: 1, value: Number(digits[1]), decimals: digits[2] ?? '', ordinal: false, certain: true };
    let at2 = at;
    let value = 0;
    let below = Number.POSITIVE_INFINITY;
    let ordinal = false;
    for (;;) {
      const article =
        at2 === at && first === 'a' && /^(hundred|thousand|million|billion)$/.test(this.#follows(at + 1) ?? '');
      const group = article ? { count: 1, value: 1, ordinal: false } : this.#small(at2);
      if (group === undefined) break;
      let next = at2 + group.count;
      let sum = group.value;
      ordinal = group.ordinal;
      if (!ordinal && sum > 0 && sum < 100 && below > 100 && this.#follows(next) === 'hundred') {
        sum *= 100;
        next++;
        const and = this.#follows(next) === 'and' ? 1 : 0;
        const rest = this.#joined(next) && this.#joined(next + and) ? this.#small(next + and) : undefined;
        if (rest !== undefined) {
          sum += rest.value;
          next += and + rest.count;
          ordinal = rest.ordinal;
        }
      }
      const scale = ordinal ? undefined : SCALES.get(this.#follows(next) ?? '');
      if (at2 > at && (sum >= below || (scale ?? 1) >= below)) break;
      value += sum * (scale ?? 1);
      at2 = next + (scale === undefined ? 0 : 1);
      if (scale === undefined || ordinal || scale * sum >= Number.MAX_SAFE_INTEGER / 1000) break;
      below = scale;
      const and = this.#follows(at2) === 'and' ? 1 : 0;
      if (!this.#joined(at2) || !this.#joined(at2 + and)) break;
      const more = this.#small(at2 + and);
      if (more === undefined) break;
      if (and === 1) at2 += 1;
    }
    const count = at2 - at;
    if (count === 0) return undefined;
    const decimals = ordinal ? '' : this.#decimals(at2);
    const all = count + (decimals === '' ? 0 : decimals.length + 1);
    return { count: all, value, decimals, ordinal, certain: all > 1 };
  }

  #decimals(at: number): string {
    if (this.#follows(at) !== 'point' || !this.#joined(at + 1)) return '';
    let digits = '';
    for (let next = at + 1; digits.length < 9 && this.#joined(next); next++) {
      const word = this.#bare[next] ?? '';
      const digit = word === 'oh' ? 0 : ONES.indexOf(word);
      if (digit < 0) break;
      digits += digit;
    }
    return digits;
  }

  /** 0 to 99, also as an ordinal. @param digits numbers in digits only */
  #small(at: number, digits = false): { count: number; value: number; ordinal: boolean } | undefined {
    const word = this.#bare[at] ?? '';
    if (digits) {
      const [, number, suffix] = /^(\d{1,2})(st|nd|rd|th)?$/.exec(word) ?? [];
      return number === undefined ? undefined : { count: 1, value: Number(number), ordinal: suffix !== undefined };
    }
    const [tens, ones, hyphened] =
      /^([a-z]+)-([a-z]+)$/.exec(word) === null ? [word, '', false] : [...word.split('-'), true];
    const ten = TENS.indexOf(String(tens));
    if (ten >= 0) {
      const next = hyphened ? String(ones) : (this.#follows(at + 1) ?? '');
      const count = hyphened ? 1 : 2;
      const one = ONES.indexOf(next);
      if (one > 0) return { count, value: (ten + 2) * 10 + one, ordinal: false };
      const ordinal = ORDINAL_ONES.indexOf(next);
      if (ordinal > 0) return { count, value: (ten + 2) * 10 + ordinal, ordinal: true };
      return hyphened ? undefined : { count: 1, value: (ten + 2) * 10, ordinal: false };
    }
    for (const [list, base, step, ordinal] of [
      [ONES, 0, 1, false],
      [TEENS, 10, 1, false],
      [ORDINAL_ONES, 0, 1, true],
      [ORDINAL_TEENS, 10, 1, true],
      [ORDINAL_TENS, 20, 10, true],
    ] as const) {
      const index = list.indexOf(word);
      if (index >= 0) return { count: 1, value: base + index * step, ordinal };
    }
    return undefined;
  }

  /** The word there, where nothing ends before it. */
  #follows(at: number): string | undefined {
    return this.#joined(at) ? this.#bare[at] : undefined;
  }

  #joined(at: number): boolean {
    return at > 0 && at < this.#bare.length && this.#open[at - 1] === true;
  }
}

function written({ value, decimals }: Cardinal, smart: boolean): string {
  return decimals === '' ? grouped(value, smart) : `${grouped(value, smart)}.${decimals}`;
}

/** Years are below 10,000 in digits that nobody separates. */
function grouped(value: number, smart: boolean): string {
  return smart && value >= 10_000 ? value.toLocaleString('en-US') : String(value);
}

function isCents({ value, decimals, ordinal }: Cardinal): boolean {
  return value > 0 && value < 100 && decimals === '' && !ordinal;
}

function pad(value: number): string {
  return String(value).padStart(2, '0');
}

function ending(value: number): string {
  if (value % 100 >= 11 && value % 100 <= 13) return 'th';
  return ['th', 'st', 'nd', 'rd'][value % 10] ?? 'th';
}
