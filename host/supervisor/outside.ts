/** The host's own calls to URLs that tenants chose (notify): by the same way out and under the same address policy. */
import http from 'node:http';

/**
 * @param socket an egress socket of the host's own
 * @throws Error when the URL is refused, does not answer, or answers 400 and above
 */
export async function postOutside(socket: string, url: string, body: string, timeoutMs: number): Promise<void> {
  const { host } = new URL(url);
  const status = await new Promise<number>((resolve, reject) => {
    const request = http.request(
      {
        socketPath: socket,
        method: 'POST',
        path: url,
        headers: { host, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
        timeout: timeoutMs,
      },
      (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode ?? 0));
      },
    );
    request.on('timeout', () => request.destroy(new Error(`${host} did not answer in time`)));
    request.on('error', reject);
    request.end(body);
  });
  if (status >= 400) throw new Error(`${host} answered ${status}`);
}
