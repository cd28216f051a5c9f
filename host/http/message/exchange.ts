/**
 * One request and its answer, as a server's logic sees them, whatever version of HTTP the caller speaks.
 */
import type { Duplex } from 'node:stream';
import type { Block } from './blocks.ts';
import type { MessageHead } from './framing.ts';
import type { RequestHead } from './head.ts';
import type { WireError } from './wire-error.ts';

/** The other end of a caller's connection. */
export interface Peer {
  /** IP address of the socket's other end, or of the caller that a PROXY header names; IPv4 in its own form. */
  address: string;
  encrypted: boolean;
  /** TLS version and cipher, empty without TLS. */
  tlsVersion: string;
  tlsCipher: string;
}

/** Told about the caller's side of an exchange. */
export interface ExchangeListener {
  /** A piece of the request body. @param block that it is in; undefined: the memory is used again after the call */
  bodyData(chunk: Buffer, block: Block | undefined): void;
  /** The request body is complete. Not called where the head said that there is none. */
  bodyEnd(): void;
  /** After `write` said false: the answer may go on. */
  answerDrained(): void;
  /** The caller went away, or its body is no HTTP; nothing can be answered any more. */
  aborted(): void;
}

/** Length of an answer's body: bytes, `unknown` until it ends, or `none` where the status or method forbids one. */
export type AnswerLength = number | 'unknown' | 'none';

/** @typeParam Head what is read of a request's head; by default, what is read of a caller's */
export interface Exchange<Head extends MessageHead = RequestHead> {
  readonly head: Head;
  readonly peer: Peer;

  /** Whom to tell; before anything else. */
  listen(listener: ExchangeListener): void;
  /** Lets the request body come, at once where bytes of it are here. */
  receive(): void;
  pause(): void;
  resume(): void;
  /** 100 Continue, if the caller asked for it. */
  sendContinue(): void;
  /** Other interim answers, such as 103. */
  informational(status: number, reason: string, fields: string): void;
  /**
   * Starts the answer.
   * @param fields checked field block without framing
   * @param declaredLength Content-Length of an answer without a body (HEAD, 304)
   */
  answer(status: number, reason: string, fields: string, length: AnswerLength, declaredLength?: string): void;
  /**
   * Sends a piece of the body, at the latest with `flush` or `finish`.
   * @param block that the piece is in; undefined: its memory is used again after the call
   * @returns false: wait for `answerDrained`
   */
  write(chunk: Buffer, block?: Block): boolean;
  finish(trailers: string): void;
  /** Sends what was gathered. @returns false: wait for `answerDrained` */
  flush(): boolean;
  /** Cuts the connection (h2: the stream), so that the caller sees that the answer is not whole. */
  destroy(): void;
  /**
   * Switches to another protocol: sends the head and hands over the connection.
   * @returns the caller's socket and the bytes that it sent already
   */
  upgrade(head: string): { socket: Duplex; rest: Buffer };
}

/** What every listener, of h1 or h2, gives new requests to. */
export interface ExchangeHandler<Head extends MessageHead = RequestHead> {
  handle(exchange: Exchange<Head>): void;
  /** A mistake of ours, met on one connection, which is cut; the others go on. */
  unexpected(error: unknown): void;
  /** The bytes were no request; this is the answer's field block and body. */
  refuse(error: WireError): { status: number; reason: string; fields: string; body: Buffer };
}
