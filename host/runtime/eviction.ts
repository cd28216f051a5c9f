/** Which instances end, and why: pure decisions over what is known of each. */
import type { ExitReason } from './exit-reason.ts';

export interface Candidate {
  /** Or the key of a preview's instance. */
  slug: string;
  /** Last request, start or scheduled run, ms of the clock that `now` is of. */
  lastActive: number;
  /** Of a preview, which ends sooner. */
  idleMs?: number;
  /** Requests and scheduled runs under way. */
  inFlight: number;
  privateBytes: number;
}

export interface EvictionLimits {
  idleMs: number;
  bloatedIdleMs: number;
  bloatedBytes: number;
  /** For all instances together, bytes. */
  totalBytes: number;
}

export interface Eviction {
  slug: string;
  reason: Extract<ExitReason, 'idle' | 'swollen' | 'memory_pressure'>;
}

/** Under pressure room is made until this share of the total is in use, so that not every tick ends one more. */
const RELIEF = 0.9;
/** An instance is left alone for this long after its last request even under pressure, ms. */
const GRACE_MS = 500;

/** @param extraBytes memory that is wanted beyond what is used now: the machine's shortage, or a start that waits */
export function chooseEvictions(
  candidates: Candidate[],
  limits: EvictionLimits,
  now: number,
  extraBytes = 0,
): Eviction[] {
  const evictions: Eviction[] = [];
  const staying: Candidate[] = [];
  for (const candidate of candidates) {
    const idleMs = now - candidate.lastActive;
    if (candidate.inFlight > 0) staying.push(candidate);
    else if (candidate.privateBytes >= limits.bloatedBytes && idleMs >= limits.bloatedIdleMs) {
      evictions.push({ slug: candidate.slug, reason: 'swollen' });
    } else if (idleMs >= Math.min(candidate.idleMs ?? limits.idleMs, limits.idleMs))
      evictions.push({ slug: candidate.slug, reason: 'idle' });
    else staying.push(candidate);
  }
  let used = staying.reduce((sum, candidate) => sum + candidate.privateBytes, extraBytes);
  if (used <= limits.totalBytes) return evictions;
  const idle = staying.filter(({ inFlight, lastActive }) => inFlight === 0 && now - lastActive >= GRACE_MS);
  for (const candidate of idle.sort((a, b) => a.lastActive - b.lastActive)) {
    if (used <= limits.totalBytes * RELIEF) break;
    used -= candidate.privateBytes;
    evictions.push({ slug: candidate.slug, reason: 'memory_pressure' });
  }
  return evictions;
}
