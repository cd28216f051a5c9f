/**
 * What the host reads of a connection on which methods are called: the frames of Cap'n Proto's RPC protocol (rpc.capnp,
 * capnproto 1.x), as far as it takes to count calls, and to let nothing but calls of methods through. It copies nothing,
 * and keeps at most the head of one message.
 */

/** Members of rpc.capnp's `Message`. */
const CALL = 2;
const RETURN = 3;
const FINISH = 4;
const BOOTSTRAP = 8;
/**
 * workerd's `EventDispatcher` (worker-interface.capnp, 1.20261117.1): whoever has it could also run `scheduled()`,
 * `queue()`, alarms and tails. `jsRpcSession` alone is what a service binding is for.
 */
const DISPATCHER = 0xf20697475ec1752dn;
const SESSION = 9;

/** Segments of a message at most: workerd sends one, and more where arguments are large. */
const MOST_SEGMENTS = 512;
/** Of a message's first segment as much is looked at: the call is described at its beginning. */
const LOOKED_AT = 512;

/** The other side says what no workerd says. */
export class ForeignMessage extends Error {}

export class RpcMessages {
  readonly #onSession: () => void;
  /** Questions of this side without an answer. */
  readonly #open = new Set<number>();
  /** What has come of the part that is being read. */
  #part: Buffer = Buffer.alloc(0);
  #wanted = 8;
  #state: 'count' | 'table' | 'head' = 'count';
  #segmentBytes = 0;
  #headBytes = 0;
  /** Bytes of the message that are passed over. */
  #skip = 0;

  #other: RpcMessages | undefined;

  /** @param onSession told for each event that begins */
  constructor(onSession: () => void) {
    this.#onSession = onSession;
  }

  /** The two sides of one connection: each answers the other's questions. */
  static pair(onSession: () => void): [RpcMessages, RpcMessages] {
    const calls = new RpcMessages(onSession);
    const callbacks = new RpcMessages(onSession);
    calls.#other = callbacks;
    callbacks.#other = calls;
    return [calls, callbacks];
  }

  /** Calls that have begun and are not answered. */
  get open(): number {
    return this.#open.size;
  }

  /** @throws ForeignMessage */
  read(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#skip > 0) {
        const passed = Math.min(this.#skip, rest.length);
        this.#skip -= passed;
        rest = rest.subarray(passed);
        continue;
      }
      const taken = Math.min(this.#wanted - this.#part.length, rest.length);
      this.#part =
        this.#part.length === 0 ? rest.subarray(0, taken) : Buffer.concat([this.#part, rest.subarray(0, taken)]);
      rest = rest.subarray(taken);
      if (this.#part.length < this.#wanted) {
        // The chunk's memory may be used again by whoever read it.
        this.#part = Buffer.from(this.#part);
        return;
      }
      this.#next(this.#part);
    }
  }

  /** One part is there. */
  #next(part: Buffer): void {
    if (this.#state === 'count') {
      const segments = part.readUInt32LE(0) + 1;
      if (segments > MOST_SEGMENTS) throw new ForeignMessage('a message of too many segments');
      this.#wanted = Math.ceil((4 + 4 * segments) / 8) * 8;
      this.#state = 'table';
      if (this.#wanted > 8) return;
    }
    if (this.#state === 'table') {
      const segments = part.readUInt32LE(0) + 1;
      this.#segmentBytes = 0;
      for (let index = 0; index < segments; index++) this.#segmentBytes += 8 * part.readUInt32LE(4 + 4 * index);
      const first = 8 * part.readUInt32LE(4);
      this.#headBytes = Math.min(first, LOOKED_AT);
      if (this.#headBytes < 8) throw new ForeignMessage('a message without a beginning');
      this.#expect('head', this.#headBytes);
      return;
    }
    this.#message(part);
    this.#skip = this.#segmentBytes - this.#headBytes;
    this.#expect('count', 8);
  }

  #expect(state: 'count' | 'head', wanted: number): void {
    this.#state = state;
    this.#wanted = wanted;
    this.#part = Buffer.alloc(0);
  }

  #message(head: Buffer): void {
    const root = struct(head, 0);
    const kind = root && root.words > 0 ? head.readUInt16LE(root.data) : undefined;
    if (!root || kind === undefined) throw new ForeignMessage('a message that cannot be read');
    if (kind !== CALL && kind !== RETURN && kind !== FINISH && kind !== BOOTSTRAP) return;
    const body = struct(head, root.pointers);
    if (!body || body.words < 1) throw new ForeignMessage('a call that cannot be read');
    const question = head.readUInt32LE(body.data);
    // A caller that does not wait any more says finish first; some answers are not followed by one.
    if (kind === FINISH) return void this.#open.delete(question);
    if (kind === RETURN) {
      if (this.#other) this.#other.#open.delete(question);
      return;
    }
    this.#open.add(question);
    if (kind !== CALL) return;
    if (body.words < 2) throw new ForeignMessage('a call of nothing');
    if (head.readBigUInt64LE(body.data + 8) !== DISPATCHER) return;
    if (head.readUInt16LE(body.data + 4) !== SESSION) throw new ForeignMessage('an event that is no call of a method');
    this.#onSession();
  }
}

/** Where a struct is that the pointer at `at` leads to; undefined where it is not within the head. */
function struct(head: Buffer, at: number): { data: number; words: number; pointers: number } | undefined {
  if (at + 8 > head.length) return undefined;
  const pointer = head.readInt32LE(at);
  if ((pointer & 3) !== 0) return undefined;
  const data = at + 8 + 8 * (pointer >> 2);
  const words = head.readUInt16LE(at + 4);
  const pointers = data + 8 * words;
  return data >= 8 && pointers <= head.length ? { data, words, pointers } : undefined;
}

/** A message that ends the connection, and tells the other side's code why. @param reason is an error's message there */
export function abortMessage(reason: string): Buffer {
  // The prefix makes it an Error for JavaScript; all else would be "internal error".
  const text = Buffer.from(`jsg.Error: ${reason}\0`);
  const textWords = Math.ceil(text.length / 8);
  const message = Buffer.alloc(8 + 8 * (6 + textWords));
  message.writeUInt32LE(6 + textWords, 4);
  const words = message.subarray(8);
  // Message: one word with the tag (abort = 1), one pointer.
  words.writeUInt16LE(1, 4);
  words.writeUInt16LE(1, 6);
  words.writeUInt16LE(1, 8);
  // Exception, right behind its pointer: one word, two pointers (reason, trace).
  words.writeUInt16LE(1, 20);
  words.writeUInt16LE(2, 22);
  // Text behind the two pointers: a list of bytes.
  words.writeInt32LE((1 << 2) | 1, 32);
  words.writeUInt32LE((text.length << 3) | 2, 36);
  text.copy(words, 48);
  return message;
}
