/** Something that serves and is measured: ours or a peer. */
export interface Subject {
  name: string;
  /** Origin, without a trailing slash; rows append their paths. */
  origin: string;
  /** Root processes whose CPU and memory count. */
  pids(): number[];
  /** It has nothing to be filled. */
  seeded?: boolean;
  stop(): Promise<void>;
}

/** How to start a subject, or why it cannot be here. */
export interface Starter {
  name: string;
  /** Undefined: it can start. */
  missing(): string | undefined;
  start(): Promise<Subject>;
}
