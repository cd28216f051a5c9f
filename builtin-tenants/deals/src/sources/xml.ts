/** The boundary for XML of strangers: no DOCTYPE, no entities beyond XML's own, bounded depth and number of elements. */
import { SaxesParser } from 'saxes';

const DEEPEST = 40;
const MOST_ELEMENTS = 2_000_000;

export class HostileXml extends Error {}

/**
 * Calls back for every element with its local name (prefix kept as `g:price`), when it ends.
 * @throws HostileXml
 */
export function readElements(
  xml: string,
  handler: {
    open?(name: string, depth: number, attributes: Record<string, string>): void;
    close(name: string, text: string, depth: number): void;
  },
): void {
  const parser = new SaxesParser();
  const texts: string[] = [];
  let elements = 0;
  parser.on('doctype', () => {
    throw new HostileXml('the document has a DOCTYPE');
  });
  parser.on('error', (error) => {
    throw new HostileXml(`the document is not XML: ${error.message.slice(0, 200)}`);
  });
  parser.on('opentag', ({ name, attributes }) => {
    elements += 1;
    if (texts.length >= DEEPEST) throw new HostileXml(`the document is nested deeper than ${DEEPEST}`);
    if (elements > MOST_ELEMENTS) throw new HostileXml('the document has too many elements');
    texts.push('');
    handler.open?.(name, texts.length, attributes as Record<string, string>);
  });
  const add = (text: string) => {
    if (texts.length > 0) texts[texts.length - 1] += text;
  };
  parser.on('text', add);
  parser.on('cdata', add);
  parser.on('closetag', ({ name }) => handler.close(name, (texts.pop() ?? '').trim(), texts.length + 1));
  parser.write(xml).close();
}
