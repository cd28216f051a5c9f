/** Takes a stream of server-sent events apart (WHATWG HTML, section 9.2) without changing a byte of them. */

/** Longest event, bytes. */
const LONGEST = 256 * 1024;
const [CR, LF] = [13, 10];

export interface StreamedEvent {
  bytes: Uint8Array;
  /** Readers are told of it: it has data. Comments and pauses are none of theirs. */
  hasData: boolean;
}

/** Names that the host itself sends to its payers. */
const OURS = /^payment-/;

export class EventReader {
  #rest: Buffer = Buffer.alloc(0);
  /** Where to look on in `#rest`: nothing before ends an event. */
  #at = 0;
  #lineStart = 0;

  /**
   * @returns what is complete by now; events that only the host may send are left out
   * @throws Error for an event that is too long
   */
  push(chunk: Uint8Array): StreamedEvent[] {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    const found: StreamedEvent[] = [];
    let start = 0;
    while (this.#at < this.#rest.length) {
      const byte = this.#rest[this.#at];
      if (byte !== CR && byte !== LF) {
        this.#at += 1;
        continue;
      }
      // What follows a CR says whether the line has ended with it.
      if (byte === CR && this.#at + 1 === this.#rest.length) break;
      const isBlank = this.#at === this.#lineStart;
      this.#at += byte === CR && this.#rest[this.#at + 1] === LF ? 2 : 1;
      this.#lineStart = this.#at;
      if (!isBlank) continue;
      const event = eventOf(this.#rest.subarray(start, this.#at));
      if (event) found.push(event);
      start = this.#at;
    }
    this.#rest = this.#rest.subarray(start);
    this.#at -= start;
    this.#lineStart -= start;
    if (this.#rest.length > LONGEST) throw new Error('an event is too long');
    return found;
  }
}

function eventOf(bytes: Uint8Array): StreamedEvent | undefined {
  const lines = Buffer.from(bytes)
    .toString('utf8')
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\r|\n/);
  const fields = lines.map((line) => /^([^:]*)(?::\s?(.*))?$/.exec(line) ?? []);
  if (fields.some(([, name, value = '']) => name === 'event' && OURS.test(value.trim()))) return undefined;
  return { bytes, hasData: fields.some(([, name]) => name === 'data') };
}
