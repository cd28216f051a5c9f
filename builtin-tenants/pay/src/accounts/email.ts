/**
 * The boundary for e-mail addresses that people type. Each mailbox has one spelling, so that no second account can look
 * like the first: the local part is ASCII, the domain is in its ASCII form (UTS 46, as browsers and mail servers use it).
 */
import { Problem } from '../problem.ts';

/** `atext` of RFC 5322, in parts separated by single dots. */
const LOCAL = /^(?=.{1,64}$)[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*$/;
const DOMAIN = /^(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$/;
/** RFC 5321, section 4.5.3.1.3, less the angle brackets. */
const MAX_LENGTH = 254;

/** @throws Problem `invalid_field` */
export function canonicalEmail(text: string): string {
  const at = text.lastIndexOf('@');
  const local = text.slice(0, at).trim().toLowerCase();
  const domain = asciiDomain(text.slice(at + 1).trim());
  const email = `${local}@${domain}`;
  if (at < 1 || !LOCAL.test(local) || !DOMAIN.test(domain) || email.length > MAX_LENGTH) {
    throw new Problem(
      'invalid_field',
      'An e-mail address is needed, such as ann@example.com. Before the @ it has no other characters than letters a to z, digits and . _ + -',
    );
  }
  return email;
}

/** The spelling to look an account up by: accounts from before addresses were limited to ASCII keep theirs. */
export function emailToFind(text: string): string {
  try {
    return canonicalEmail(text);
  } catch {
    return text.trim().toLowerCase();
  }
}

/**
 * The mailbox behind an address, as far as that can be told: what follows a + is the owner's own, and Gmail takes dots
 * anywhere. For counting people, not for sending.
 */
export function mailboxOf(email: string): string {
  const at = email.lastIndexOf('@');
  const local = email.slice(0, at).replace(/(?<=.)\+.*$/, '');
  const domain = email.slice(at + 1);
  return /^(?:gmail|googlemail)\.com$/.test(domain) ? `${local.replaceAll('.', '')}@gmail.com` : `${local}@${domain}`;
}

/** Empty where the text is no domain. Invisible characters disappear in UTS 46, which is what makes them no difference. */
function asciiDomain(text: string): string {
  // Characters that end the host in a URL would make the parser see a shorter domain than the person typed.
  if (/[\s/\\?#:@[\]%]/.test(text) || !URL.canParse(`http://${text}`)) return '';
  return new URL(`http://${text}`).hostname;
}
