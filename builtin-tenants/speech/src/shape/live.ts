/** Puts what was asked (`replace`, `numerals`, `smart_format`, `search`) into the messages of a live stream. */
import type { ListenOptions } from '../options/listen.ts';
import { formatted, type WireWord, wireWord } from './listen.ts';
import { searchTerms } from './terms.ts';

/** A channel of a `Results` message, as the engine writes it (engine/live/channel.ts). */
interface Channel {
  alternatives: { transcript: string; words: WireWord[]; languages?: string[] }[];
}

/** What was spoken, where the model tells. @param message of the engine */
export function languageOf(message: Record<string, unknown>): string | undefined {
  return message.type === 'Results' ? (message.channel as Channel).alternatives[0]?.languages?.[0] : undefined;
}

/** @param message of the engine; those that hold no words come back as they are */
export function withFormats(message: Record<string, unknown>, options: ListenOptions): Record<string, unknown> {
  const asks = options.replace.length > 0 || options.search.length > 0 || options.numerals || options.smartFormat;
  if (message.type !== 'Results' || !asks) return message;
  const { alternatives } = message.channel as Channel;
  const heard = (alternatives[0]?.words ?? []).map(({ punctuated_word, ...word }) => ({
    ...word,
    punctuated: punctuated_word,
  }));
  const search = options.search.length === 0 ? {} : { search: searchTerms(heard, options.search) };
  const channel = {
    ...search,
    alternatives: alternatives.map((alternative) => {
      const isWritten = options.smartFormat || alternative.words.some((word) => word.punctuated_word !== undefined);
      const words = formatted(heard, options, alternative.languages?.[0]).map((word) => wireWord(word, isWritten));
      const transcript = words.map((word) => word.punctuated_word ?? word.word).join(' ');
      return { ...alternative, transcript, words };
    }),
  };
  return { ...message, channel };
}
