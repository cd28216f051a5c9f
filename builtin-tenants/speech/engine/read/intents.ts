/**
 * Intents per sentence: what the speaker wants to do or have done ("I would like to cancel my order" is "Cancel Order").
 */
import { findCustom } from './custom.ts';
import { type Segment, type Sentence, segmentOf } from './document.ts';
import { roundScore, titleCase } from './score.ts';

export interface IntentSegment extends Segment {
  intents: { intent: string; confidence_score: number }[];
}

/** Lemmas that announce a wish before the verb that names it. */
const CUE = /^(want|need|like|wish|hope|try|go|plan|will|would|can|could|please|let|help|ask|decide)$/;
const STRONG_CUE = /^(want|need|like)$/;
/** Verbs that name no intent of their own. */
const SKIPPED =
  /^(be|have|do|want|need|like|wish|hope|try|go|plan|will|would|can|could|let|get|say|think|know|make|may|might|must|should)$/;
/** How far a cue or an object may be from the verb, in tokens. */
const REACH = 4;

/** @param mode `strict`: only the caller's own intents */
export function findIntents(sentences: Sentence[], custom: string[], mode: 'extended' | 'strict'): IntentSegment[] {
  return sentences
    .map((sentence) => {
      const asked = findCustom(sentence, custom).map(({ name, score }) => ({ intent: name, confidence_score: score }));
      const own = mode === 'strict' ? undefined : ownIntent(sentence);
      return { ...segmentOf(sentence), intents: [...asked, ...(own === undefined ? [] : [own])] };
    })
    .filter((segment) => segment.intents.length > 0);
}

function ownIntent({ tokens, phrases }: Sentence): IntentSegment['intents'][number] | undefined {
  for (const [index, token] of tokens.entries()) {
    if (token.partOfSpeech !== 'VERB' || SKIPPED.test(token.lemma)) continue;
    const before = tokens.slice(Math.max(0, index - REACH), index);
    const cued = before.some(({ lemma }) => CUE.test(lemma));
    const imperative = index === 0 || (index === 1 && /^(please|ok|okay)$/i.test(tokens[0]?.text ?? ''));
    if (!cued && !imperative) continue;
    // what others do is no intent of the speaker
    if (before.some(({ text }) => /^(he|she|they|it)$/i.test(text))) continue;
    const object = phrases.find((phrase) => phrase.at > index && phrase.at - index <= REACH);
    if (object === undefined) continue;
    const strength = !cued ? 0.6 : before.some(({ lemma }) => STRONG_CUE.test(lemma)) ? 0.9 : 0.75;
    return { intent: titleCase(`${token.lemma} ${object.key}`), confidence_score: roundScore(strength) };
  }
  return undefined;
}
