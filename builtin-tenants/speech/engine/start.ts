/**
 * For the supervisor: runs the engine as a child process, and starts it again with growing pauses when it dies.
 * The child gets its settings on standard input, and from the environment only where compiled code is kept; it ends when
 * that closes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type FSWatcher, mkdirSync, watch } from 'node:fs';
import { setPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { IN_USE_FILES, type ModelShelf } from '../models/shelf.ts';
import type { SettingsInput } from './settings.ts';

/** The section `speech` of the host's configuration, as far as it concerns the engine. */
export interface SpeechConfiguration {
  listenEngine: 'auto' | 'pocketsphinx' | 'whisper.cpp' | 'sherpa-onnx' | 'none';
  listenModel: string;
  listenProgram: string;
  /** 0: half of the processors. */
  listenJobs: number;
  listenWaiting: number;
  speakEngine: 'auto' | 'espeak-ng' | 'flite' | 'sherpa-onnx';
  speakModel: string;
  speakVoice: string;
  maxAudioSeconds: number;
}

/**
 * @param place socket to listen on (its name must be `speech-engine.sock`) and folder for audio while it is worked on
 * @param installed paths of the models that are in use on the shelf; the configuration's own come first
 */
export function engineSettings(
  configuration: SpeechConfiguration,
  place: { socket: string; spool: string },
  installed: { hears?: string | undefined; help?: string[]; speak: string[] },
): SettingsInput {
  const { listenJobs, listenWaiting, listenEngine, listenModel, listenProgram } = configuration;
  const { speakEngine, speakModel, speakVoice } = configuration;
  const takesInstalled = listenEngine === 'auto' && listenModel === '';
  return {
    ...place,
    listen: {
      engine: listenEngine,
      model: takesInstalled ? (installed.hears ?? '') : listenModel,
      program: listenProgram,
      helpers: installed.help ?? [],
      waiting: listenWaiting,
      ...(listenJobs === 0 ? {} : { jobs: listenJobs }),
    },
    speak: {
      engine: speakEngine,
      voice: speakVoice,
      models: speakModel === '' ? installed.speak : [speakModel, ...installed.speak],
    },
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
/** On standard input: no new work, and the end once the present is done. */
const DRAIN = 'drain';

/**
 * Answers at once: the engine takes one or two seconds to load its voices, and calls before that get a 503.
 * @param settings read at each start
 * @param shelf where another model may come into use: the engine then ends what it works on and starts with that
 */
export function startSpeechEngine(settings: () => SettingsInput, log: EngineLog, shelf?: ModelShelf): EngineProcess {
  let started = '';
  let replaced = false;
  let child: ChildProcess | undefined;
  let listening = false;
  let hasRun = false;
  let restarts = 0;
  let pause = PAUSE_MS.first;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  function start(): void {
    const startedAt = performance.now();
    started = JSON.stringify(settings());
    replaced = false;
    const { NODE_COMPILE_CACHE } = process.env;
    const env = NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {};
    const current = spawn(process.execPath, [ENTRY], { stdio: ['pipe', 'pipe', 'inherit'], env });
    child = current;
    lowerPriority(current.pid);
    // it may be dead already: its exit is what counts
    current.stdin.on('error', () => {});
    current.stdin.write(`${started}\n`);
    createInterface({ input: current.stdout }).once('line', () => {
      listening = true;
      hasRun = true;
      log.info({ pid: current.pid }, 'the speech engine listens');
    });
    current.once('error', (err) => log.error({ err }, 'the speech engine could not be started'));
    current.once('close', (code, signal) => {
      listening = false;
      if (stopped) return;
      if (replaced) {
        log.info({}, 'the speech engine starts with another model');
        start();
        return;
      }
      if (performance.now() - startedAt > HEALTHY_MS) pause = PAUSE_MS.first;
      log.error({ code, signal, againInMs: pause }, 'the speech engine died; starting it again');
      timer = setTimeout(start, pause);
      pause = Math.min(PAUSE_MS.most, pause * 2);
      restarts++;
    });
  }

  function modelChanged(): void {
    if (replaced || stopped || JSON.stringify(settings()) === started) return;
    replaced = true;
    child?.stdin?.write(`${DRAIN}\n`);
  }

  start();
  const watcher = shelf && watchShelf(shelf, modelChanged, log);
  return {
    running: () => listening,
    hasRun: () => hasRun,
    pid: () => child?.pid,
    restarts: () => restarts,
    async stop() {
      stopped = true;
      watcher?.close();
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

function watchShelf(shelf: ModelShelf, changed: () => void, log: EngineLog): FSWatcher | undefined {
  try {
    mkdirSync(shelf.folder, { recursive: true });
    const watcher = watch(shelf.folder, { persistent: false }, (_, name) => {
      if (name !== null && IN_USE_FILES.includes(name)) changed();
    });
    watcher.on('error', (err) => log.error({ err }, 'another speech model is taken only after a restart'));
    return watcher;
  } catch (err) {
    log.error({ err }, 'another speech model is taken only after a restart');
    return undefined;
  }
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
