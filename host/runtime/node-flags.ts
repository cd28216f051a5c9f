/**
 * Modules of Node that workerd has from a compatibility date on, and the flags that give them before it. wrangler puts
 * stand-ins into the code of older projects; here those get the modules themselves. Dates are those of
 * @cloudflare/unenv-preset 2.16.2; workerd takes a flag that its date implies (1.20261117.1).
 */

/** Flag -> its date and the modules without `node:`. */
const GIVEN_BY: Record<string, [from: string, ...modules: string[]]> = {
  enable_nodejs_http_modules: [
    '2025-08-15',
    ...['http', 'https', '_http_agent', '_http_client', '_http_common', '_http_incoming', '_http_outgoing'],
  ],
  enable_nodejs_http_server_modules: ['2025-09-01', 'http', 'https', '_http_server'],
  enable_nodejs_http2_module: ['2025-09-01', 'http2'],
  enable_nodejs_os_module: ['2025-09-15', 'os'],
  enable_nodejs_fs_module: ['2025-09-15', 'fs', 'fs/promises'],
  enable_nodejs_process_v2: ['2025-09-15', 'process'],
  enable_nodejs_console_module: ['2025-09-21', 'console'],
  enable_nodejs_vm_module: ['2025-10-01', 'vm'],
  enable_nodejs_punycode_module: ['2025-12-04', 'punycode'],
  enable_nodejs_cluster_module: ['2025-12-04', 'cluster'],
  enable_nodejs_trace_events_module: ['2025-12-04', 'trace_events'],
  enable_nodejs_domain_module: ['2025-12-04', 'domain'],
  enable_nodejs_wasi_module: ['2025-12-04', 'wasi'],
  enable_nodejs_inspector_module: ['2026-01-29', 'inspector', 'inspector/promises'],
  enable_nodejs_sqlite_module: ['2026-01-29', 'sqlite'],
  enable_nodejs_dgram_module: ['2026-01-29', 'dgram'],
  enable_nodejs_stream_wrap_module: ['2026-01-29', '_stream_wrap'],
  enable_nodejs_repl_module: ['2026-03-17', 'repl'],
  enable_nodejs_v8_module: ['2026-03-17', 'v8'],
  enable_nodejs_tty_module: ['2026-03-17', 'tty'],
  enable_nodejs_child_process_module: ['2026-03-17', 'child_process'],
  enable_nodejs_worker_threads_module: ['2026-03-17', 'worker_threads'],
  enable_nodejs_readline_module: ['2026-03-17', 'readline', 'readline/promises'],
  enable_nodejs_perf_hooks_module: ['2026-03-17', 'perf_hooks'],
};
/** From here on `nodejs_compat` means all of Node that there is, as `nodejs_compat_v2` does before. */
const WHOLE_NODE = '2024-09-23';

/**
 * The flags to add so that what the code names of Node is there.
 * @param code as it is bundled: each module of Node by its name with `node:`
 * @param date compatibility date; undefined: the newest
 */
export function nodeFlags(code: string, date: string | undefined, flags: readonly string[]): string[] {
  if (date === undefined || !hasWholeNode(date, flags)) return [];
  const named = new Set([...code.matchAll(/["'`]node:([a-z0-9_/]+)["'`]/g)].map(([, name = '']) => name));
  // wrangler replaces the global one, too.
  if (/\bprocess\s*\??\./.test(code)) named.add('process');
  return Object.entries(GIVEN_BY)
    .filter(
      ([flag, [from, ...modules]]) => date < from && !isDecided(flag, flags) && modules.some((one) => named.has(one)),
    )
    .map(([flag]) => flag);
}

/** What to do where workerd has no module of that name. @param name with `node:` */
export function nodeHint(name: string, flags: readonly string[]): string {
  const [flag, given] =
    Object.entries(GIVEN_BY).find(([, [, ...modules]]) => modules.includes(name.replace(/^node:/, ''))) ?? [];
  const compat = 'set the compatibility flag nodejs_compat';
  if (!flags.some((one) => one.startsWith('nodejs_compat'))) return `For modules of Node ${compat}.`;
  if (flag === undefined || given === undefined) return 'workerd has no module of Node of that name.';
  return `Set a compatibility date of ${given[0]} or later, or the compatibility flag ${flag}.`;
}

function hasWholeNode(date: string, flags: readonly string[]): boolean {
  if (flags.includes('no_nodejs_compat_v2')) return false;
  return flags.includes('nodejs_compat_v2') || (flags.includes('nodejs_compat') && date >= WHOLE_NODE);
}

function isDecided(flag: string, flags: readonly string[]): boolean {
  return flags.includes(flag) || flags.includes(flag.replace(/^enable_/, 'disable_'));
}
