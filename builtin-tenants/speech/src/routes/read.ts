/**
 * POST /v1/read: what a text says, at a fixed price. The text may be in the body, at a URL, or spoken.
 */
import { answerJson } from '../answer.ts';
import { contentType, openAudio, openUrl, readJsonBody, readText, textMember } from '../body.ts';
import { checkCallback } from '../callback.ts';
import { paidRoute } from '../catalogue.ts';
import type { Visit } from '../context.ts';
import type { AudioSource } from '../engines/engine.ts';
import { SpeechFailure } from '../failure.ts';
import { callerOf } from '../limit.ts';
import { audioFor } from '../money.ts';
import { readListenOptions } from '../options/listen.ts';
import { type ReadOptions, readReadOptions } from '../options/read.ts';
import { isAudio } from '../remote.ts';
import { readableText } from '../shape/listen.ts';
import { unknownOptions, warning } from '../warnings.ts';
import { insightInfo } from './listen.ts';

export async function read(visit: Visit): Promise<Response> {
  const { settings, engines, requestId } = visit;
  const options = readReadOptions(visit.url.searchParams);
  checkCallback(options.callback, visit);
  const signal = AbortSignal.timeout(settings.limits.upstreamMs);
  // as it came: places in the answer count from its first character
  const text = await findText(visit, options, signal);
  if (text.trim() === '') throw new SpeechFailure('INVALID_BODY', 'There is no text to read.');
  const { language } = options;
  const { summary, topics, intents, sentiments, ...done } = await engines.read.read({
    text,
    language,
    options: options.insight,
    signal,
  });
  const warnings = [...done.warnings, ...unknownOptions(options.unknown)];
  const body = {
    metadata: {
      request_id: requestId,
      created: new Date().toISOString(),
      language: language ?? 'en',
      ...insightInfo(options, { summary, ...done }),
      ...(options.tags.length === 0 ? {} : { tags: options.tags }),
      ...(warnings.length === 0 ? {} : { warnings: warnings.map(warning) }),
    },
    results: {
      ...(summary === undefined ? {} : { summary }),
      ...(topics === undefined ? {} : { topics }),
      ...(intents === undefined ? {} : { intents }),
      ...(sentiments === undefined ? {} : { sentiments }),
    },
  };
  return await answerJson(visit, body, options.callback, undefined);
}

async function findText(visit: Visit, options: ReadOptions, signal: AbortSignal): Promise<string> {
  const { request, settings } = visit;
  const { textBytes } = settings.limits;
  const type = contentType(request);
  if (isAudio(type)) return await heard(visit, await openAudio(request, settings), options, signal);
  if (type.startsWith('text/')) return await readText(request, textBytes);
  const body = await readJsonBody(request, textBytes);
  if (body.url === undefined) return textMember(body, 'text');
  const content = await openUrl(textMember(body, 'url'), settings, settings.limits.audioBytes);
  if (isAudio(content.type)) return await heard(visit, content, options, signal);
  if (!/^(text\/|application\/(json|xhtml\+xml)$|$)/.test(content.type)) {
    await content.body.cancel();
    throw new SpeechFailure('REMOTE_CONTENT_ERROR', `The URL leads to ${content.type}: neither text nor audio.`);
  }
  const fetched = new Request('http://text/', {
    method: 'POST',
    headers: { 'content-type': content.fullType },
    body: content.body,
  });
  const text = await readText(fetched, textBytes).catch((error: unknown) => {
    throw content.broken.aborted ? content.broken.reason : error;
  });
  return /html/.test(content.type) ? withoutMarkup(text) : text;
}

/** Audio is read as far as the fixed price pays for hearing it. */
async function heard(
  visit: Visit,
  audio: AudioSource,
  { language }: ReadOptions,
  signal: AbortSignal,
): Promise<string> {
  const { settings, engines } = visit;
  const maxBillableMs = audioFor(paidRoute('/v1/read').price, settings.perSecond);
  const parameters = new URLSearchParams({ punctuate: 'true', ...(language === undefined ? {} : { language }) });
  const transcript = await engines.listen
    .listen({ audio, options: readListenOptions(parameters), maxBillableMs, caller: callerOf(visit.request), signal })
    .catch((error: unknown) => {
      if (!(error instanceof SpeechFailure) || error.code !== 'PAYMENT_LIMIT_EXCEEDED') throw error;
      throw new SpeechFailure(
        'PAYLOAD_TOO_LARGE',
        `${error.message} At most ${Math.floor(maxBillableMs / 1000)} s are read here: use /v1/listen with the same options.`,
      );
    });
  return transcript.kind === 'transcript' ? readableText(transcript) : transcriptOf(transcript.body);
}

function transcriptOf(body: Record<string, unknown>): string {
  const { results } = body as { results?: { channels?: { alternatives?: { transcript?: string }[] }[] } };
  return (results?.channels ?? []).map((channel) => channel.alternatives?.[0]?.transcript ?? '').join(' ');
}

/** In time that grows with the length alone: the page is a stranger's. */
function withoutMarkup(html: string): string {
  const shown = ['script', 'style', 'head'].reduce(withoutElements, html);
  // Behind the last bracket nothing is a tag; looked for from every open one, that alone would take quadratic time.
  const end = shown.lastIndexOf('>') + 1;
  return `${shown.slice(0, end).replace(/<[^>]*>/g, ' ')}${shown.slice(end)}`
    .replace(/&nbsp;/g, ' ')
    .replace(/&lt;/g, '<')
    .replace(/&gt;/g, '>')
    .replace(/&amp;/g, '&')
    .replace(/\s+/g, ' ');
}

/** Elements of one name with their content; one that is never closed stays. */
function withoutElements(html: string, name: string): string {
  const open = new RegExp(`<${name}\\b`, 'gi');
  const close = new RegExp(`</${name}>`, 'gi');
  let kept = '';
  let at = 0;
  for (let found = open.exec(html); found; found = open.exec(html)) {
    close.lastIndex = found.index;
    if (!close.test(html)) break;
    kept += `${html.slice(at, found.index)} `;
    at = close.lastIndex;
    open.lastIndex = at;
  }
  return kept + html.slice(at);
}
