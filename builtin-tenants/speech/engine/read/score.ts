/**
 * How scores and names are written in answers.
 */
export function roundScore(value: number): number {
  return Number(value.toFixed(6));
}

export function titleCase(text: string): string {
  return text.replace(/(^|\s)\S/g, (letter) => letter.toUpperCase());
}
