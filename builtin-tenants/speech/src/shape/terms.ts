/**
 * Terms that a caller looks for (`search`) or wants written otherwise (`replace`): found by their words, not by sound.
 */
import type { Word } from '../engines/engine.ts';
import { asOne } from './numbers.ts';
import { bareWord } from './words.ts';

/** Without `by` the term is left out. */
export interface Replacement {
  find: string;
  by: string;
}

export interface SearchResult {
  query: string;
  hits: { confidence: number; start: number; end: number; snippet: string }[];
}

/** The first replacement that fits at a place counts; what was written is not looked at again. */
export function replaceTerms(words: Word[], replacements: Replacement[]): Word[] {
  const terms = replacements.map(({ find, by }) => ({ bare: bareWords(find), by }));
  const written: Word[] = [];
  for (let at = 0; at < words.length; ) {
    const term = terms.find(({ bare }) => isAt(words, at, bare));
    const part = words.slice(at, at + (term?.bare.length ?? 1));
    if (term === undefined) written.push(...part);
    else if (term.by !== '') written.push(asOne(part, term.by));
    at += part.length;
  }
  return written;
}

export function searchTerms(words: Word[], queries: string[]): SearchResult[] {
  return queries.map((query) => {
    const bare = bareWords(query);
    const hits = words.flatMap((_, at) => {
      if (!isAt(words, at, bare)) return [];
      const part = words.slice(at, at + bare.length);
      const { start, end, confidence } = asOne(part, query);
      return [{ confidence, start, end, snippet: part.map(({ word }) => word).join(' ') }];
    });
    return { query, hits };
  });
}

function bareWords(text: string): string[] {
  return text.split(/\s+/).map(bareWord).filter(Boolean);
}

function isAt(words: Word[], at: number, term: string[]): boolean {
  return term.length > 0 && term.every((word, index) => words[at + index]?.word.toLowerCase() === word);
}
