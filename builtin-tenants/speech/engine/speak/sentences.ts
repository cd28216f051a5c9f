/**
 * Cuts text into pieces that are spoken one after the other, so that the first sound leaves before the last word is made.
 */

/** Longer sentences are cut at a comma or a space near this many characters. */
const LONGEST = 240;

/** Nothing shorter than this is spoken alone for the sake of a quick start. */
const SHORTEST_START = 15;

const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' });

/** @returns pieces in order; joined with single spaces they are the text again, white space aside */
export function cutSentences(text: string): string[] {
  const pieces: string[] = [];
  for (const { segment } of segmenter.segment(text)) {
    let rest = segment.replace(/\s+/g, ' ').trim();
    while (rest.length > LONGEST) {
      const cut = cutPosition(rest);
      pieces.push(rest.slice(0, cut).trim());
      rest = rest.slice(cut).trim();
    }
    if (rest !== '') pieces.push(rest);
  }
  return withQuickStart(pieces);
}

/** The first piece ends at the first comma, so that the first sound is soon made. */
function withQuickStart([first = '', ...others]: string[]): string[] {
  if (first === '') return [];
  const comma = first.slice(SHORTEST_START).search(/[,;:] /);
  if (comma < 0) return [first, ...others];
  const cut = SHORTEST_START + comma + 1;
  return [first.slice(0, cut), first.slice(cut).trim(), ...others];
}

function cutPosition(text: string): number {
  const window = text.slice(0, LONGEST);
  const clause = Math.max(...[', ', '; ', ': ', ' - '].map((mark) => window.lastIndexOf(mark)));
  if (clause > LONGEST / 3) return clause + 1;
  const space = window.lastIndexOf(' ');
  if (space > 0) return space;
  // no space at all: do not cut a surrogate pair in two
  return /[\uD800-\uDBFF]$/.test(window) ? LONGEST - 1 : LONGEST;
}
