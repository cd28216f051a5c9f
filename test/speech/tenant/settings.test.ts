import { describe, expect, it, vi } from 'vitest';
import { checkUrl, fetchRemote } from '../../../builtin-tenants/speech/src/remote.ts';
import { readSettings } from '../../../builtin-tenants/speech/src/settings.ts';

describe('settings', () => {
  it('take the embedded engine unless another one is configured', () => {
    expect(readSettings({})).toMatchObject({
      listenEngine: 'embedded',
      speakEngine: 'embedded',
      readEngine: 'embedded',
    });
    expect(readSettings({ DEEPGRAM_API_KEY: 'k' })).toMatchObject({ listenEngine: 'deepgram', readEngine: 'deepgram' });
    expect(readSettings({ OPENAI_BASE_URL: 'http://10.0.0.5:8000/v1' })).toMatchObject({
      listenEngine: 'openai',
      readEngine: 'embedded',
      openai: { baseUrl: 'http://10.0.0.5:8000' },
    });
    expect(readSettings({ DEEPGRAM_API_KEY: 'k', SPEAK_ENGINE: 'embedded' })).toMatchObject({
      listenEngine: 'deepgram',
      speakEngine: 'embedded',
    });
  });

  it.each([
    [{ LISTEN_ENGINE: 'siri' }, 'LISTEN_ENGINE'],
    [{ OPENAI_BASE_URL: 'ftp://secret' }, 'OPENAI_BASE_URL'],
    [{ LISTEN_USD_PER_SECOND: 'secret' }, 'LISTEN_USD_PER_SECOND'],
    [{ MAX_AUDIO_BYTES: '-secret' }, 'MAX_AUDIO_BYTES'],
    [{ PAY_OFFERS: '{secret' }, 'PAY_OFFERS'],
  ])('refuse %j by name, without the value', (env, name) => {
    expect(() => readSettings(env)).toThrow(name);
    expect(() => readSettings(env)).not.toThrow(/secret/);
  });

  it('close what the operator opened for this service to callers', () => {
    const { privateHosts } = readSettings({ OPENAI_BASE_URL: 'http://whisper.lan:8000', DEEPGRAM_API_KEY: 'k' });
    for (const url of ['http://whisper.lan:8000/x', 'http://speech-engine.internal/', 'http://other.internal./']) {
      expect(() => checkUrl(url, privateHosts)).toThrow(/not public/);
    }
    expect(checkUrl('https://example.com/a b', privateHosts)).toBe('https://example.com/a%20b');
  });
});

it('an address that the host refuses is told as not public, not as an answer of its server', async () => {
  const refused = new Response(null, {
    status: 403,
    headers: { 'proxy-status': 'turnpike; error=destination_ip_prohibited' },
  });
  const fetched = vi.spyOn(globalThis, 'fetch').mockResolvedValue(refused);
  const limits = { maxBytes: 1, privateHosts: new Set<string>(), signal: new AbortController().signal };
  await expect(fetchRemote('http://10.0.0.1/talk.mp3', limits)).rejects.toThrow('that host is not public');
  fetched.mockRestore();
});
