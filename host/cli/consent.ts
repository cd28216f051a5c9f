/**
 * What the user allowed, in a file of the user (`~/.config/turnpike/settings.json`, 0600) and never in the project: a
 * project that was downloaded must not allow itself anything. Each project (its folder) has its own list.
 *
 * The user may edit the file: `hosts` are addresses that any project may name, `maxPay` is the most that `--yes` pays.
 */
import { mkdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { writePrivateFile } from '../shared/private-file.ts';
import { readRegularFile } from './project/regular-file.ts';
import { Failure } from './terminal/failure.ts';
import type { Terminal } from './terminal/terminal.ts';
import { defaultWalletPath } from './wallet/wallet-file.ts';

const schema = z.strictObject({
  hosts: z.array(z.url()).optional(),
  maxPay: z
    .string()
    .regex(/^\d{1,9}(\.\d{1,6})?$/)
    .optional(),
  projects: z.record(z.string(), z.array(z.string())).optional(),
});

export type UserSettings = z.infer<typeof schema>;

/** Something that a project wants and only its user may give. */
export interface Wish {
  /** What is remembered. Names everything that the consent depends on, such as `env TOKEN https://host.example`. */
  key: string;
  question: string;
  /** How to allow it where nobody can be asked. */
  otherwise: string;
}

export class Consent {
  readonly #terminal: Terminal;
  /** Whether a person can be asked. */
  readonly #asks: boolean;

  constructor(terminal: Terminal, asks: boolean) {
    this.#terminal = terminal;
    this.#asks = asks;
  }

  get path(): string {
    return join(dirname(defaultWalletPath(this.#terminal)), 'settings.json');
  }

  /** @throws Failure `usage` when the file is damaged */
  async settings(): Promise<UserSettings> {
    const text = await readRegularFile(this.path, 1024 * 1024).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return '{}';
      throw new Failure('usage', `${this.path} cannot be read (${error.code ?? error.message}).`);
    });
    try {
      return schema.parse(JSON.parse(String(text)));
    } catch (error) {
      const why = error instanceof z.ZodError ? error.issues.map(({ path }) => path.join('.')).join(', ') : 'no JSON';
      throw new Failure('usage', `${this.path} cannot be read (${why}): correct it, or delete it.`);
    }
  }

  /**
   * Asks once for each project; `--yes` is no answer to it.
   * @throws Failure `usage` where nobody can be asked, `cancelled` on a no
   */
  async require(folder: string, wish: Wish): Promise<void> {
    if ((await this.#allowed(folder)).includes(wish.key)) return;
    if (!this.#asks) throw new Failure('usage', `${wish.question} ${wish.otherwise}`);
    if (!(await this.#terminal.confirm(wish.question))) throw new Failure('cancelled', 'Nothing was sent.');
    await this.remember(folder, wish.key);
  }

  async remember(folder: string, key: string): Promise<void> {
    const settings = await this.settings();
    const project = await nameOf(folder);
    const allowed = settings.projects?.[project] ?? [];
    if (allowed.includes(key)) return;
    const projects = { ...settings.projects, [project]: [...allowed, key] };
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    await writePrivateFile(this.path, `${JSON.stringify({ ...settings, projects }, null, 2)}\n`);
  }

  async #allowed(folder: string): Promise<string[]> {
    return (await this.settings()).projects?.[await nameOf(folder)] ?? [];
  }
}

function nameOf(folder: string): Promise<string> {
  return realpath(folder).catch(() => folder);
}
