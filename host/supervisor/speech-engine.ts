/** The speech engine, a process beside the tenant that asks for it; started where it is switched on. */
import path from 'node:path';
import type { Logger } from 'pino';
import { type EngineProcess, engineSettings, startSpeechEngine } from '../../builtin-tenants/speech/engine/start.ts';
import type { Config } from '../shared/config.ts';
import type { Folders } from './folders.ts';

export interface SpeechEngine {
  engine: EngineProcess;
  /** Opened for the tenant's fetch() under the name that the file's name gives: speech-engine.internal. */
  socket: string;
}

export function openSpeechEngine(config: Config, folders: Folders, log: Logger): SpeechEngine | undefined {
  if (!config.speech.engine) return undefined;
  const socket = path.join(folders.run, 'speech-engine.sock');
  const spool = path.join(folders.data, 'speech-spool');
  return { engine: startSpeechEngine(engineSettings(config.speech, { socket, spool }), log), socket };
}
