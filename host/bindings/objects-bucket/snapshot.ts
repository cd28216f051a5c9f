/**
 * An object of a single box, as workerd's cluster mode (1.20261117.1) finds it in its bucket: a snapshot of its database,
 * whose owner has given it back. Seen in what it writes itself; the version of workerd is pinned, and a test has it open
 * what is written here.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGunzip, createGzip } from 'node:zlib';

/** Nobody has it, so whoever is asked first takes it. */
export const UNOWNED = Buffer.from('{"node":"","epoch":1,"from":1}');

/** Below the object's folder. The first one of the first epoch; numbers are inverted, so that the newest is the first. */
export const SNAPSHOT = 'snapshot/ze/ze';

/** Sizes are written as 64 bits; more than this is not put together in memory. */
export const MOST_BYTES = 1_073_741_824;

const HEADER_BYTES = 120;
/** Of a file, at a time. */
const PIECE = 1_048_576;

/** A database may take more than memory. @param file a SQLite file, with nothing left in its log */
export async function packSnapshot(file: string, to: string): Promise<void> {
  const { size } = await stat(file);
  const bytes = async function* () {
    yield header(size);
    yield* createReadStream(file, { highWaterMark: PIECE });
  };
  await pipeline(
    bytes,
    createGzip({ level: constants.Z_BEST_SPEED, chunkSize: PIECE }),
    createWriteStream(to, { mode: 0o600 }),
  );
}

/** Whether a snapshot that was made here has all of this file, and nothing else. */
export async function isSnapshotOf(file: string, snapshot: Buffer | Readable): Promise<boolean> {
  const handle = await open(file);
  try {
    const head = header((await handle.stat()).size);
    let at = 0;
    let isSame = true;
    const source = Buffer.isBuffer(snapshot) ? Readable.from([snapshot]) : snapshot;
    await pipeline(source, createGunzip({ chunkSize: PIECE }), async (pieces: AsyncIterable<Buffer>) => {
      for await (const piece of pieces) {
        const ofHead = head.subarray(at, at + piece.length);
        const own = Buffer.alloc(piece.length - ofHead.length);
        const { bytesRead } = await handle.read(own, 0, own.length, Math.max(0, at - head.length));
        isSame &&= bytesRead === own.length && piece.equals(Buffer.concat([ofHead, own]));
        at += piece.length;
      }
    });
    return isSame && at === head.length + (await handle.stat()).size;
  } finally {
    await handle.close();
  }
}

/** Of an alarm. @param at real time, ms */
export function alarmKey(namespace: string, id: string, at: number): string {
  const time = at.toString(16);
  const digits = String.fromCharCode('a'.charCodeAt(0) + time.length - 1);
  // Of an instance that never was, whose alarms the others therefore run.
  return `v1/alarms/${'0'.repeat(32)}/${digits}${time}/${namespace}/${id}/a1`;
}

export function objectFolder(namespace: string, id: string): string {
  return `v1/do/${namespace}/${id}`;
}

/** A Cap'n Proto message in one segment of 14 words: epoch 1, number 1, and one file, `db`, whose bytes follow. */
function header(bytes: number): Buffer {
  const message = Buffer.alloc(HEADER_BYTES);
  const words: [number, string][] = [
    [0, '000000000e000000'],
    // The root: four words of data, and a pointer.
    [8, '0000000004000100'],
    [16, '0100000001000000'],
    [40, '0100000000000000'],
    // A list of structs of five words and a pointer, one of them.
    [48, '0100000037000000'],
    [56, '0400000005000100'],
    [64, '0100000000000000'],
    // Its name.
    [104, '010000001a000000'],
    [112, '6462000000000000'],
  ];
  for (const [at, hex] of words) message.set(Buffer.from(hex, 'hex'), at);
  message.writeBigUInt64LE(BigInt(bytes), 72);
  return message;
}
