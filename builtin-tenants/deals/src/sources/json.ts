/** The boundary for JSON of strangers: what a document becomes in memory is many times its text. */

const DEEPEST = 64;
const MOST_VALUES = 300_000;

/** @throws Error where it is no JSON, nested too deeply, or has too many values */
export function parseJson(text: string): unknown {
  const tokens = /"[^"\\]*(?:\\.?[^"\\]*)*(?:"|$)|[[\]{},]/gs;
  let depth = 0;
  let values = 0;
  for (let found = tokens.exec(text); found; found = tokens.exec(text)) {
    const [token] = found;
    if (token === '[' || token === '{') depth++;
    else if (token === ']' || token === '}') depth--;
    if (depth > DEEPEST) throw new Error(`the document is nested deeper than ${DEEPEST}`);
    if (token === ',' || token === '[' || token === '{') values++;
    if (values > MOST_VALUES) throw new Error(`the document has more than ${MOST_VALUES} values`);
  }
  return JSON.parse(text);
}
