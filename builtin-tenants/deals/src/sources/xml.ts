/** The boundary for XML of strangers: no DOCTYPE, no entities beyond XML's own, bounded depth and number of elements. */
import { SaxesParser } from 'saxes';

const DEEPEST = 40;
const MOST_ELEMENTS = 2_000_000;
const MOST_ATTRIBUTES = 50;
const LONGEST_TEXT = 262_144;
/** Characters that are read before others get their turn. */
const PIECE = 65_536;

export class HostileXml extends Error {}

/**
 * Calls back for every element with its local name (prefix kept as `g:price`), when it ends. Reads a piece of the
 * document for each step.
 * @throws HostileXml
 */
export function* readElements(
  xml: string,
  handler: {
    open?(name: string, depth: number, attributes: Record<string, string>): void;
    close(name: string, text: string, depth: number): void;
  },
): Generator<void> {
  const parser = new SaxesParser();
  const texts: string[] = [];
  let elements = 0;
  let attributes = 0;
  parser.on('doctype', () => {
    throw new HostileXml('the document has a DOCTYPE');
  });
  parser.on('error', (error) => {
    throw new HostileXml(`the document is not XML: ${error.message.slice(0, 200)}`);
  });
  parser.on('attribute', () => {
    if (++attributes > MOST_ATTRIBUTES) throw new HostileXml('an element has too many attributes');
  });
  parser.on('opentag', ({ name, attributes: named }) => {
    attributes = 0;
    elements += 1;
    if (texts.length >= DEEPEST) throw new HostileXml(`the document is nested deeper than ${DEEPEST}`);
    if (elements > MOST_ELEMENTS) throw new HostileXml('the document has too many elements');
    texts.push('');
    handler.open?.(name, texts.length, named as Record<string, string>);
  });
  const add = (text: string) => {
    if (texts.length === 0) return;
    const whole = texts[texts.length - 1] + text;
    if (whole.length > LONGEST_TEXT) throw new HostileXml('an element has too much text');
    texts[texts.length - 1] = whole;
  };
  parser.on('text', add);
  parser.on('cdata', add);
  parser.on('closetag', ({ name }) => handler.close(name, (texts.pop() ?? '').trim(), texts.length + 1));
  for (let at = 0; at < xml.length; at += PIECE) {
    parser.write(xml.slice(at, at + PIECE));
    yield;
  }
  parser.close();
}
