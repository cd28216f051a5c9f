/** WebSockets as workerd has them, as far as they are used here. */

export interface WorkerSocket {
  /** `blob` by default, whose bytes would come later than what was sent after it. */
  binaryType: 'arraybuffer' | 'blob';
  accept(): void;
  send(data: string | ArrayBuffer): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: 'message', listener: (event: { data: string | ArrayBuffer }) => void): void;
  addEventListener(type: 'close', listener: (event: { code: number; reason: string }) => void): void;
  addEventListener(type: 'error', listener: () => void): void;
}

/** @returns the caller's end, which the answer carries, and ours */
export function socketPair(): [WorkerSocket, WorkerSocket] {
  const { WebSocketPair } = globalThis as unknown as {
    WebSocketPair: new () => { 0: WorkerSocket; 1: WorkerSocket };
  };
  const pair = new WebSocketPair();
  return [pair[0], pair[1]];
}

/** The answer that opens a WebSocket. */
export function socketAnswer(webSocket: WorkerSocket, headers: Record<string, string>): Response {
  return new Response(null, { status: 101, webSocket, headers } as ResponseInit);
}

export function socketOf(response: Response): WorkerSocket | undefined {
  return (response as Response & { webSocket?: WorkerSocket | null }).webSocket ?? undefined;
}

/** Closing what is closed already is no fault. @param reason cut to what a close frame holds: 123 bytes of UTF-8 */
export function closeSocket(socket: WorkerSocket, code: number, reason: string): void {
  let bytes = new TextEncoder().encode(reason);
  if (bytes.length > 123) bytes = bytes.slice(0, 123);
  try {
    socket.close(code, new TextDecoder().decode(bytes).replace(/\ufffd+$/, ''));
  } catch {
    // it is closed
  }
}
