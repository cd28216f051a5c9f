import { expect, it } from 'vitest';
import { nodeFlags, nodeHint } from '../../host/runtime/node-flags.ts';

const FS = 'import fs from "node:fs";';

it.each<[string, string, string | undefined, string[], string[]]>([
  ['what the date does not give', FS, '2024-11-01', ['nodejs_compat'], ['enable_nodejs_fs_module']],
  ['nothing where the date gives it', FS, '2025-09-15', ['nodejs_compat'], []],
  ['nothing without a date, which is the newest', FS, undefined, ['nodejs_compat'], []],
  ['nothing for code without Node', FS, '2024-11-01', [], []],
  ['nothing where nodejs_compat means a few modules', FS, '2024-09-22', ['nodejs_compat'], []],
  ['nodejs_compat_v2 before its date', FS, '2024-08-01', ['nodejs_compat_v2'], ['enable_nodejs_fs_module']],
  ['nothing where v2 is refused', FS, '2024-11-01', ['nodejs_compat', 'no_nodejs_compat_v2'], []],
  ['what the project decided', FS, '2024-11-01', ['nodejs_compat', 'disable_nodejs_fs_module'], []],
  ['what it asked for', FS, '2024-11-01', ['nodejs_compat', 'enable_nodejs_fs_module'], []],
  [
    'parts of modules',
    'await import("node:fs/promises")',
    '2025-01-01',
    ['nodejs_compat'],
    ['enable_nodejs_fs_module'],
  ],
  ['the global process', 'log(process.version)', '2025-01-01', ['nodejs_compat'], ['enable_nodejs_process_v2']],
  [
    'servers',
    "require('node:http')",
    '2025-08-01',
    ['nodejs_compat'],
    ['enable_nodejs_http_modules', 'enable_nodejs_http_server_modules'],
  ],
  [
    'servers between their two dates',
    '"node:http"',
    '2025-08-20',
    ['nodejs_compat'],
    ['enable_nodejs_http_server_modules'],
  ],
])('adds %s', (_, code, date, flags, added) => {
  expect(nodeFlags(code, date, flags)).toEqual(added);
});

it('says what gives a module', () => {
  expect(nodeHint('node:fs', [])).toContain('nodejs_compat');
  expect(nodeHint('node:fs/promises', ['nodejs_compat'])).toContain('2025-09-15 or later');
  expect(nodeHint('node:fs', ['nodejs_compat'])).toContain('enable_nodejs_fs_module');
  expect(nodeHint('node:sea', ['nodejs_compat'])).toContain('no module of Node of that name');
});
