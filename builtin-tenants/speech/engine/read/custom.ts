/**
 * Finds the topics and intents that the caller asked for: a sentence has one if it shares half of its content words.
 */
import { readDocument, type Sentence } from './document.ts';
import { roundScore } from './score.ts';

const NEEDED_SHARE = 0.5;

export function findCustom(sentence: Sentence, asked: string[]): { name: string; score: number }[] {
  return asked.flatMap((name) => {
    const wanted = contentOf(name);
    const shared = [...wanted].filter((lemma) => sentence.content.has(lemma)).length;
    const score = shared / (wanted.size || 1);
    return score >= NEEDED_SHARE ? [{ name, score: roundScore(score) }] : [];
  });
}

const parsed = new Map<string, Set<string>>();

/** Asked for once per sentence: the last hundred are remembered, which is as many as a call may name. */
function contentOf(name: string): Set<string> {
  const known = parsed.get(name);
  if (known !== undefined) return known;
  const content = readDocument(name)[0]?.content ?? new Set<string>();
  if (parsed.size >= 100) parsed.clear();
  parsed.set(name, content);
  return content;
}
