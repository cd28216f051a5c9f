/**
 * SSML, as far as every local voice can do what it says (https://www.w3.org/TR/speech-synthesis11/): speak, p, s, break,
 * sub, say-as, prosody with a rate. This is where a caller's markup is checked; what is not in that list is refused by
 * name, because a voice that passes over it would say something else than what was paid for.
 */
import { SaxesParser } from 'saxes';
import { SpeechFailure } from '../failure.ts';

/** What is said one after the other. */
export type SpokenPart = { text: string; rate?: number } | { pauseMs: number };

export interface Script {
  parts: SpokenPart[];
  /** Of what is said, as it is written, markup aside: they are what is paid for. */
  characters: number;
}

/** A pause costs nothing: so it is bounded. */
const LONGEST_PAUSE_MS = 10_000;
const ALL_PAUSES_MS = 30_000;
const PARAGRAPH_MS = 500;
const MOST_PARTS = 200;
const DEEPEST = 16;

const STRENGTHS: Record<string, number> = {
  none: 0,
  'x-weak': 100,
  weak: 200,
  medium: 400,
  strong: 700,
  'x-strong': 1000,
};
/** From the slowest to the fastest that every voice does. */
const RATES: Record<string, number> = { 'x-slow': 0.7, slow: 0.85, medium: 1, default: 1, fast: 1.2, 'x-fast': 1.5 };
const RATE_RANGE = { least: 0.7, most: 1.5 };

/** What may be in what: the names of children, and of attributes. */
const INLINE = ['break', 'sub', 'say-as', 'prosody'];
const ELEMENTS: Record<string, { children: string[]; attributes: RegExp }> = {
  speak: { children: ['p', 's', ...INLINE], attributes: /^(version|xml:lang|xmlns(:\w+)?|xsi:schemaLocation)$/ },
  p: { children: ['s', ...INLINE], attributes: /^xml:lang$/ },
  s: { children: INLINE, attributes: /^xml:lang$/ },
  prosody: { children: ['p', 's', ...INLINE], attributes: /^rate$/ },
  break: { children: [], attributes: /^(time|strength)$/ },
  sub: { children: [], attributes: /^alias$/ },
  'say-as': { children: [], attributes: /^interpret-as$/ },
};

/** How a text is said, by `interpret-as`; undefined: it is no such text. */
const READINGS: Record<string, (text: string) => string | undefined> = {
  characters: spelled,
  'spell-out': spelled,
  digits: (text) => (/^[\d\s]+$/.test(text) ? text.match(/\d/g)?.join(' ') : undefined),
  telephone: (text) =>
    /^\+?[\d\s().-]*\d[\d\s().-]*$/.test(text)
      ? text
          .match(/\+|\d+/g)
          ?.map((group) => [...group].join(' '))
          .join(', ')
      : undefined,
  cardinal: number,
  number,
};

export function isSsml(text: string): boolean {
  return /^\s*<(\?xml\s|!doctype\s|!--|speak[\s>/])/i.test(text);
}

/** @throws SpeechFailure INVALID_BODY: no XML; UNSUPPORTED_SSML: what no voice here does */
export function readSsml(text: string): Script {
  const script = new ScriptBuilder();
  const parser = new SaxesParser();
  parser.on('error', ({ message }) => {
    throw new SpeechFailure('INVALID_BODY', `The SSML is no well-formed XML: ${message.slice(0, 100)}.`);
  });
  parser.on('doctype', () => {
    throw unsupported('a document type');
  });
  parser.on('processinginstruction', () => {
    throw unsupported('a processing instruction');
  });
  parser.on('opentag', ({ name, attributes }) => script.open(name, attributes));
  parser.on('closetag', () => script.close());
  parser.on('text', (data) => script.text(data));
  parser.on('cdata', (data) => script.text(data));
  parser.write(text.trim()).close();
  return script.done();
}

interface Frame {
  name: string;
  rate: number;
  attributes: Record<string, string>;
  /** Of break, sub and say-as, whose text counts as a whole. */
  content: string;
}

class ScriptBuilder {
  readonly #parts: SpokenPart[] = [];
  readonly #frames: Frame[] = [];
  /** Not a part yet: as it is said, and as it is written. */
  #said = '';
  #written = '';
  /** Before the next text, ms. */
  #gap = 0;
  #pauses = 0;
  #characters = 0;

