/**
 * What passes between the tenant and the engine over one WebSocket of a live stream. Up go audio (binary frames) and the
 * caller's control messages as they are; down come lines of JSON, each with what was heard until then: the tenant has it
 * paid before it passes the message on.
 */

/** What a message weighs beside its bytes: a flood of empty ones takes memory, too. */
export const MESSAGE_BYTES = 64;

/** From the engine. */
export interface LiveLine {
  /** All of the audio that was heard so far, ms over all channels. */
  heardMs: number;
  /** Of all messages that were worked on, each with `MESSAGE_BYTES`; the tenant lets its caller send only so far ahead. */
  bytes: number;
  /** In Deepgram's shape, for the caller. */
  message?: Record<string, unknown>;
  /** The last line: why the stream ends. */
  end?: LiveEnd;
}

export interface LiveEnd {
  /** Of a WebSocket's close. */
  code: number;
  /** Deepgram's code and a sentence that says what to do; short enough for a close frame with the charge behind it. */
  reason: string;
  /** Seconds of one channel. */
  duration: number;
  channels: number;
  warnings: string[];
}

export interface LiveModel {
  name: string;
  version: string;
  arch: string;
}
