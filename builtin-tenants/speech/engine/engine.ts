/**
 * The engine itself, without its HTTP: three lanes of work over one decoder, one recognizer and two sets of threads.
 */
import type { Readable } from 'node:stream';
import { Piscina } from 'piscina';
import { recognizeContainer } from './audio/container.ts';
import { Decoder, type Ffmpeg } from './audio/decode.ts';
import { openConfinement } from './confine.ts';
import { EngineFailure } from './failure.ts';
import { KeptAudio } from './kept-audio.ts';
import { Lane, type LaneState, type Place } from './lane.ts';
import { type Choice, chooseTranscriber } from './listen/choose.ts';
import { describeHelper, Helpers } from './listen/helpers.ts';
import { type ListenAnswer, type ListenRequest, type Measured, measure, transcribe } from './listen/listen.ts';
import { isInstalled, PACKAGE } from './listen/sherpa-onnx.ts';
import { openLiveRecognizer } from './live/recognizer.ts';
import { LiveStreams } from './live/streams.ts';
import { findProgram } from './programs.ts';
import type { ReadAnswer, ReadTask } from './read/thread.ts';
import { Refusals } from './refusals.ts';
import type { Settings } from './settings.ts';
import { describeVoiceIn, type VoiceModel } from './speak/sherpa-onnx-model.ts';
import { Speaker, type SpeakRequest, type SpeechSink } from './speak/speaker.ts';
import type { SpeakSetup } from './speak/thread.ts';
import { Spool, type SpooledAudio } from './spool.ts';

const READ_LONGEST_MS = 30_000;

export interface EngineHealth {
  listen: {
    ok: boolean;
    /** The model, and what runs it. */
    engine?: string;
    arch?: string;
    /** Models beside it: to tell speakers apart, to punctuate. */
    helpers: string[];
    fix?: string;
    decoder: string;
    live: LaneState;
    isolation: string;
    queue: LaneState;
  };
  speak: {
    ok: boolean;
    engines: string[];
    /** Voices that the operator installed, the preferred one first. */
    voices: { name: string; languages: string[] }[];
    fix?: string;
    queue: LaneState;
  };
  read: { ok: boolean; engine: string; queue: LaneState };
  memoryBytes: number;
}

/** Measured audio, kept for `GET /audio/<id>`. */
export interface KeptFacts {
  id: string;
  sha256: string;
  bytes: number;
  /** Such as `wav`; `raw` for samples without a header. */
  container: string;
  durationMs: number;
  billableMs: number;
  channels: number;
}

export class Engine {
  readonly #settings: Settings;
  readonly #spool: Spool;
  readonly #decoder: Decoder;
  readonly #isolation: 'bubblewrap' | 'none';
  readonly #choice: Choice;
  readonly #voices: string[];
  readonly #installed: VoiceModel[];
  readonly #helpers: Helpers;
  readonly #listening: Lane;
  readonly #speaking: Lane;
  readonly #reading: Lane;
  readonly #readers: Piscina;
  readonly #speakers: Piscina;
  readonly #speaker: Speaker;
  readonly #refusals: Refusals;
  readonly kept: KeptAudio;
  readonly live: LiveStreams;

  private constructor(parts: {
    settings: Settings;
    spool: Spool;
    decoder: Decoder;
    isolation: 'bubblewrap' | 'none';
    choice: Choice;
    voices: string[];
    installed: VoiceModel[];
    helpers: Helpers;
    readers: Piscina;
    speakers: Piscina;
    ffmpeg: string | undefined;
    refusals: Refusals;
    live: LiveStreams;
  }) {
    const { settings } = parts;
    this.#settings = settings;
    this.#spool = parts.spool;
    this.#decoder = parts.decoder;
    this.#isolation = parts.isolation;
    this.#choice = parts.choice;
    this.#voices = parts.voices;
    this.#installed = parts.installed;
    this.#helpers = parts.helpers;
    this.#refusals = parts.refusals;
    this.live = parts.live;
    this.#readers = parts.readers;
    this.#speakers = parts.speakers;
    this.#speaker = new Speaker(parts.speakers, settings.speak, parts.ffmpeg);
    this.#listening = new Lane('transcription', settings.listen);
    this.#speaking = new Lane('speech', settings.speak);
    this.#reading = new Lane('text', settings.read);
    this.kept = new KeptAudio(settings.limits.keepSeconds * 1000);
  }

