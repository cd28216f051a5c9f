import { describe, expect, it } from 'vitest';
import { SpeechFailure } from '../../../builtin-tenants/speech/src/failure.ts';
import { readListenOptions } from '../../../builtin-tenants/speech/src/options/listen.ts';
import { readReadOptions } from '../../../builtin-tenants/speech/src/options/read.ts';
import { readSpeakOptions } from '../../../builtin-tenants/speech/src/options/speak.ts';

const query = (text: string) => new URLSearchParams(text);

describe('options of /v1/listen', () => {
  it('reads repeated keys as lists', () => {
    const options = readListenOptions(query('tag=a&tag=b&custom_topic=x&custom_topic=y&extra=k:v:w&topics=true'));
    expect(options.tags).toEqual(['a', 'b']);
    expect(options.insight).toMatchObject({ customTopics: ['x', 'y'], topics: true });
    expect(options.extra).toEqual({ k: 'v:w' });
  });

  it('remembers what only some engines honour, and what nobody knows', () => {
    const options = readListenOptions(query('diarize=true&redact=pci&redact=ssn&numerals=false&colour=red&keyterm=a'));
    expect(options.special).toEqual(['diarize', 'keyterm', 'redact']);
    expect(options.unknown).toEqual(['colour']);
  });

  it('has the defaults of Deepgram', () => {
    expect(readListenOptions(query(''))).toMatchObject({
      utteranceSplit: 0.8,
      multichannel: false,
      special: [],
      unknown: [],
    });
  });

  it.each([
    'punctuate=yes',
    'utt_split=-1',
    'utt_split=1e9',
    'language=../../etc',
    'encoding=linear16',
    'encoding=cassette&sample_rate=8000',
    'encoding=mulaw&sample_rate=1',
    'encoding=mulaw&sample_rate=8000&channels=1.5',
    'summarize=maybe',
    'custom_topic_mode=loose',
    'callback=ftp://x',
    'callback=http://x&callback_method=GET',
    'extra=novalue',
    `custom_topic=${'x'.repeat(201)}`,
    Array.from({ length: 101 }, (_, at) => `custom_intent=${at}`).join('&'),
  ])('refuses %.60s', (text) => {
    expect(() => readListenOptions(query(text))).toThrow(SpeechFailure);
  });

  it('takes raw samples only with their rate, and needs no hint for files', () => {
    expect(readListenOptions(query('encoding=mulaw&sample_rate=8000')).raw).toEqual({
      encoding: 'mulaw',
      sampleRate: 8000,
      channels: 1,
    });
    expect(readListenOptions(query('encoding=flac')).raw).toBeUndefined();
  });
});

describe('options of /v1/speak and /v1/read', () => {
  it('refuse what is out of range', () => {
    expect(() => readSpeakOptions(query('speed=9'))).toThrow(SpeechFailure);
    expect(() => readSpeakOptions(query('encoding=midi'))).toThrow(SpeechFailure);
  });

  it('read needs something to do', () => {
    expect(() => readReadOptions(query('language=en'))).toThrow(/at least one/);
    expect(() => readReadOptions(query('topics=false'))).toThrow(/at least one/);
    expect(readReadOptions(query('summarize=v2')).insight.summarize).toBe(true);
  });
});
