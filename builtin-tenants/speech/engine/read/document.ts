/**
 * Text as the readers see it: sentences with their word positions, and the noun phrases and content words in each.
 */

import model from 'wink-eng-lite-web-model';
import winkNLP, { type ItemSentence } from 'wink-nlp';

/** A noun phrase. */
export interface Phrase {
  /** Lower case; the last word is a lemma. */
  key: string;
  head: string;
  words: number;
  /** Index of its first token in the sentence. */
  at: number;
}

export interface Token {
  text: string;
  partOfSpeech: string;
  lemma: string;
  stopWord: boolean;
}

export interface Sentence {
  text: string;
  /** Place in the whole text, in UTF-16 units: the first, and the one behind the last. */
  start: number;
  end: number;
  /** Positions among the words (separated by white space) of the whole text. */
  startWord: number;
  endWord: number;
  wordCount: number;
  tokens: Token[];
  phrases: Phrase[];
  /** Lemmas of the words that carry meaning. */
  content: Set<string>;
}

/** A piece of the answer, as Deepgram spells it. */
export interface Segment {
  text: string;
  start_word: number;
  end_word: number;
  /** Where it stands in the text, in UTF-16 units as JavaScript counts: the first, and the one behind the last. */
  start_offset: number;
  end_offset: number;
}

const nlp = winkNLP(model, ['sbd', 'pos']);
const { its } = nlp;

/** Heads that say nothing about what a text is about. */
const VAGUE = new Set(
  'thing things way lot one ones something anything everything nothing someone day time today tomorrow yesterday morning night hour hours minute minutes year years week month bit kind sort part half quarter'.split(
    ' ',
  ),
);
const DETERMINERS = new Set(
  'the a an this that these those my your his her its our their some any every each all no another other such same more most many much few own new next last first'.split(
    ' ',
  ),
);
const LONGEST_PHRASE = 3;

/**
 * Characters of one word that the model is shown. Its time grows with the cube of a word's length: 20,000 characters
 * without a space would keep the thread for minutes.
 */
const LONGEST_WORD = 200;

export function readDocument(text: string): Sentence[] {
  const sentences: Sentence[] = [];
  let words = 0;
  const { shown, originalPlace } = withoutLongWords(text);
  let at = 0;
  nlp
    .readDoc(shown)
    .sentences()
    .each((item: ItemSentence) => {
      const place = placeOf(item.out(), shown, at);
      at = place.end;
      const [start, end] = [originalPlace(place.start), originalPlace(place.end)];
      const trimmed = text.slice(start, end);
      const wordCount = trimmed.split(/\s+/).filter(Boolean).length;
      if (wordCount === 0) return;
      const collection = item.tokens();
      const texts = collection.out();
      const parts = collection.out(its.pos) as string[];
      // the package's types do not let its own `lemma` in
      const lemmas = collection.out(its.lemma as unknown as typeof its.pos) as string[];
      const stops = collection.out(its.stopWordFlag) as unknown as boolean[];
      const tokens = texts.map((token, index) => ({
        text: token,
        partOfSpeech: parts[index] ?? '',
        lemma: (lemmas[index] ?? token).toLowerCase(),
        stopWord: stops[index] ?? false,
      }));
      const content = tokens.filter((token) => /NOUN|PROPN|VERB|ADJ/.test(token.partOfSpeech) && !token.stopWord);
      sentences.push({
        text: trimmed,
        start,
        end,
        startWord: words,
        endWord: words + wordCount - 1,
        wordCount,
        tokens,
        phrases: phrasesOf(tokens),
        content: new Set(content.map((token) => token.lemma)),
      });
      words += wordCount;
    });
  return sentences;
}

/** The model gives white space back as it likes: only what is no white space is compared, from one place on. */
function placeOf(sentence: string, text: string, from: number): { start: number; end: number } {
  const characters = sentence.replace(/\s+/g, '');
  const skip = (at: number) => {
    let next = at;
    while (next < text.length && /\s/.test(text.charAt(next))) next++;
    return next;
  };
  const start = skip(from);
  let end = start;
  for (let index = 0; index < characters.length; index++) end = (index === 0 ? end : skip(end)) + 1;
  return { start, end: Math.min(end, text.length) };
}

/** @returns what the model is shown, and where a place in that lies in the text, asked in rising order */
function withoutLongWords(text: string): { shown: string; originalPlace: (at: number) => number } {
  const cuts: { at: number; characters: number }[] = [];
  let missing = 0;
  const shown = text.replace(/\S{200,}/g, (word, place: number) => {
    const characters = word.length - LONGEST_WORD;
    cuts.push({ at: place - missing + LONGEST_WORD, characters });
    missing += characters;
    return word.slice(0, LONGEST_WORD);
  });
  let [next, before] = [0, 0];
  return {
    shown,
    originalPlace(at) {
      for (let cut = cuts[next]; cut !== undefined && cut.at <= at; cut = cuts[++next]) before += cut.characters;
      return at + before;
    },
  };
}

export function segmentOf(sentence: Sentence): Segment {
  const { text, startWord, endWord, start, end } = sentence;
  return { text, start_word: startWord, end_word: endWord, start_offset: start, end_offset: end };
}

/** Runs of adjectives and nouns that end in a noun. */
function phrasesOf(tokens: Token[]): Phrase[] {
  const phrases: Phrase[] = [];
  let run: { token: Token; at: number }[] = [];
  const finish = () => {
    const phrase = phraseOf(run);
    if (phrase !== undefined) phrases.push(phrase);
    run = [];
  };
  tokens.forEach((token, at) => {
    const belongs = /^(ADJ|NOUN|PROPN)$/.test(token.partOfSpeech) && /^[A-Za-z][\w'-]*$/.test(token.text);
    if (belongs) run.push({ token, at });
    else finish();
  });
  finish();
  return phrases;
}

function phraseOf(run: { token: Token; at: number }[]): Phrase | undefined {
  const rest = [...run];
  while (rest.length > 0 && !/NOUN|PROPN/.test(rest.at(-1)?.token.partOfSpeech ?? '')) rest.pop();
  while (rest[0] !== undefined && startsEmpty(rest[0].token)) rest.shift();
  const [first] = rest;
  const last = rest.at(-1);
  if (first === undefined || last === undefined || VAGUE.has(last.token.lemma)) return undefined;
  const kept = rest.slice(-LONGEST_PHRASE);
  const key = kept.map(({ token }) => (token === last.token ? token.lemma : token.text.toLowerCase())).join(' ');
  if (!/[a-z]{3}/.test(key)) return undefined;
  return { key, head: last.token.lemma, words: kept.length, at: first.at };
}

function startsEmpty(token: Token): boolean {
  return DETERMINERS.has(token.text.toLowerCase()) || (token.stopWord && token.partOfSpeech === 'ADJ');
}
