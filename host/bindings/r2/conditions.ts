/**
 * Conditions of get and put, as R2 decides them (RFC 7232 section 6; miniflare's validator.worker.ts is the reference
 * for what Cloudflare does where the RFC leaves it open).
 */
import type { Conditional } from './requests.ts';

/** What a condition looks at. */
export interface Subject {
  etag: string;
  /** ms since the epoch */
  uploaded: number;
}

/** @param subject the object as it is now, or undefined where there is none */
export function holds(condition: Conditional, subject: Subject | undefined): boolean {
  const { etagMatches, etagDoesNotMatch, uploadedBefore, uploadedAfter } = condition;
  if (!subject) return etagMatches === undefined && uploadedAfter === undefined;

  const time = (ms: number) => (condition.secondsGranularity ? Math.floor(ms / 1000) * 1000 : ms);
  const uploaded = time(subject.uploaded);
  const matches = etagMatches === undefined || includes(etagMatches, subject.etag, 'strong');
  const differs = etagDoesNotMatch === undefined || !includes(etagDoesNotMatch, subject.etag, 'weak');
  // An etag that decides outranks the date beside it.
  const since =
    uploadedAfter === undefined || time(uploadedAfter) < uploaded || (etagDoesNotMatch !== undefined && differs);
  const until =
    uploadedBefore === undefined || uploaded < time(uploadedBefore) || (etagMatches !== undefined && matches);
  return matches && differs && since && until;
}

type Etags = NonNullable<Conditional['etagMatches']>;

function includes(etags: Etags, etag: string, comparison: 'strong' | 'weak'): boolean {
  return etags.some(
    (given) =>
      given.type === 'wildcard' || (given.value === etag && (given.type === 'strong' || comparison === 'weak')),
  );
}
