/** One S3 (scripts/radosgw.mjs) for a run of the project `s3` of config/vitest.config.ts: it takes 13 s to start. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';

const SCRIPT = fileURLToPath(new URL('../../scripts/radosgw.mjs', import.meta.url));

declare module 'vitest' {
  interface ProvidedContext {
    s3: { endpoint: string; accessKey: string; secretKey: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const child = spawn(process.execPath, [SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  for await (const chunk of child.stdout) {
    text += chunk;
    if (text.includes('\n')) break;
  }
  if (text === '') throw new Error('radosgw did not start; see above');
  project.provide('s3', JSON.parse(text));
  return async () => {
    const exited = once(child, 'exit');
    child.stdin.end();
    await exited;
  };
}