  /** Looks what is installed, and has voices and language model loaded before it answers. */
  static async open(settings: Settings, log: (line: object) => void): Promise<Engine> {
    const spool = new Spool(settings.spool);
    await spool.open();
    const pool = (file: string, threads: { minThreads: number; maxThreads: number }, setup?: SpeakSetup) =>
      new Piscina({
        filename: new URL(file, import.meta.url).href,
        ...threads,
        idleTimeout: Number.POSITIVE_INFINITY,
        workerData: setup,
        resourceLimits: { maxOldGenerationSizeMb: 256 },
        // threads inherit nothing that a caller's text could bring to light
        env: {},
        // a waiting thread must still see that its listener has gone
        atomics: 'disabled',
      });
    const { jobs } = settings.speak;
    const fault = (msg: string) => log({ level: 40, msg });
    const installed = usable(settings.speak.models, (path) => describeVoiceIn(path), fault);
    const helpers = isInstalled(PACKAGE) ? usable(settings.listen.helpers, describeHelper, fault) : [];
    const speakers = pool(
      'speak/thread.ts',
      { minThreads: jobs, maxThreads: jobs },
      { spool: settings.spool, installed },
    );
    // Not before the first text comes: its models are half a second of work, which would delay the host's start.
    const readers = pool('read/thread.ts', { minThreads: 0, maxThreads: settings.read.jobs });
    const [choice, ffmpeg, confinement, voices] = await Promise.all([
      chooseTranscriber(settings.listen),
      settings.decode.ffmpeg ? findFfmpeg() : undefined,
      openConfinement(),
      speakers.run(undefined, { name: 'engines' }) as Promise<string[]>,
    ]);
    const decoder = new Decoder(ffmpeg, confinement.confine);
    const isolation = confinement.name;
    const { transcriber, fix } = { transcriber: undefined, fix: undefined, ...choice };
    const recognizer = transcriber && (await openLiveRecognizer(transcriber, settings.listen, settings.spool));
    const { liveStreams, jobs: coldStreams } = settings.listen;
    const refusals = new Refusals();
    const live = new LiveStreams({
      recognizer,
      fix,
      places: recognizer?.isWarm === false ? coldStreams : liveStreams,
      ffmpeg: ffmpeg?.ffmpeg,
      confine: confinement.confine,
      refusals,
      spool: settings.spool,
      log,
    });
    return new Engine({
      settings,
      spool,
      decoder,
      isolation,
      choice,
      voices,
      installed,
      helpers: new Helpers(helpers),
      readers,
      speakers,
      ffmpeg: ffmpeg?.ffmpeg,
      refusals,
      live,
    });
  }

