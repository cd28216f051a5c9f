/** The `Date` field's value, made once a second. */
export class HttpDate {
  #second = 0;
  #text = '';

  now(): string {
    const second = Math.floor(Date.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#text = new Date(second * 1000).toUTCString();
    }
    return this.#text;
  }
}
