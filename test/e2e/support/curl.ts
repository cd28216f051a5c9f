/** curl as a caller of names that exist in the test alone: it finds them at 127.0.0.1 and trusts one root. */
import { execFile } from 'node:child_process';

export interface CurlOptions {
  /** PEM of the only root that is trusted. */
  root?: string;
  version?: '1.1' | '2';
  headers?: Record<string, string>;
  /** The caller's own address, one of 127.0.0.0/8. */
  from?: string;
  /** Address at which every name is found. */
  at?: string;
  method?: string;
  body?: string;
}

export interface CurlAnswer {
  /** curl's exit code; 0 for any answer. */
  exit: number;
  status: number;
  version: string;
  headers: Headers;
  body: string;
  /** What curl has to say where there is no answer. */
  error: string;
}

export function curl(url: string, options: CurlOptions = {}): Promise<CurlAnswer> {
  const { hostname, port, protocol } = new URL(url);
  const at = `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}:${options.at ?? '127.0.0.1'}`;
  const args = ['-q', '-sS', '-i', '--max-time', '60', '--noproxy', '*', '--resolve', at];
  args.push(options.version === '2' ? '--http2' : '--http1.1', '-w', '\n%{http_code} %{http_version}');
  if (options.root) args.push('--cacert', options.root, '--capath', '/nonexistent');
  if (options.from) args.push('--interface', options.from);
  if (options.method) args.push('-X', options.method);
  if (options.body !== undefined) args.push('--data-binary', options.body);
  for (const [name, value] of Object.entries(options.headers ?? {})) args.push('-H', `${name}: ${value}`);
  return new Promise((resolve) => {
    execFile('curl', [...args, url], { maxBuffer: 16_000_000 }, (error, stdout, stderr) => {
      const last = stdout.lastIndexOf('\n');
      const [status = '0', version = ''] = stdout.slice(last + 1).split(' ');
      const text = stdout.slice(0, Math.max(0, last));
      const split = text.indexOf('\r\n\r\n');
      const lines = text.slice(0, split).split('\r\n').slice(1);
      resolve({
        exit: typeof error?.code === 'number' ? error.code : 0,
        status: Number(status),
        version,
        headers: new Headers(
          lines.map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
        ),
        body: split < 0 ? '' : text.slice(split + 4),
        error: stderr.trim(),
      });
    });
  });
}