  /**
   * @param body the audio; read only when there is a place in the queue
   * @throws EngineFailure; the signal's reason when aborted
   */
  async listen(body: Readable, request: ListenRequest, caller: AbortSignal): Promise<ListenAnswer> {
    const transcriber = this.#transcriber();
    const place = this.#admit(request);
    try {
      const audio = await this.#receive(body, caller);
      try {
        const { signal, timeLeft } = this.#deadline(caller);
        return await place.run(async () => {
          const measured = await this.#measure(audio, request, signal);
          const job = { signal, timeoutMs: timeLeft() };
          const answer = await transcribe(audio, measured, request, transcriber, this.#helpers, job);
          this.#refusals.done(request.names);
          return answer;
        }, signal);
      } finally {
        await this.#spool.remove(audio.folder);
      }
    } finally {
      place.leave();
    }
  }

  /** Measures audio and keeps it, for engines elsewhere. The place in the queue is held until it is fetched or dropped. */
  async keep(body: Readable, request: ListenRequest, caller: AbortSignal): Promise<KeptFacts> {
    const place = this.#admit(request);
    let audio: SpooledAudio | undefined;
    try {
      audio = await this.#receive(body, caller);
      const { folder, sha256, bytes } = audio;
      const { signal } = this.#deadline(caller);
      const { files, durationMs, billableMs } = await this.#measure(audio, request, signal);
      const id = this.kept.keep(audio, () => {
        place.leave();
        void this.#spool.remove(folder);
      });
      const container = recognizeContainer(audio.head, request.raw !== undefined)?.name ?? 'raw';
      return { id, sha256, bytes, container, durationMs, billableMs, channels: files.length };
    } catch (error) {
      if (audio !== undefined) await this.#spool.remove(audio.folder);
      place.leave();
      throw error;
    }
  }

  async speak(request: SpeakRequest, sink: SpeechSink, caller: AbortSignal): Promise<void> {
    const { signal } = this.#deadline(caller);
    await this.#speaking.admit().run(() => this.#speaker.speak(request, sink, signal), signal);
  }

  async read(task: ReadTask, caller: AbortSignal): Promise<ReadAnswer> {
    const { signal } = this.#deadline(caller);
    return await this.#reading
      .admit()
      .run(() => this.#readers.run(task, { signal: AbortSignal.timeout(READ_LONGEST_MS) }), signal)
      .catch((error: unknown) => {
        if (error instanceof Error && error.name === 'AbortError') throw tooSlow('text');
        throw error;
      });
  }

  health(): EngineHealth {
    const { transcriber, fix } = { transcriber: undefined, fix: undefined, ...this.#choice };
    return {
      listen: {
        ok: transcriber !== undefined,
        ...(transcriber === undefined ? {} : { engine: transcriber.model, arch: transcriber.arch }),
        ...(fix === undefined ? {} : { fix }),
        helpers: this.#helpers.names,
        decoder: this.#decoder.name,
        live: this.live.state,
        isolation: this.#isolation,
        queue: this.#listening.state,
      },
      speak: {
        ok: this.#voices.length > 0,
        engines: this.#voices,
        voices: this.#installed.map(({ name, languages }) => ({ name, languages })),
        ...(this.#voices.length > 0 ? {} : { fix: 'Install @echogarden/espeak-ng-emscripten or Debian’s flite.' }),
        queue: this.#speaking.state,
      },
      read: { ok: true, engine: 'wink-nlp, Universal Sentence Encoder, VADER, TextRank', queue: this.#reading.state },
      memoryBytes: process.memoryUsage.rss(),
    };
  }

  async close(): Promise<void> {
    this.kept.dropAll();
    this.live.close();
    await Promise.all([this.#readers.destroy(), this.#speakers.destroy()]);
    await this.#spool.close();
  }

  #admit({ names }: ListenRequest): Place {
    this.#refusals.check(names);
    return this.#listening.admit(names);
  }

  async #measure(audio: SpooledAudio, request: ListenRequest, signal: AbortSignal): Promise<Measured> {
    try {
      return await measure(audio, request, this.#decoder, this.#settings.limits, signal);
    } catch (error) {
      if (error instanceof EngineFailure) this.#refusals.refused(request.names);
      throw error;
    }
  }

  #transcriber() {
    if ('fix' in this.#choice) throw new EngineFailure('no_engine', this.#choice.fix);
    return this.#choice.transcriber;
  }

  async #receive(body: Readable, caller: AbortSignal): Promise<SpooledAudio> {
    const { audioBytes, uploadSeconds } = this.#settings.limits;
    const signal = AbortSignal.any([caller, AbortSignal.timeout(uploadSeconds * 1000)]);
    try {
      return await this.#spool.receive(body, audioBytes, signal);
    } catch (error) {
      if (signal.aborted && !caller.aborted) throw tooSlow('upload');
      throw error;
    }
  }

  #deadline(caller: AbortSignal): { signal: AbortSignal; timeLeft: () => number } {
    const ms = this.#settings.limits.jobSeconds * 1000;
    const ends = performance.now() + ms;
    const expired = new AbortController();
    const timer = setTimeout(() => expired.abort(tooSlow('work')), ms);
    timer.unref();
    return {
      signal: AbortSignal.any([caller, expired.signal]),
      timeLeft: () => Math.max(1, ends - performance.now()),
    };
  }
}

/** A model that is broken does not keep the others from working. */
function usable<Model>(paths: string[], describe: (path: string) => Model, fault: (text: string) => void): Model[] {
  return paths.flatMap((path) => {
    try {
      return [describe(path)];
    } catch (error) {
      fault(error instanceof Error ? error.message : String(error));
      return [];
    }
  });
}

/** With its prober, which tells what a file claims to be. */
async function findFfmpeg(): Promise<Ffmpeg | undefined> {
  const [ffmpeg, ffprobe] = await Promise.all([findProgram('ffmpeg'), findProgram('ffprobe')]);
  return ffmpeg === undefined || ffprobe === undefined ? undefined : { ffmpeg, ffprobe };
}

function tooSlow(what: 'upload' | 'work' | 'text'): EngineFailure {
  const sentence = {
    upload: 'The audio did not arrive in time; send it faster or in parts.',
    work: 'The work was not done in time; send shorter audio, or try again when the queue is shorter.',
    text: 'The text took too long to read; send a shorter one.',
  };
  return new EngineFailure('timeout', sentence[what]);
}
