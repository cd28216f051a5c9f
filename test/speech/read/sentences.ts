/** Sentences whose sentiment is known, to train on and to measure with. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../../..');

export interface Known {
  text: string;
  sentiment: 'negative' | 'positive' | 'neutral';
}

/**
 * A thousand sentences of reviews, half of them positive: "Sentiment Labelled Sentences" (Kotzias et al., 2015, CC BY 4.0),
 * as the package `sentiment` has them.
 */
export function reviews(of: 'amazon' | 'imdb' | 'yelp'): Known[] {
  const file = path.join(ROOT, `node_modules/sentiment/test/fixtures/${of}.json`);
  const found = JSON.parse(readFileSync(file, 'utf8')) as { text: string; class: 0 | 1 }[];
  return found
    .filter(({ text }) => /\S/.test(text))
    .map(({ text, class: kind }) => ({ text, sentiment: kind === 1 ? 'positive' : 'negative' }));
}

/** Sentences that feel nothing: of the comments in this project's sources. */
export function ownComments(): Known[] {
  const sources = readdirSync(path.join(ROOT, 'host'), { recursive: true, encoding: 'utf8' }).sort();
  return sources
    .filter((file) => file.endsWith('.ts') && !file.includes('generated'))
    .flatMap((file) => readFileSync(path.join(ROOT, 'host', file), 'utf8').match(/\/\*\*[\s\S]*?\*\//g) ?? [])
    .flatMap((comment) => neutral(comment.replace(/^\s*\/?\*+\/?/gm, '').replace(/\*\/$/, '')));
}

/** Whole sentences of prose, without code. */
export function neutral(text: string): Known[] {
  return text
    .replace(/```[\s\S]*?```/g, ' ')
    .replace(/\s+/g, ' ')
    .split(/(?<=[.!?])\s+(?=[A-Z])/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => /^[A-Z][^`<>|{}[\]#*_=\\/()-]{25,160}\.$/.test(sentence))
    .map((sentence) => ({ text: sentence, sentiment: 'neutral' }));
}

const WHO = [
  'I',
  'We',
  'My sister',
  'The manager',
  'Anna',
  'Two of the guests',
  'The man at the desk',
  'Our neighbor',
  'They',
];
const DID = [
  'bought a ticket',
  'ordered the soup',
  'sent the parcel',
  'received the letter',
  'called the office',
  'moved to another street',
  'read the first chapter',
  'booked a table for four',
  'asked for the address',
  'opened the account',
  'changed the battery',
  'watched the second part',
  'paid by card',
  'took the bus',
  'stayed for two nights',
  'met a colleague',
  'wrote the report',
  'signed the form',
  'looked at the map',
  'made coffee',
];
const WHEN = [
  'on Monday',
  'at nine in the morning',
  'last week',
  'before lunch',
  'in March',
  'after the meeting',
  'yesterday',
  'from the station',
  'at the shop next to the bank',
  'with the usual form',
];
const PLAIN = [
  'The store opens at eight and closes at six.',
  'The phone has two cameras and a glass back.',
  'The film was made in Spain and is two hours long.',
  'The restaurant is on the corner of the second street.',
  'It comes in black and in white.',
  'The menu has fish, rice and salad.',
  'The box is thirty centimeters wide.',
  'Could you tell me which bus goes to the airport?',
  'I would like to change my address.',
  'Please send me the invoice for October.',
  'The hotel has forty rooms on three floors.',
  'What time does the next train leave?',
  'The course starts in September.',
  'The office is closed on Sundays.',
];

/** Sentences of every day that feel nothing, made of parts. */
export function everyday(): Known[] {
  const made = WHO.flatMap((who, first) =>
    DID.map((did, second) => `${who} ${did} ${WHEN[(first * 7 + second * 3) % WHEN.length]}.`),
  );
  return [...made, ...PLAIN].map((text) => ({ text, sentiment: 'neutral' }));
}
