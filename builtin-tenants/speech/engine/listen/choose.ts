/**
 * Decides at start which recognizer transcribes, from the settings and from what is installed.
 */
import type { Settings } from '../settings.ts';
import { findPocketsphinx } from './pocketsphinx.ts';
import { openSherpaOnnx } from './sherpa-onnx.ts';
import type { Transcriber } from './transcriber.ts';
import { openWhisperCpp } from './whisper-cpp.ts';

/** Said to callers and on the health page where nothing can transcribe. */
export const HOW_TO_GET_ONE =
  'No transcription engine is installed. The operator can install a model (turnpike speech install), or Debian’s pocketsphinx and pocketsphinx-en-us, or give the speech tenant a DEEPGRAM_API_KEY or OPENAI_BASE_URL.';

export type Choice = { transcriber: Transcriber } | { fix: string };

export async function chooseTranscriber({ engine, model, program, threads }: Settings['listen']): Promise<Choice> {
  try {
    const kind = engine === 'auto' && model !== '' ? kindOfModel(model) : engine;
    switch (kind) {
      case 'whisper.cpp':
        return { transcriber: await openWhisperCpp(model, program, threads) };
      case 'sherpa-onnx':
        return { transcriber: await openSherpaOnnx(model, program, threads) };
      case 'none':
        return { fix: HOW_TO_GET_ONE };
      default: {
        const transcriber = await findPocketsphinx(program);
        return transcriber === undefined ? { fix: HOW_TO_GET_ONE } : { transcriber };
      }
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown error';
    return { fix: `The transcription engine that the operator chose cannot be used: ${reason}.` };
  }
}

/** whisper.cpp's models are one file, sherpa-onnx's a folder. */
function kindOfModel(model: string): 'whisper.cpp' | 'sherpa-onnx' {
  return /\.(bin|gguf)$/.test(model) ? 'whisper.cpp' : 'sherpa-onnx';
}
