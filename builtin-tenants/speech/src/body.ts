/**
 * The boundary for request bodies: JSON with a URL or a text, plain text, or audio. Checked here.
 */

import type { AudioSource } from './engines/engine.ts';
import { SpeechFailure } from './failure.ts';
import { counted, fetchRemote, mustBeAudio, type RemoteContent } from './remote.ts';
import type { Settings } from './settings.ts';

export function contentType(request: Request): string {
  return (request.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/**
 * In the charset that the content type names, or UTF-8.
 * @throws SpeechFailure INVALID_BODY, PAYLOAD_TOO_LARGE
 */
export async function readText(request: Request, maxBytes: number): Promise<string> {
  const tooLarge = () =>
    new SpeechFailure('PAYLOAD_TOO_LARGE', `The body is larger than ${maxBytes} bytes; send the text in parts.`);
  if (Number(request.headers.get('content-length') ?? 0) > maxBytes) throw tooLarge();
  const charset = charsetOf(request);
  const decoder = decoderOf(charset);
  let text = '';
  let bytes = 0;
  try {
    for await (const chunk of (request.body ?? new Blob([]).stream()) as AsyncIterable<Uint8Array>) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw tooLarge();
      text += decoder.decode(chunk, { stream: true });
    }
    return text + decoder.decode();
  } catch (error) {
    if (error instanceof SpeechFailure) throw error;
    throw new SpeechFailure('INVALID_BODY', `The body is not text in ${charset}.`, { cause: error });
  }
}

/** JSON has none (RFC 8259, section 11). */
function charsetOf(request: Request): string {
  const named = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(request.headers.get('content-type') ?? '')?.[1];
  return named === undefined || contentType(request) === 'application/json' ? 'UTF-8' : named;
}

function decoderOf(charset: string): InstanceType<typeof TextDecoder> {
  try {
    return new TextDecoder(charset, { fatal: true });
  } catch (cause) {
    throw new SpeechFailure('INVALID_BODY', `The charset ${charset.slice(0, 40)} is not known here; use UTF-8.`, {
      cause,
    });
  }
}

/** @throws SpeechFailure INVALID_BODY */
export async function readJsonBody(request: Request, maxBytes: number): Promise<Record<string, unknown>> {
  const text = await readText(request, maxBytes);
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // said below
  }
  throw new SpeechFailure('INVALID_BODY', 'The body is not a JSON object; send {"url": "…"} or {"text": "…"}.');
}

/** @throws SpeechFailure INVALID_BODY when the member is missing or not text */
export function textMember(body: Record<string, unknown>, name: string): string {
  const value = body[name];
  if (typeof value !== 'string' || value.trim() === '') {
    throw new SpeechFailure('INVALID_BODY', `The body needs a text member "${name}".`);
  }
  return value;
}

/**
 * Audio from the body itself, or from the URL in a JSON body.
 * @throws SpeechFailure INVALID_BODY, REMOTE_CONTENT_ERROR
 */
export async function openAudio(request: Request, settings: Settings): Promise<AudioSource> {
  const type = contentType(request);
  if (type === 'application/json') {
    const url = textMember(await readJsonBody(request, 64 * 1024), 'url');
    const content = await openUrl(url, settings, settings.limits.audioBytes);
    mustBeAudio(content.type);
    return content;
  }
  const length = Number(request.headers.get('content-length') ?? -1);
  if (request.body === null || length === 0) {
    throw new SpeechFailure('INVALID_BODY', 'The body is empty; send audio, or JSON such as {"url": "https://…"}.');
  }
  const { audioBytes } = settings.limits;
  const tooLarge = () => new SpeechFailure('PAYLOAD_TOO_LARGE', `The audio is larger than ${audioBytes} bytes.`);
  if (length > audioBytes) throw tooLarge();
  if (length > 0) return { body: request.body, type, length };
  const brokeOff = (cause: unknown) => new SpeechFailure('INVALID_BODY', 'The upload broke off; try again.', { cause });
  return { type, ...counted(request.body, audioBytes, { tooLarge, brokeOff }) };
}

export async function openUrl(url: string, settings: Settings, maxBytes: number): Promise<RemoteContent> {
  const { privateHosts, limits } = settings;
  return await fetchRemote(url, { maxBytes, privateHosts, signal: AbortSignal.timeout(limits.fetchMs) });
}
