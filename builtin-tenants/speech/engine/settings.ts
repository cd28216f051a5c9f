/**
 * What the engine process is told at its start, as one line of JSON on standard input.
 * This is the boundary where that line is checked; nothing comes from arguments or the environment.
 */
import { availableParallelism } from 'node:os';
import { z } from 'zod';

const seconds = z.number().positive();
const count = z.number().int().min(1);

export const settingsSchema = z.strictObject({
  /** Unix socket to listen on, at most 107 bytes. Its name decides the host name that the tenant uses. */
  socket: z.string().min(1),
  /** Folder for audio and text while they are worked on; emptied at start. */
  spool: z.string().min(1),
  listen: z
    .strictObject({
      /** `auto` takes whisper.cpp or sherpa-onnx where a model is given, else pocketsphinx where it is installed. */
      engine: z.enum(['auto', 'pocketsphinx', 'whisper.cpp', 'sherpa-onnx', 'none']).default('auto'),
      /** whisper.cpp: the ggml file; sherpa-onnx: the model's folder. */
      model: z.string().default(''),
      /** Folders and files of models that help it: to tell speakers apart, to punctuate. */
      helpers: z.array(z.string()).default([]),
      /** Program to run where it is not on the path. */
      program: z.string().default(''),
      /** Transcriptions at the same time. */
      jobs: count.default(Math.max(1, Math.floor(availableParallelism() / 2))),
      /** Transcriptions that may wait behind them; further ones are refused with 429. */
      waiting: z.number().int().min(0).default(8),
      /** Live streams at the same time, where the model stays loaded; where it does not, as many as `jobs`. */
      liveStreams: count.default(10 * availableParallelism()),
      /** Threads of one whisper.cpp or sherpa-onnx job. */
      threads: count.default(1),
    })
    .prefault({}),
  speak: z
    .strictObject({
      /** `auto` takes an installed voice for its language, flite for English where it is there, espeak-ng for all else. */
      engine: z.enum(['auto', 'espeak-ng', 'flite', 'sherpa-onnx']).default('auto'),
      /** Folders of sherpa-onnx's voices, the preferred one first. */
      models: z.array(z.string()).default([]),
      /** Voice where the caller names none that the engine has; empty: by language. */
      voice: z.string().default(''),
      jobs: count.default(Math.max(1, Math.floor(availableParallelism() / 2))),
      waiting: z.number().int().min(0).default(32),
    })
    .prefault({}),
  read: z.strictObject({ jobs: count.default(1), waiting: z.number().int().min(0).default(32) }).prefault({}),
  /** FFmpeg is used where it is installed, unless it is switched off here. */
  decode: z.strictObject({ ffmpeg: z.boolean().default(true) }).prefault({}),
  limits: z
    .strictObject({
      audioBytes: count.default(100 * 1024 * 1024),
      audioSeconds: seconds.default(3600),
      /** Channels that are transcribed one by one with `multichannel`. */
      channels: count.default(8),
      textBytes: count.default(256 * 1024),
      uploadSeconds: seconds.default(120),
      decodeSeconds: seconds.default(60),
      /** From the last byte of the upload to the answer, waiting included; below the host's 300 s. */
      jobSeconds: seconds.default(270),
      /** How long audio is kept for a remote engine to be fed with. */
      keepSeconds: seconds.default(300),
    })
    .prefault({}),
});

/** As the supervisor writes them: only `socket` and `spool` are needed. */
export type SettingsInput = z.input<typeof settingsSchema>;
export type Settings = z.output<typeof settingsSchema>;

/** @throws Error that names the first setting that is wrong */
export function parseSettings(line: string): Settings {
  const settings = settingsSchema.safeParse(JSON.parse(line));
  if (settings.success) return settings.data;
  const [issue] = settings.error.issues;
  throw new Error(`speech engine settings: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not acceptable'}`);
}
