/** Entry of the process that bundles: one message in, one message out, for as long as its parent and esbuild live. */

import { flushCompileCache } from 'node:module';
import os from 'node:os';
import { type BundleResult, bundleSources } from './bundle-sources.ts';
import type { Sources } from './code-input.ts';

export interface BundleRequest {
  id: number;
  sources: Sources;
}
export type BundleAnswer = { id: number } & BundleResult;

/** Nice value: above tenants that want a core all the time, below everybody else. */
const YIELDING = 5;

// It yields to whoever serves requests; esbuild's own process, which it starts later, does so, too.
os.setPriority(YIELDING);
process.on('message', ({ id, sources }: BundleRequest) => {
  bundleSources(sources).then(
    (result) => answer({ id, ...result }),
    // Whatever this is, esbuild's own process is gone (endless nesting exhausts its stack): a new worker has a new one.
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());

// It is killed in the end, and all code is loaded by now.
flushCompileCache();

function answer(message: BundleAnswer): void {
  process.send?.(message);
}
