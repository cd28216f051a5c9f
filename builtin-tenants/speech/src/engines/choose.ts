/**
 * Which engine serves which operation, from the settings.
 */
import type { Engines } from '../context.ts';
import type { EngineName, Settings } from '../settings.ts';
import { ChatEngine } from './chat.ts';
import { DeepgramEngine } from './deepgram.ts';
import { EmbeddedEngine } from './embedded.ts';
import { OpenaiEngine } from './openai.ts';

/** @param measures whether the engine process runs and can measure audio for the remote engines */
export function chooseEngines(settings: Settings, measures: boolean): Engines {
  const embedded = new EmbeddedEngine(settings.engineUrl);
  const measuring = measures ? embedded : undefined;
  const deepgram = new DeepgramEngine(settings.deepgram, measuring);
  const openai = new OpenaiEngine(settings.openai, measuring);
  const hearing = { deepgram, openai, embedded } satisfies Record<EngineName, unknown>;
  const reading = { deepgram, openai: new ChatEngine(settings.openai), embedded };
  return {
    listen: hearing[settings.listenEngine],
    speak: hearing[settings.speakEngine],
    read: reading[settings.readEngine],
  };
}
