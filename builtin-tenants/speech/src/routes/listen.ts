/**
 * POST /v1/listen: audio to words, charged by the second.
 */
import { answerJson } from '../answer.ts';
import { openAudio } from '../body.ts';
import { checkCallback } from '../callback.ts';
import type { Visit } from '../context.ts';
import type { FinishedAnswer, Insight, Transcript } from '../engines/engine.ts';
import { SpeechFailure } from '../failure.ts';
import { callerOf, heldFor, tooExpensive } from '../limit.ts';
import { audioFor, priceOfAudio } from '../money.ts';
import { wantsInsight } from '../options/insight.ts';
import { type ListenOptions, readListenOptions } from '../options/listen.ts';
import { detectsLanguage, formatWarnings, readableText, shapeResults, tellsSpeakers } from '../shape/listen.ts';
import { unknownOptions, warning } from '../warnings.ts';

export async function listen(visit: Visit): Promise<Response> {
  const { request, settings } = visit;
  const options = readListenOptions(visit.url.searchParams);
  checkCallback(options.callback, visit);
  const held = heldFor(request, '/v1/listen');
  const signal = AbortSignal.timeout(settings.limits.upstreamMs);
  const heard = await hear(visit, options, audioFor(held, settings.perSecond), signal).catch((error: unknown) => {
    throw withPrice(error, settings.perSecond, held);
  });
  const body = heard.kind === 'finished' ? heard.body : await answerOf(visit, options, heard, signal);
  return await answerJson(visit, body, options.callback, priceOfAudio(heard.billableMs, settings.perSecond));
}

/** Opens the audio of the request and has it transcribed. */
export async function hear(
  { request, settings, engines }: Visit,
  options: ListenOptions,
  maxBillableMs: number,
  signal: AbortSignal,
): Promise<Transcript | FinishedAnswer> {
  const audio = await openAudio(request, settings);
  return await engines.listen.listen({ audio, options, maxBillableMs, caller: callerOf(request), signal });
}

function withPrice(error: unknown, perSecond: number, held: number): unknown {
  if (!(error instanceof SpeechFailure) || error.code !== 'PAYMENT_LIMIT_EXCEEDED') return error;
  const billableMs = Number(error.extra.billable_ms);
  return tooExpensive(error.message.replace(/\.$/, ''), priceOfAudio(billableMs, perSecond), held);
}

async function answerOf(visit: Visit, options: ListenOptions, heard: Transcript, signal: AbortSignal): Promise<object> {
  const results = shapeResults(heard, options, () => crypto.randomUUID());
  const insight = wantsInsight(options.insight) ? await insightOf(visit, options, heard, signal) : undefined;
  const warnings = [...heard.warnings, ...warningsOf(options, heard), ...(insight?.warnings ?? [])];
  const { model } = heard;
  return {
    metadata: {
      transaction_key: 'deprecated',
      request_id: visit.requestId,
      sha256: heard.sha256,
      created: new Date().toISOString(),
      duration: heard.durationMs / 1000,
      channels: heard.channels.length,
      models: [model.name],
      model_info: { [model.name]: { name: model.name, version: model.version, arch: model.arch } },
      ...(options.tags.length === 0 ? {} : { tags: options.tags }),
      ...(Object.keys(options.extra).length === 0 ? {} : { extra: options.extra }),
      ...(insight === undefined ? {} : insightInfo(options, insight)),
      ...(warnings.length === 0 ? {} : { warnings: warnings.map(warning) }),
    },
    results: {
      ...results,
      ...(insight?.summary === undefined ? {} : { summary: { result: 'success', short: insight.summary.text } }),
      ...(insight?.topics === undefined ? {} : { topics: insight.topics }),
      ...(insight?.intents === undefined ? {} : { intents: insight.intents }),
      ...(insight?.sentiments === undefined ? {} : { sentiments: insight.sentiments }),
    },
  };
}

async function insightOf(
  visit: Visit,
  options: ListenOptions,
  heard: Transcript,
  signal: AbortSignal,
): Promise<Insight> {
  return await visit.engines.read.read({
    text: readableText(heard),
    language: heard.language,
    options: options.insight,
    signal,
  });
}

/** `summary_info` and its like, for what was asked. */
export function insightInfo({ insight }: Pick<ListenOptions, 'insight'>, done: Insight): Record<string, object> {
  const info = { model_uuid: done.model, input_tokens: done.words, output_tokens: 0 };
  return {
    ...(insight.summarize
      ? { summary_info: { ...info, output_tokens: (done.summary?.text ?? '').split(/\s+/).filter(Boolean).length } }
      : {}),
    ...(insight.sentiment ? { sentiment_info: info } : {}),
    ...(insight.topics ? { topics_info: info } : {}),
    ...(insight.intents ? { intents_info: info } : {}),
  };
}

function warningsOf(options: ListenOptions, heard: Transcript): string[] {
  const { model, punctuates, language } = heard;
  const warnings: string[] = [];
  if (options.model !== undefined && options.model !== model.name) {
    warnings.push(`model=${options.model.slice(0, 60)}: transcribed by ${model.name}`);
  }
  if (!punctuates) {
    for (const [name, asked] of [
      ['punctuate', options.punctuate],
      ['smart_format', options.smartFormat],
    ] as const) {
      if (asked) warnings.push(`${name}: ${model.name} hears no punctuation`);
    }
    if (options.paragraphs) warnings.push(`paragraphs: cut at pauses, because ${model.name} hears no punctuation`);
  }
  if (options.detectLanguage && !detectsLanguage(heard)) {
    warnings.push(`detect_language: ${model.name} does not detect languages`);
  }
  warnings.push(...formatWarnings(options, language));
  // what an engine does, or says itself why not
  const isTold = (name: string) =>
    heard.warnings.some((text) => text.startsWith(`${name}:`)) || (name === 'diarize' && tellsSpeakers(heard));
  const others = options.special.filter((name) => !isTold(name));
  warnings.push(...others.map((name) => `${name}: not supported by ${model.name}`));
  return [...warnings, ...unknownOptions(options.unknown)];
}
