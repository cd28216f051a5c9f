/** The operator's certificate files, looked at before anything starts: callers should not be the first to notice. */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { createSecureContext } from 'node:tls';
import type { Logger } from 'pino';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';

const SOON_MS = 14 * 86_400_000;
const READABLE_BY_ALL = 0o004;
const FIRST_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/;

/**
 * Refuses what cannot be served at all. What can be served, but will trouble callers or gives a key away, is logged
 * with what to do: the host starts, as its other names may be fine.
 *
 * @param now ms since 1970, as callers see it
 * @throws Problem invalid_config that names the file
 */
export async function checkCertificateFiles(tls: Config['tls'], log: Logger, now = Date.now()): Promise<void> {
  if (tls.mode === 'off') return;
  if (tls.mode === 'files' && tls.certificates.length === 0) {
    throw invalid('tls.mode is "files", but tls.certificates names none: give names, cert and key of one at least.');
  }
  for (const [index, { names, cert, key }] of tls.certificates.entries()) {
    const setting = `tls.certificates[${index}]`;
    const chain = await read(`${setting}.cert`, cert);
    const keyText = await read(`${setting}.key`, key);
    const certificate = firstCertificate(`${setting}.cert`, cert, chain);
    const privateKey = privateKeyOf(`${setting}.key`, key, keyText);
    if (!certificate.checkPrivateKey(privateKey)) {
      throw invalid(
        `${setting}: the key in ${key} does not belong to the first certificate in ${cert}. ` +
          'Give the key that this certificate was made for; where the file holds a chain, the certificate itself comes first.',
      );
    }
    try {
      createSecureContext({ cert: chain, key: keyText });
    } catch (error) {
      throw invalid(`${setting}: ${cert} with ${key} cannot be used for TLS: ${(error as Error).message}`, error);
    }
    await warn(log, { names, cert, key, certificate, now });
  }
  if (tls.acme.caFile) await read('tls.acme.caFile', tls.acme.caFile);
}

interface Looked {
  names: string[];
  cert: string;
  key: string;
  certificate: X509Certificate;
  now: number;
}

async function warn(log: Logger, { names, cert, key, certificate, now }: Looked): Promise<void> {
  const { validFrom, validTo } = certificate;
  const again = 'put the new one in its place, which is read within a minute';
  if (Date.parse(validTo) <= now) {
    log.error({ file: cert, validTo }, `this certificate has expired, and callers refuse it: ${again}`);
  } else if (Date.parse(validTo) - now < SOON_MS) {
    log.warn({ file: cert, validTo }, `this certificate expires soon: ${again}`);
  }
  if (Date.parse(validFrom) > now) {
    log.error({ file: cert, validFrom }, 'this certificate is not valid yet, and callers refuse it: check the clock');
  }
  const uncovered = names.filter((name) => !certificate.checkHost(name.replace(/^\*\./, 'any-name.')));
  if (uncovered.length > 0) {
    log.error(
      { file: cert, names: uncovered, covers: certificate.subjectAltName },
      'this certificate does not cover all names that it is configured for, and callers of these refuse it',
    );
  }
  if (((await stat(key)).mode & READABLE_BY_ALL) !== 0) {
    log.warn({ file: key }, `every user of this machine can read this key: chmod o= ${key}`);
  }
}

function firstCertificate(setting: string, file: string, text: string): X509Certificate {
  const [pem] = FIRST_CERTIFICATE.exec(text) ?? [];
  try {
    if (pem !== undefined) return new X509Certificate(pem);
  } catch {
    // Told below.
  }
  throw invalid(
    `${setting}: ${file} holds no certificate in PEM. Give the file that begins with -----BEGIN CERTIFICATE-----.`,
  );
}

function privateKeyOf(setting: string, file: string, text: string): KeyObject {
  try {
    return createPrivateKey(text);
  } catch {
    // The reason is left out: it may quote the file.
    throw invalid(
      /ENCRYPTED/.test(text)
        ? `${setting}: the key in ${file} is locked with a passphrase. Write one without: openssl pkey -in ${file} -out new.key`
        : `${setting}: ${file} holds no private key in PEM. Give the file that begins with -----BEGIN PRIVATE KEY-----.`,
    );
  }
}

async function read(setting: string, file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason =
      code === 'ENOENT'
        ? `there is no file ${file}. Give its full path.`
        : code === 'EACCES'
          ? `${file} may not be read by the user ${userInfo().username}, as whom the host runs. Allow it, and its folders, to that user.`
          : `${file} cannot be read: ${message}`;
    throw invalid(`${setting}: ${reason}`, error);
  }
}

function invalid(detail: string, cause?: unknown): Problem {
  return new Problem('invalid_config', detail, { cause });
}
