/** Why an instance ended. The first group is the host's own doing, the second the tenant's. */
export type ExitReason =
  | 'idle'
  /** `bloated`: idle and using much memory. The word is part of the API, so it stays. */
  | 'swollen'
  | 'memory_pressure'
  | 'replaced'
  | 'stopped'
  | 'shutdown'
  | 'cpu_exceeded'
  | 'memory_exceeded'
  | 'files_exceeded'
  | 'storage_exceeded'
  | 'start_failed'
  | 'crashed';
