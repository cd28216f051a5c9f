/**
 * POST /v1/speak: text to audio, charged by the character.
 */
import { answerHeaders } from '../answer.ts';
import { contentType, readJsonBody, readText, textMember } from '../body.ts';
import { checkCallback, deliver, toBase64 } from '../callback.ts';
import type { Visit } from '../context.ts';
import type { Speech } from '../engines/engine.ts';
import { SpeechFailure } from '../failure.ts';
import { heldFor, tooExpensive } from '../limit.ts';
import { priceOfText } from '../money.ts';
import { readSpeakOptions } from '../options/speak.ts';
import { isSsml, readSsml } from '../options/ssml.ts';
import { unknownOptions, warning } from '../warnings.ts';

/** Room for 2,000 characters in JSON, however they are escaped. */
const BODY_BYTES = 64 * 1024;

export async function speak(visit: Visit): Promise<Response> {
  const { request, settings, engines } = visit;
  const options = readSpeakOptions(visit.url.searchParams);
  checkCallback(options.callback, visit);
  const held = heldFor(request, '/v1/speak');
  const text =
    contentType(request) === 'text/plain'
      ? await readText(request, BODY_BYTES)
      : textMember(await readJsonBody(request, BODY_BYTES), 'text');
  const script = isSsml(text) ? readSsml(text) : undefined;
  if (script !== undefined && !engines.speak.readsSsml) throw noSsml(engines.speak.name);
  const characters = script?.characters ?? countCharacters(text);
  if (characters > settings.limits.speakCharacters) {
    throw new SpeechFailure(
      'PAYLOAD_TOO_LARGE',
      `The text has ${characters} characters; at most ${settings.limits.speakCharacters} at once. Cut it into parts.`,
    );
  }
  const charge = priceOfText(characters, settings.perMillionCharacters);
  if (charge > held) throw tooExpensive(`The text has ${characters} characters`, charge, held);
  const speech = await engines.speak.speak({
    text,
    parts: script?.parts,
    options,
    signal: AbortSignal.timeout(settings.limits.upstreamMs),
  });
  const warnings = [...speech.warnings, ...unknownOptions(options.unknown)].map(warning);
  const headers = {
    ...answerHeaders(visit, charge),
    'dg-model-name': speech.model,
    'dg-model-uuid': speech.model,
    'dg-char-count': String(characters),
    ...(warnings.length === 0 ? {} : { 'x-warnings': encodeURIComponent(JSON.stringify(warnings)) }),
  };
  const { callback } = options;
  if (callback !== undefined) {
    const body = await gather(speech);
    await deliver(visit, { callback, requestId: visit.requestId, contentType: speech.contentType, body });
    return Response.json({ request_id: visit.requestId }, { headers });
  }
  if (!wantsJson(request))
    return new Response(speech.body, { headers: { ...headers, 'content-type': speech.contentType } });
  return Response.json(
    {
      audio: toBase64(await gather(speech)),
      content_type: speech.contentType,
      metadata: {
        request_id: visit.requestId,
        model_name: speech.model,
        characters,
        ...(options.tags.length === 0 ? {} : { tags: options.tags }),
        ...(warnings.length === 0 ? {} : { warnings }),
      },
    },
    { headers },
  );
}

/** Read out, its marks would be words that were paid for. */
function noSsml(engine: string): SpeechFailure {
  return new SpeechFailure(
    'UNSUPPORTED_SSML',
    `The ${engine} engine reads no SSML: send the text alone, and speed for its rate.`,
  );
}

/** As people count: a character outside the basic plane is one. */
export function countCharacters(text: string): number {
  return [...text].length;
}

function wantsJson(request: Request): boolean {
  const accepted = (request.headers.get('accept') ?? '').toLowerCase();
  return accepted.includes('application/json') && !/audio\/|\*\/\*/.test(accepted);
}

async function gather({ body }: Speech): Promise<Uint8Array> {
  return body instanceof Uint8Array ? body : new Uint8Array(await new Response(body).arrayBuffer());
}
