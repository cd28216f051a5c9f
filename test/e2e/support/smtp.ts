/** A mail server that takes every e-mail. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

/**
 * Speaks as much SMTP (RFC 5321) as a client needs to hand an e-mail over, on a port of its own.
 * @param onEmail told of each, whole, as it came
 */
export async function smtpServer(onEmail: (email: string) => void): Promise<Server> {
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
