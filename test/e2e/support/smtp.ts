/** The host's mailer, and a mail server behind it that takes every e-mail. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { openMailer } from '../../../host/supervisor/mailer.ts';

export interface TestMail {
  /** Of the mailer. */
  socket: string;
  /** Whole e-mails, as they came. */
  received: string[];
  stop(): Promise<void>;
}

export async function startMail(): Promise<TestMail> {
  const received: string[] = [];
  const folder = await mkdtemp(join(tmpdir(), 'tp-mail-'));
  const smtp = await smtpServer((email) => received.push(email));
  const { port } = smtp.address() as AddressInfo;
  const mail = { smtpUrl: `smtp://127.0.0.1:${port}`, from: 'pay@example.com' };
  const mailer = await openMailer({ mail }, { run: folder }, pino({ level: 'silent' }));
  if (!mailer) throw new Error('the mailer is off');
  return {
    socket: mailer.socket,
    received,
    async stop() {
      await mailer.close();
      smtp.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Speaks as much SMTP (RFC 5321) as a client needs to hand an e-mail over, on a port of its own.
 * @param onEmail told of each, whole, as it came
 */
async function smtpServer(onEmail: (email: string) => void): Promise<Server> {
  const server = createServer((socket) => {
    let text = '';
    let inData = false;
    socket.write('220 test ESMTP\r\n');
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
      for (;;) {
        const end = inData ? text.indexOf('\r\n.\r\n') : text.indexOf('\r\n');
        if (end < 0) return;
        const part = text.slice(0, end);
        text = text.slice(end + (inData ? 5 : 2));
        if (inData) onEmail(part);
        const begins = !inData && /^DATA$/i.test(part);
        inData = begins;
        socket.write(begins ? '354 go on\r\n' : '250 ok\r\n');
      }
    });
    socket.on('error', () => socket.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
