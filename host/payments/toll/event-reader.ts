/** Takes a stream of server-sent events apart (WHATWG HTML, section 9.2) without changing a byte of them. */

/** Longest event, bytes. */
const LONGEST = 256 * 1024;
/** Pieces of an event that are kept apart: a handler may send it byte by byte. */
const MOST_PIECES = 1_024;
const [CR, LF] = [13, 10];

export interface StreamedEvent {
  bytes: Uint8Array;
  /** Readers are told of it: it has data. Comments and pauses are none of theirs. */
  hasData: boolean;
}

/** Names that the host itself sends to its payers. */
const OURS = /^payment-/;

export class EventReader {
  /** Of the event that is not complete yet. */
  #pieces: Buffer[] = [];
  #size = 0;
  #lineIsEmpty = true;
  /** The last byte was a CR: what follows says whether the line has ended with it. */
  #afterCr = false;

  /**
   * @returns what is complete by now; events that only the host may send are left out
   * @throws Error for an event that is too long
   */
  push(chunk: Uint8Array): StreamedEvent[] {
    const found: StreamedEvent[] = [];
    let start = 0;
    const endLine = (end: number) => {
      const isBlank = this.#lineIsEmpty;
      this.#lineIsEmpty = true;
      if (!isBlank) return;
      const event = eventOf(this.#taken(chunk.subarray(start, end)));
      if (event) found.push(event);
      start = end;
    };
    for (const [index, byte] of chunk.entries()) {
      if (this.#afterCr) {
        this.#afterCr = false;
        endLine(byte === LF ? index + 1 : index);
        if (byte === LF) continue;
      }
      if (byte === CR) this.#afterCr = true;
      else if (byte === LF) endLine(index + 1);
      else this.#lineIsEmpty = false;
    }
    this.#keep(chunk.subarray(start));
    return found;
  }

  #keep(piece: Uint8Array): void {
    if (piece.length === 0) return;
    this.#size += piece.length;
    if (this.#size > LONGEST) throw new Error('an event is too long');
    this.#pieces.push(Buffer.from(piece));
    if (this.#pieces.length > MOST_PIECES) this.#pieces = [Buffer.concat(this.#pieces)];
  }

  #taken(last: Uint8Array): Buffer {
    const bytes = Buffer.concat([...this.#pieces, last]);
    this.#pieces = [];
    this.#size = 0;
    return bytes;
  }
}

function eventOf(bytes: Buffer): StreamedEvent | undefined {
  const lines = bytes
    .toString('utf8')
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\r|\n/);
  const fields = lines.map((line) => {
    const colon = line.indexOf(':');
    return colon < 0 ? { name: line, value: '' } : { name: line.slice(0, colon), value: line.slice(colon + 1) };
  });
  if (fields.some(({ name, value }) => name === 'event' && OURS.test(value.trim()))) return undefined;
  return { bytes, hasData: fields.some(({ name }) => name === 'data') };
}
