/**
 * Tells what kind of file audio is from its first bytes, and knows which decoders may open it.
 * A file is only ever opened with the demuxer named here, so that a playlist or a script is never followed.
 */

export interface Container {
  /** Name for people and for `audio-decode`. */
  name: string;
  /** FFmpeg's demuxer, forced. */
  demuxer: string;
  /** Decoder of the `audio-decode` package, where it has one that works on a stream. */
  portable?: 'mp3' | 'flac' | 'opus' | 'oga' | 'm4a' | 'wav' | 'aac' | 'aiff' | 'caf' | 'webm' | 'amr';
}

/** Samples without a header, as `encoding`, `sample_rate` and `channels` describe them. */
export interface RawFormat {
  encoding: 'linear16' | 'linear32' | 'mulaw' | 'alaw';
  sampleRate: number;
  channels: number;
}

export const RAW_DEMUXERS: Record<RawFormat['encoding'], string> = {
  linear16: 's16le',
  linear32: 's32le',
  mulaw: 'mulaw',
  alaw: 'alaw',
};

const ascii = (head: Uint8Array, from: number, length: number) =>
  String.fromCharCode(...head.subarray(from, from + length));

/**
 * @param raw whether the caller says that these are samples without a header: then frames, which have no magic number of
 * their own, are not guessed at, because quiet samples begin like one (ff ff is -1)
 * @returns undefined for anything that is not on the list: playlists, text, images, archives, headerless samples
 */
export function recognizeContainer(head: Uint8Array, raw = false): Container | undefined {
  const start = ascii(head, 0, 4);
  const form = ascii(head, 8, 4);
  if ((start === 'RIFF' || start === 'RF64') && form === 'WAVE')
    return { name: 'wav', demuxer: 'wav', portable: 'wav' };
  if (start === 'FORM' && (form === 'AIFF' || form === 'AIFC')) {
    return { name: 'aiff', demuxer: 'aiff', portable: 'aiff' };
  }
  if (start === 'fLaC') return { name: 'flac', demuxer: 'flac', portable: 'flac' };
  if (start === 'OggS') return { name: 'ogg', demuxer: 'ogg', portable: includes(head, 'OpusHead') ? 'opus' : 'oga' };
  if (start === 'caff') return { name: 'caf', demuxer: 'caf', portable: 'caf' };
  if (ascii(head, 0, 5) === '#!AMR') return { name: 'amr', demuxer: 'amr', portable: 'amr' };
  if (ascii(head, 4, 4) === 'ftyp') return { name: 'mp4', demuxer: 'mov', portable: 'm4a' };
  if (head[0] === 0x1a && head[1] === 0x45 && head[2] === 0xdf && head[3] === 0xa3) {
    return { name: 'webm', demuxer: 'matroska', portable: 'webm' };
  }
  if (start === '.snd') return { name: 'au', demuxer: 'au' };
  if (ascii(head, 0, 3) === 'ID3') return { name: 'mp3', demuxer: 'mp3', portable: 'mp3' };
  return raw ? undefined : recognizeFrames(head);
}

/** MP3 without a tag, and AAC: a frame header that is possible. */
function recognizeFrames(head: Uint8Array): Container | undefined {
  const [first, second = 0, third = 0] = head;
  if (first !== 0xff || (second & 0xe0) !== 0xe0) return undefined;
  const layer = (second >> 1) & 3;
  if (layer === 0 && (second & 0xf0) === 0xf0) return { name: 'aac', demuxer: 'aac', portable: 'aac' };
  const version = (second >> 3) & 3;
  const possible = version !== 1 && layer !== 0 && third >> 4 !== 15 && ((third >> 2) & 3) !== 3;
  return possible ? { name: 'mp3', demuxer: 'mp3', portable: 'mp3' } : undefined;
}

function includes(head: Uint8Array, text: string): boolean {
  return ascii(head, 0, Math.min(head.length, 512)).includes(text);
}
