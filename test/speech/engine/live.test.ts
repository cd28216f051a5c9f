/** The parts of live streams that are pure: cutting audio into utterances, samples as they come. */
import { describe, expect, it } from 'vitest';
import { RawInput } from '../../../builtin-tenants/speech/engine/live/raw-input.ts';
import { type Cut, Segmenter } from '../../../builtin-tenants/speech/engine/live/segments.ts';
import { Sentences } from '../../../builtin-tenants/speech/src/live/pieces.ts';

const RATE = 16_000;
const silence = (seconds: number) => new Int16Array(seconds * RATE);
const tone = (seconds: number) =>
  Int16Array.from({ length: seconds * RATE }, (_, at) => 8000 * Math.sin((at * 2 * Math.PI * 300) / RATE));

/** Given in pieces of a length that fits no frame. */
function cut(segmenter: Segmenter, ...audio: Int16Array[]): Cut[] {
  const all = Int16Array.from(audio.flatMap((part) => [...part]));
  const cuts: Cut[] = [];
  for (let at = 0; at < all.length; at += 777) cuts.push(...segmenter.push(all.subarray(at, at + 777)));
  return cuts;
}

describe('utterances', () => {
  it('begin a little before the voice and end after the silence that was asked for', () => {
    const segmenter = new Segmenter(500);
    const cuts = cut(segmenter, silence(1), tone(1), silence(1));
    expect(cuts.map(({ kind }) => kind)).toEqual(['started', 'ended']);
    const [started, ended] = cuts;
    if (started?.kind !== 'started' || ended?.kind !== 'ended') throw new Error('other cuts');
    expect(started.at / RATE).toBeCloseTo(1, 1);
    expect(ended.utterance.start / RATE).toBeCloseTo(0.7, 1);
    expect((ended.utterance.start + ended.utterance.samples.length) / RATE).toBeCloseTo(2.5, 1);
    expect(ended.isEnd).toBe(true);
    expect(segmenter.position).toBe(3 * RATE);
  });

  it('are none where nobody speaks, or where it clicks', () => {
    const segmenter = new Segmenter(300);
    expect(cut(segmenter, silence(5), tone(0.02), silence(5))).toEqual([]);
    expect(segmenter.flush()).toBeUndefined();
  });

  it('are cut where they are too long, and nothing is lost or given twice', () => {
    const segmenter = new Segmenter(0);
    const cuts = cut(segmenter, tone(30)).flatMap((each) => (each.kind === 'ended' ? [each] : []));
    expect(cuts.length).toBeGreaterThan(1);
    expect(cuts.every(({ isEnd }) => !isEnd)).toBe(true);
    let at = cuts[0]?.utterance.start ?? -1;
    for (const { utterance } of cuts) {
      expect(utterance.start).toBe(at);
      at += utterance.samples.length;
    }
    const rest = segmenter.flush();
    expect(rest?.start).toBe(at);
    expect(at + (rest?.samples.length ?? 0)).toBe(30 * RATE);
  });
});

describe('samples without a header', () => {
  it('are put together across messages that cut through them, channels apart or mixed', () => {
    const bytes = Buffer.alloc(12);
    [100, -300, 200, -400, 300, -500].forEach((sample, at) => {
      bytes.writeInt16LE(sample, at * 2);
    });
    const read = (apart: boolean) => {
      const input = new RawInput({ encoding: 'linear16', sampleRate: RATE, channels: 2 }, apart);
      const parts = [bytes.subarray(0, 3), bytes.subarray(3, 7), bytes.subarray(7)].map((part) => input.push(part));
      return parts[0]?.map((_, channel) => parts.flatMap((part) => [...(part[channel] ?? [])]));
    };
    expect(read(true)).toEqual([
      [100, 200, 300],
      [-300, -400, -500],
    ]);
    expect(read(false)).toEqual([[-100, -100, -100]]);
  });

  it('of G.711 have its levels', () => {
    const levels = (encoding: 'mulaw' | 'alaw', ...codes: number[]) => [
      ...(new RawInput({ encoding, sampleRate: RATE, channels: 1 }, false).push(Buffer.from(codes))[0] ?? []),
    ];
    expect(levels('mulaw', 0xff, 0x7f, 0x80, 0x00)).toEqual([0, 0, 32124, -32124]);
    expect(levels('alaw', 0xd5, 0x55, 0xaa, 0x2a)).toEqual([8, -8, 32256, -32256]);
  });
});

describe('text that comes in pieces', () => {
  it('is spoken by the sentence, and the rest at a flush', () => {
    const sentences = new Sentences();
    expect(sentences.push('It costs 3.5')).toEqual([]);
    expect(sentences.push('0 dollars. And')).toEqual(['It costs 3.50 dollars. ']);
    expect(sentences.flush()).toEqual(['And']);
    expect(sentences.flush()).toEqual([]);
  });

  it('is cut where no sentence ends', () => {
    const pieces = new Sentences().push('word '.repeat(200));
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(400);
    expect(new Sentences().push('x'.repeat(1000)).every(({ length }) => length <= 400)).toBe(true);
  });
});