  open(name: string, attributes: Record<string, string>): void {
    const parent = this.#frames.at(-1);
    const element = Object.hasOwn(ELEMENTS, name) ? ELEMENTS[name] : undefined;
    if (element === undefined) throw unsupported(`the element ${shown(name)}`);
    const allowed = parent === undefined ? ['speak'] : (ELEMENTS[parent.name]?.children ?? []);
    if (!allowed.includes(name)) throw unsupported(`${name} ${parent === undefined ? 'first' : `in ${parent.name}`}`);
    if (this.#frames.length >= DEEPEST) throw unsupported(`elements in each other more than ${DEEPEST} deep`);
    const other = Object.keys(attributes).find((one) => !element.attributes.test(one));
    if (other !== undefined) throw unsupported(`${name} with ${shown(other)}`);
    const rate = (parent?.rate ?? 1) * (name === 'prosody' ? rateOf(attributes.rate) : 1);
    if (rate < RATE_RANGE.least || rate > RATE_RANGE.most)
      throw unsupported(`a rate of ${rate.toFixed(2)} (${RATE_RANGE.least} to ${RATE_RANGE.most} of the usual are)`);
    if (name === 'break') this.#break(attributes);
    else if (name !== 'sub' && name !== 'say-as') this.#boundary(name);
    this.#frames.push({ name, rate, attributes, content: '' });
  }

  close(): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined) return;
    const { name, attributes, content } = frame;
    if (name === 'break') {
      if (content.trim() !== '') throw unsupported('text in break');
    } else if (name === 'sub') this.#say(needed(name, 'alias', attributes.alias));
    else if (name === 'say-as') this.#sayAs(needed(name, 'interpret-as', attributes['interpret-as']), content);
    else this.#boundary(name);
    this.#frames.pop();
  }

  text(data: string): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined) return;
    if (ELEMENTS[frame.name]?.children.length === 0) frame.content += data;
    else this.#say(data);
  }

  /** @throws SpeechFailure INVALID_BODY */
  done(): Script {
    if (this.#characters === 0) throw new SpeechFailure('INVALID_BODY', 'The SSML holds nothing to speak.');
    return { parts: this.#parts, characters: this.#characters };
  }

  #say(written: string, said = written): void {
    this.#written += written;
    this.#said += said;
  }

  #sayAs(how: string, content: string): void {
    const reading = Object.hasOwn(READINGS, how) ? READINGS[how] : undefined;
    if (reading === undefined) throw unsupported(`say-as ${shown(how)} (${Object.keys(READINGS).join(', ')} are)`);
    const said = reading(content.trim());
    if (said === undefined) throw unsupported(`${shown(content.trim())} as ${how}`);
    this.#say(content, said);
  }

  #break({ time, strength = 'medium' }: Record<string, string>): void {
    this.#boundary();
    const [, amount, unit] = /^\+?(\d{1,6}(?:\.\d{1,3})?)(ms|s)$/.exec(time ?? '') ?? [];
    const named = Object.hasOwn(STRENGTHS, strength) ? STRENGTHS[strength] : undefined;
    const ms = time === undefined ? named : Math.round(Number(amount) * (unit === 's' ? 1000 : 1));
    if (named === undefined || ms === undefined || Number.isNaN(ms))
      throw unsupported(`break with ${shown(time ?? strength)}`);
    if (ms > LONGEST_PAUSE_MS) throw unsupported(`a break of more than ${LONGEST_PAUSE_MS / 1000} s`);
    this.#pause(ms);
  }

  #pause(pauseMs: number): void {
    this.#pauses += pauseMs;
    if (this.#pauses > ALL_PAUSES_MS) throw unsupported(`breaks of more than ${ALL_PAUSES_MS / 1000} s together`);
    if (pauseMs > 0) this.#add({ pauseMs });
  }

  /** What was said so far is a part of its own. */
  #boundary(name?: string): void {
    const text = collapsed(this.#said);
    const rate = this.#frames.at(-1)?.rate ?? 1;
    this.#characters += [...collapsed(this.#written)].length;
    this.#said = '';
    this.#written = '';
    if (text !== '') {
      if (this.#parts.length > 0) this.#pause(this.#gap);
      this.#gap = 0;
      this.#add({ text, ...(rate === 1 ? {} : { rate }) });
    }
    if (name === 'p') this.#gap = PARAGRAPH_MS;
  }

  #add(part: SpokenPart): void {
    if (this.#parts.push(part) > MOST_PARTS) throw unsupported(`more than ${MOST_PARTS} parts`);
  }
}

function spelled(text: string): string | undefined {
  return /^[\p{L}\p{M}\d\s]+$/u.test(text) ? text.match(/[\p{L}\d]\p{M}*/gu)?.join(', ') : undefined;
}

function number(text: string): string | undefined {
  return /^-?\d{1,15}([.,]\d{1,15})*$/.test(text) ? text : undefined;
}

/** A name, a multiple (`0.8`), a share (`80%`) or a change (`-20%`). */
function rateOf(asked: string | undefined): number {
  const text = needed('prosody', 'rate', asked);
  const [, sign, amount, unit] = /^([+-]?)(\d{1,3}(?:\.\d{1,3})?)(%?)$/.exec(text) ?? [];
  if (amount === undefined || (sign !== '' && unit === '')) {
    const rate = Object.hasOwn(RATES, text) ? RATES[text] : undefined;
    if (rate === undefined) throw unsupported(`the rate ${shown(text)}`);
    return rate;
  }
  if (unit === '') return Number(amount);
  return sign === '' ? Number(amount) / 100 : 1 + Number(`${sign}${amount}`) / 100;
}

function needed(element: string, attribute: string, value: string | undefined): string {
  if (value === undefined || value.trim() === '') throw unsupported(`${element} without ${attribute}`);
  return value;
}

function collapsed(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

function shown(text: string): string {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

function unsupported(what: string): SpeechFailure {
  return new SpeechFailure(
    'UNSUPPORTED_SSML',
    `SSML: ${what} is not read here. Read are speak, p, s, break, sub, say-as and prosody with rate; leave the rest out.`,
  );
}
