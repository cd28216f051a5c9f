/** One HTTP request to a unix socket. */
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';

export function requestSocket(
  socketPath: string,
  method: string,
  path: string,
  body?: Uint8Array | string,
): Promise<{ status: number; json: unknown; bytes: Buffer; headers: IncomingHttpHeaders }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ socketPath, method, path, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const bytes = Buffer.concat(chunks);
        const json = response.headers['content-type']?.includes('json') ? JSON.parse(bytes.toString()) : undefined;
        resolve({ status: response.statusCode ?? 0, json, bytes, headers: response.headers });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}
