/** What one deployment asks of a queue that another one keeps. */

/** One call of workerd's protocol: `/message`, `/batch` or `/metrics`. */
export interface QueueCall {
  method: 'GET' | 'POST';
  operation: string;
  /** `x-msg-fmt` and `x-msg-delay-secs`. */
  headers: Record<string, string>;
  body: Buffer;
}

export interface QueueAnswer {
  status: number;
  text: string;
}
