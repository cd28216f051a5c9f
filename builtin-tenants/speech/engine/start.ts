/**
 * For the supervisor: runs the engine as a child process, and starts it again with growing pauses when it dies.
 * The child gets its settings on standard input and nothing from the environment; it ends when that closes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { SettingsInput } from './settings.ts';

/** The section `speech` of the host's configuration, as far as it concerns the engine. */
export interface SpeechConfiguration {
  listenEngine: 'auto' | 'pocketsphinx' | 'whisper.cpp' | 'sherpa-onnx' | 'none';
  listenModel: string;
  listenProgram: string;
  /** 0: half of the processors. */
  listenJobs: number;
  listenWaiting: number;
  speakEngine: 'auto' | 'espeak-ng' | 'flite';
  speakVoice: string;
  maxAudioSeconds: number;
}

/** @param place socket to listen on (its name must be `speech-engine.sock`) and folder for audio while it is worked on */
export function engineSettings(
  configuration: SpeechConfiguration,
  place: { socket: string; spool: string },
): SettingsInput {
  const { listenJobs, listenWaiting, listenEngine, listenModel, listenProgram } = configuration;
  return {
    ...place,
    listen: {
      engine: listenEngine,
      model: listenModel,
      program: listenProgram,
      waiting: listenWaiting,
      ...(listenJobs === 0 ? {} : { jobs: listenJobs }),
    },
    speak: { engine: configuration.speakEngine, voice: configuration.speakVoice },
    limits: { audioSeconds: configuration.maxAudioSeconds },
  };
}

export interface EngineLog {
  info(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

export interface EngineProcess {
  /** Whether it listens now. */
  running(): boolean;
  /** Whether it has listened since the host started. */
  hasRun(): boolean;
  pid(): number | undefined;
  restarts(): number;
  /** Ends it within two seconds. */
  stop(): Promise<void>;
}

const ENTRY = fileURLToPath(new URL('main.ts', import.meta.url));
const PAUSE_MS = { first: 500, most: 30_000 };
/** A process that lived this long begins again with the shortest pause. */
const HEALTHY_MS = 60_000;
const STOP_WITHIN_MS = 2_000;

/** Answers at once: the engine takes one or two seconds to load its voices, and calls before that get a 503. */
export function startSpeechEngine(settings: SettingsInput, log: EngineLog): EngineProcess {
  let child: ChildProcess | undefined;
  let listening = false;
  let hasRun = false;
  let restarts = 0;
  let pause = PAUSE_MS.first;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  function start(): void {
    const started = performance.now();
    const current = spawn(process.execPath, [ENTRY], { stdio: ['pipe', 'pipe', 'inherit'], env: {} });
    child = current;
    lowerPriority(current.pid);
    // it may be dead already: its exit is what counts
    current.stdin.on('error', () => {});
    current.stdin.write(`${JSON.stringify(settings)}\n`);
    createInterface({ input: current.stdout }).once('line', () => {
      listening = true;
      hasRun = true;
      log.info({ pid: current.pid }, 'the speech engine listens');
    });
    current.once('error', (err) => log.error({ err }, 'the speech engine could not be started'));
    current.once('close', (code, signal) => {
      listening = false;
      if (stopped) return;
      if (performance.now() - started > HEALTHY_MS) pause = PAUSE_MS.first;
      log.error({ code, signal, againInMs: pause }, 'the speech engine died; starting it again');
      timer = setTimeout(start, pause);
      pause = Math.min(PAUSE_MS.most, pause * 2);
      restarts++;
    });
  }

  start();
  return {
    running: () => listening,
    hasRun: () => hasRun,
    pid: () => child?.pid,
    restarts: () => restarts,
    async stop() {
      stopped = true;
      clearTimeout(timer);
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'close');
      const kill = setTimeout(() => child?.kill('SIGKILL'), STOP_WITHIN_MS);
      child.stdin?.end();
      await ended;
      clearTimeout(kill);
    },
  };
}

/** About a third of the weight of a tenant's process: speech is patient. */
function lowerPriority(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, 5);
  } catch {
    // it ended already
  }
}
