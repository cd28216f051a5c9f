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

/** Several that nobody pays for are one: a handler may send nothing but line ends. */
interface Part {
  pieces: Buffer[];
  hasData: boolean;
}

export class EventReader {
  /** Of the event that is not complete yet. */
  #pieces: Buffer[] = [];
  #size = 0;
  #lineIsEmpty = true;
  /** The chunk before ended with a CR, and with it a line: a LF that follows ends none. */
  #afterCr = false;

  /**
   * @returns what is complete by now; events that only the host may send are left out
   * @throws Error for an event that is too long
   */
  push(chunk: Uint8Array): StreamedEvent[] {
    const parts: Part[] = [];
    let start = 0;
    for (let index = this.#afterCr && chunk[0] === LF ? 1 : 0; index < chunk.length; index += 1) {
      const byte = chunk[index];
      if (byte !== CR && byte !== LF) {
        this.#lineIsEmpty = false;
        continue;
      }
      if (byte === CR && chunk[index + 1] === LF) index += 1;
      if (this.#lineIsEmpty) {
        addTo(parts, this.#taken(chunk.subarray(start, index + 1)));
        start = index + 1;
      }
      this.#lineIsEmpty = true;
    }
    if (chunk.length > 0) this.#afterCr = chunk.at(-1) === CR;
    this.#keep(chunk.subarray(start));
    return parts.map(({ pieces, hasData }) => ({ bytes: Buffer.concat(pieces), hasData }));
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

function addTo(parts: Part[], bytes: Buffer): void {
  const lines = bytes
    .toString('utf8')
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\r|\n/);
  const fields = lines.map((line) => {
    const colon = line.indexOf(':');
    return colon < 0 ? { name: line, value: '' } : { name: line.slice(0, colon), value: line.slice(colon + 1) };
  });
  if (fields.some(({ name, value }) => name === 'event' && OURS.test(value.trim()))) return;
  const hasData = fields.some(({ name }) => name === 'data');
  const last = parts.at(-1);
  if (last && !last.hasData && !hasData) last.pieces.push(bytes);
  else parts.push({ pieces: [bytes], hasData });
}
