/** Certificates and what else ACME needs, as all nodes have it: texts by name, sealed with a key that is a key of the host. */
import { randomBytes } from 'node:crypto';
import type { Client, InArgs } from '@libsql/client/sqlite3';
import type { KeyFiles } from '../key-file.ts';
import { SecretBox } from '../secret-box.ts';

const KEY = 'certificates.key';
const INSERT = 'INSERT INTO certificates (name, mark, key_id, sealed) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO';

export class SealedTexts {
  readonly #client: Client;
  readonly #box: SecretBox;

  private constructor(client: Client, box: SecretBox) {
    this.#client = client;
    this.#box = box;
  }

  static async open(client: Client, keyFiles: KeyFiles): Promise<SealedTexts> {
    return new SealedTexts(client, await SecretBox.open(keyFiles(KEY)));
  }

  /** By name: what is another one once the text is. */
  async marks(): Promise<Map<string, string>> {
    const { rows } = await this.#client.execute('SELECT name, mark FROM certificates ORDER BY name');
    return new Map(rows.map(({ name, mark }) => [String(name), String(mark)]));
  }

  async names(): Promise<string[]> {
    return [...(await this.marks()).keys()];
  }

  async read(name: string): Promise<string | undefined> {
    const { rows } = await this.#client.execute('SELECT key_id, sealed FROM certificates WHERE name = ?', [name]);
    const [row] = rows;
    if (!row) return undefined;
    return this.#box.unseal(
      { keyId: String(row.key_id), sealed: Buffer.from(row.sealed as ArrayBuffer) },
      contextOf(name),
    );
  }

  /** @returns what is kept: another node may have been first */
  async add(name: string, text: string): Promise<string> {
    await this.#client.execute(`${INSERT} NOTHING`, this.#row(name, text));
    return (await this.read(name)) ?? text;
  }

  async write(name: string, text: string): Promise<void> {
    const sql = `${INSERT} UPDATE SET mark = excluded.mark, key_id = excluded.key_id, sealed = excluded.sealed`;
    await this.#client.execute(sql, this.#row(name, text));
  }

  async remove(...names: string[]): Promise<void> {
    if (names.length === 0) return;
    const statements = names.map((name) => ({ sql: 'DELETE FROM certificates WHERE name = ?', args: [name] }));
    await this.#client.batch(statements, 'write');
  }

  #row(name: string, text: string): InArgs {
    const { keyId, sealed } = this.#box.seal(text, contextOf(name));
    return [name, randomBytes(6).toString('hex'), keyId, sealed];
  }
}

/** A row is good under its own name alone. */
function contextOf(name: string): string {
  return `certificates:${name}`;
}
