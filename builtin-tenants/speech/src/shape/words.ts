/**
 * How a word is spelled in answers: `word` bare and lower case, `punctuated_word` as it is written.
 */
export function bareWord(text: string): string {
  return text.toLowerCase().replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}%]+$/gu, '');
}
