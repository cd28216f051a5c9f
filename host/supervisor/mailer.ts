/** Sends e-mails of a built-in tenant by the operator's SMTP server. Those that ask for it alone reach it, over a socket. */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Config } from '../shared/config.ts';
import type { Folders } from './folders.ts';

/** An e-mail of the platform is a few lines. */
const MAX_BYTES = 16_384;
const TIMEOUT_MS = 20_000;

export interface Mailer {
  /** Opened for the tenant's fetch() as http://mailer.internal. */
  socket: string;
  close(): Promise<void>;
}

/**
 * `POST /` with `{"to", "subject", "text"}` answers 202 when the SMTP server has taken the e-mail, else 502.
 * @returns undefined where no SMTP server is configured
 */
export async function openMailer(
  { mail }: Pick<Config, 'mail'>,
  folders: Pick<Folders, 'run'>,
  log: Logger,
): Promise<Mailer | undefined> {
  if (mail.smtpUrl === '') return undefined;
  const { createTransport } = await import('nodemailer');
  const transport = createTransport({
    url: mail.smtpUrl,
    connectionTimeout: TIMEOUT_MS,
    socketTimeout: TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  const server = http.createServer(async (request, response) => {
    try {
      const { to, subject, text } = JSON.parse(await readSmall(request)) as Record<string, unknown>;
      await transport.sendMail({
        from: mail.from,
        to: { name: '', address: String(to) },
        subject: String(subject),
        text: String(text),
      });
      response.writeHead(202).end();
    } catch (error) {
      // Neither the address nor the text is anybody's business but the recipient's.
      const { code, responseCode } = error as { code?: string; responseCode?: number };
      log.warn({ code, responseCode }, 'an e-mail was not sent; see mail.smtpUrl and mail.from');
      response.writeHead(502).end();
    }
  });
  const socket = path.join(folders.run, 'mailer.sock');
  await rm(socket, { force: true });
  server.listen(socket);
  await once(server, 'listening');
  return {
    socket,
    async close() {
      server.close();
      server.closeAllConnections();
      transport.close();
    },
  };
}

async function readSmall(request: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) {
    text += chunk;
    if (text.length > MAX_BYTES) throw new Error('too large');
  }
  return text;
}
