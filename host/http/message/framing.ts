/** What reading and framing a message takes of its head; whoever gives meaning to heads knows more of them. */

/** How the bytes after a head are delimited. */
export type Framing = { kind: 'none' } | { kind: 'length'; length: number } | { kind: 'chunked' } | { kind: 'close' };

export interface MessageHead {
  version: '1.0' | '1.1' | '2';
  framing: Framing;
  /** The caller is willing to send another request on this connection. */
  keepAlive: boolean;
  expectContinue: boolean;
  /** The caller reads trailers (`TE: trailers`). */
  acceptsTrailers: boolean;
}
