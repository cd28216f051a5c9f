/** Text that comes in pieces, such as a language model's, cut into sentences as soon as they are whole. Pure. */

/** Longer sentences are cut at a space. */
const LONGEST = 400;

export class Sentences {
  #text = '';

  get length(): number {
    return this.#text.length;
  }

  /** @returns what can be spoken now */
  push(text: string): string[] {
    this.#text += text;
    const whole: string[] = [];
    for (;;) {
      // a full stop counts when something follows it: it may be the middle of a number
      const end = /[.!?…。！？]["')\]]*\s/.exec(this.#text);
      const at = end ? end.index + end[0].length : this.#text.length > LONGEST ? this.#cut() : 0;
      if (at === 0) return whole;
      for (const piece of this.#take(at)) whole.push(piece);
    }
  }

  /** @returns the rest */
  flush(): string[] {
    return this.#take(this.#text.length);
  }

  clear(): void {
    this.#text = '';
  }

  #cut(): number {
    const space = this.#text.lastIndexOf(' ', LONGEST);
    return space > 0 ? space + 1 : LONGEST;
  }

  /** Sentences may be longer than what is spoken at once. */
  #take(at: number): string[] {
    const pieces: string[] = [];
    let taken = this.#text.slice(0, at);
    this.#text = this.#text.slice(at);
    while (taken.length > LONGEST) {
      const space = taken.lastIndexOf(' ', LONGEST);
      const end = space > 0 ? space + 1 : LONGEST;
      pieces.push(taken.slice(0, end));
      taken = taken.slice(end);
    }
    pieces.push(taken);
    return pieces.filter((piece) => piece.trim() !== '');
  }
}
