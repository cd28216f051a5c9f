/** Whether a caller is a browser that shows a page: `accept` names HTML, and ahead of JSON. `*` alone is no browser. */
export function prefersHtml(accept: string | null | undefined): boolean {
  if (!accept || accept.length > 1_000 || !/text\/html/i.test(accept)) return false;
  let html = 0;
  let json = 0;
  for (const range of accept.toLowerCase().split(',')) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim());
    const given = parameters.find((parameter) => parameter.startsWith('q='));
    const quality = given === undefined ? 1 : Number(given.slice(2));
    if (!(quality >= 0 && quality <= 1)) return false;
    if (type === 'text/html' && quality > json) html = quality;
    // Named before HTML with the same weight, JSON comes first.
    else if (/^application\/(?:[\w.-]+\+)?json$/.test(type) && quality > html) json = quality;
  }
  return html > 0 && html > json;
}
