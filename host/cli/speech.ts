/** `turnpike speech`: the models by which the host's speech engine transcribes. */
import { existsSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { Command } from 'commander';
import type { Checksum, PublishedModel } from '../../builtin-tenants/speech/models/catalogue.ts';
import type { Steps } from '../../builtin-tenants/speech/models/install.ts';
import type { ModelShelf } from '../../builtin-tenants/speech/models/shelf.ts';
import type { Trial } from '../../builtin-tenants/speech/models/trial.ts';
import type { Config } from '../shared/config.ts';
import { fileSize } from '../shared/file-size.ts';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

/** A smaller step than this is not worth a line. */
const TELL_PERCENT = 5;
const TELL_BYTES = 50_000_000;
const SHA256 = /^[0-9a-f]{64}$/i;

export function speechCommand(deps?: CommandDeps): Command {
  return new Command('speech')
    .description('operator: models by which this host hears speech')
    .addCommand(
      new Command('models')
        .description('list models: published ones, and those that are here')
        .action(withSession(deps, list)),
    )
    .addCommand(
      new Command('install')
        .description('download a model, try it, and use it')
        .argument('[model]', 'name from `turnpike speech models`, or the https address of an archive or model file')
        .option('--from <path>', 'an archive, a model file or a folder that you brought here; nothing is downloaded')
        .option('--mirror <url>', 'a folder on another server that has the file by the same name')
        .option('--sha256 <sum>', 'refuse a file that has another sum')
        .option('--keep-current', 'do not use it yet')
        .addHelpText('after', EXAMPLES)
        .action(withSession(deps, install)),
    )
    .addCommand(
      new Command('use')
        .description('use a model that is here; `none`: whatever else is installed')
        .argument('<model>')
        .action(withSession(deps, use)),
    )
    .addCommand(
      new Command('remove')
        .description('remove a model from this host')
        .argument('<model>')
        .action(withSession(deps, remove)),
    );
}

interface InstallOptions {
  from?: string;
  mirror?: string;
  sha256?: string;
  keepCurrent?: boolean;
}

async function list(session: Session): Promise<void> {
  const [{ PUBLISHED, RECOMMENDED }, { shelf }] = await Promise.all([catalogue(), openShelf(session)]);
  const { shelfName } = await import('../../builtin-tenants/speech/models/install.ts');
  const here = await shelf.list();
  const inUse = shelf.inUse();
  const state = (name: string) => {
    if (inUse !== undefined && basename(inUse) === name) return 'in use';
    return here.includes(name) ? 'installed' : '';
  };
  const published = PUBLISHED.map((model) => ({ ...model, state: state(shelfName(model.url)) }));
  const known = new Set(PUBLISHED.map(({ url }) => shelfName(url)));
  const others = here.filter((name) => !known.has(name)).map((name) => ({ name, state: state(name) }));
  const rows = [
    ['model', 'size', 'languages', 'licence', 'engine', ''],
    ...published.map((model) => [
      model.name,
      fileSize(model.bytes),
      model.languages,
      model.licence,
      model.engine,
      model.state || (model.name === RECOMMENDED ? 'recommended' : ''),
    ]),
    ...others.map(({ name, state }) => [name, '', '', '', '', state]),
  ];
  session.printer.result(
    { published, others },
    `${table(rows)}\n\nwhisper.cpp's models need its program whisper-cli. Install one: turnpike speech install ${RECOMMENDED}`,
  );
}

async function install(session: Session, wanted: string | undefined, options: InstallOptions): Promise<void> {
  const source = sourceOf(session, await catalogue(), wanted, options);
  const { shelf, config } = await openShelf(session);
  const { installFromPath, installFromUrl } = await import('../../builtin-tenants/speech/models/install.ts');
  const steps = stepsOf(session);
  const { path, sha256 } = await asFailure(async () =>
    source.path === undefined
      ? installFromUrl(shelf, source, steps)
      : { path: await installFromPath(shelf, source.path, steps), sha256: undefined },
  );
  const name = basename(path);
  const unknown = sha256 !== undefined && source.checksum === undefined;
  const sum = unknown ? [`sha256   ${sha256} (no sum is known here: compare it with the publisher's)`] : [];
  steps.step('trying it');
  const trial = await tryOut(path, config, session, name);
  if (options.keepCurrent !== true) await shelf.use(name);
  const inUse = options.keepCurrent === true ? false : await takesIt(session, shelf, config, name);
  session.printer.result(
    { model: name, path, sha256, trial, inUse },
    [`model    ${name}`, ...sum, ...trialLines(trial), useLine(inUse, name, config)].join('\n'),
  );
}

async function use(session: Session, wanted: string): Promise<void> {
  const { shelf, config } = await openShelf(session);
  if (wanted === 'none') {
    await shelf.use(undefined);
    session.printer.result({ model: null }, 'No installed model is used any more.');
    return;
  }
  const name = await nameHere(shelf, wanted);
  const trial = await tryOut(shelf.pathOf(name), config, session, name);
  await shelf.use(name);
  const inUse = await takesIt(session, shelf, config, name);
  const lines = [`model    ${name}`, ...trialLines(trial), useLine(inUse, name, config)];
  session.printer.result({ model: name, trial, inUse }, lines.join('\n'));
}

async function remove(session: Session, wanted: string): Promise<void> {
  const { shelf } = await openShelf(session);
  const name = await nameHere(shelf, wanted);
  const inUse = shelf.inUse();
  if (inUse !== undefined && basename(inUse) === name)
    throw new Failure('usage', `${name} is in use: turnpike speech use <another>, or none, comes first.`);
  await shelf.remove(name);
  session.printer.result({ removed: name }, `${name} is removed.`);
}

interface Source {
  url: string;
  checksum: Checksum | undefined;
  /** Set: nothing is downloaded. */
  path?: string;
}

type Catalogue = typeof import('../../builtin-tenants/speech/models/catalogue.ts');

function catalogue(): Promise<Catalogue> {
  return import('../../builtin-tenants/speech/models/catalogue.ts');
}

/** @throws Failure `usage` */
function sourceOf(session: Session, known: Catalogue, wanted: string | undefined, options: InstallOptions): Source {
  const { from, mirror, sha256 } = options;
  if (sha256 !== undefined && !SHA256.test(sha256)) throw new Failure('usage', '--sha256 takes 64 hexadecimal digits.');
  if (from !== undefined) {
    if (sha256 !== undefined || mirror !== undefined || wanted !== undefined)
      throw new Failure('usage', '--from says which model it is: leave out its name, --mirror and --sha256.');
    return { url: '', checksum: undefined, path: resolve(session.terminal.cwd, from) };
  }
  if (wanted === undefined)
    throw new Failure(
      'usage',
      `Which model? turnpike speech models lists them; ${known.RECOMMENDED} is a good first one.`,
    );
  const own: Checksum | undefined =
    sha256 === undefined ? undefined : { algorithm: 'sha256', value: sha256.toLowerCase() };
  const published: Pick<PublishedModel, 'url' | 'checksum'> | undefined =
    known.PUBLISHED.find(({ name }) => name === wanted) ?? addressOf(wanted);
  if (published === undefined)
    throw new Failure('usage', `There is no model ${wanted}: turnpike speech models lists them.`);
  const url = mirror === undefined ? published.url : mirrored(mirror, published.url);
  return { url, checksum: own ?? published.checksum };
}

function addressOf(text: string): { url: string } | undefined {
  const url = URL.parse(text);
  return url?.protocol === 'https:' || isLoopback(url) ? { url: text } : undefined;
}

/** @throws Failure `usage`: what came in clear could have been exchanged on the way */
function mirrored(mirror: string, url: string): string {
  const folder = URL.parse(mirror.endsWith('/') ? mirror : `${mirror}/`);
  if (folder === null || (folder.protocol !== 'https:' && !isLoopback(folder)))
    throw new Failure('usage', '--mirror takes an https address.');
  return new URL(basename(new URL(url).pathname), folder).href;
}

function isLoopback(url: URL | null): boolean {
  return url?.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname);
}

async function openShelf(session: Session): Promise<{ shelf: ModelShelf; config: Config }> {
  const [{ ModelShelf }, { loadConfig }] = await Promise.all([
    import('../../builtin-tenants/speech/models/shelf.ts'),
    import('../supervisor/configuration.ts'),
  ]);
  const { cwd, env } = session.terminal;
  const config = loadConfig({ folder: cwd, env, flags: [] });
  const folder = session.dataFolders.find((one) => existsSync(join(one, 'registry.db')));
  if (folder === undefined) {
    throw new Failure(
      'usage',
      `There is no host's data in ${session.dataFolders.join(' or ')}: start the host once, or name its folder with --data.`,
    );
  }
  return { shelf: new ModelShelf(resolve(folder)), config };
}

/** @param wanted a name from the list, or that of the folder or file */
async function nameHere(shelf: ModelShelf, wanted: string): Promise<string> {
  const [{ PUBLISHED }, { shelfName }] = await Promise.all([
    catalogue(),
    import('../../builtin-tenants/speech/models/install.ts'),
  ]);
  const published = PUBLISHED.find(({ name }) => name === wanted);
  const name = published === undefined ? wanted : shelfName(published.url);
  if (!(await shelf.has(name)))
    throw new Failure('usage', `${wanted} is not installed: turnpike speech models lists what is.`);
  return name;
}

async function tryOut(path: string, config: Config, session: Session, name: string): Promise<Trial> {
  const { tryModel } = await import('../../builtin-tenants/speech/models/trial.ts');
  return tryModel(path, config.speech, session.terminal.signal).catch((error: Error) => {
    throw new Failure('unexpected', `${name} is installed, and not used: ${error.message}`);
  });
}

/** @returns whether the running host's engine uses it now; undefined: no host runs on the folder */
async function takesIt(
  session: Session,
  shelf: ModelShelf,
  config: Config,
  name: string,
): Promise<boolean | undefined> {
  if (config.speech.listenModel !== '' || config.speech.listenEngine !== 'auto') return false;
  const running = await callOperator(session, 'GET', '/healthz', undefined, [503]).catch(() => undefined);
  if (running === undefined) return undefined;
  const { engineUses } = await import('../../builtin-tenants/speech/models/trial.ts');
  return engineUses(join(shelf.folder, '..', 'run'), name, session.terminal.signal);
}

function trialLines({ sample, transcript, audioSeconds, tookSeconds }: Trial): string[] {
  return [
    `played   ${sample} (${audioSeconds.toFixed(1)} s)`,
    `heard    ${transcript === '' ? '(nothing)' : transcript}`,
    `took     ${tookSeconds.toFixed(1)} s, loading included`,
  ];
}

function useLine(inUse: boolean | undefined, name: string, config: Config): string {
  if (inUse === undefined) return 'in use   from the next start of the host on';
  if (inUse) return 'in use   now';
  if (config.speech.listenModel !== '') return 'in use   no: the setting speech.listenModel names another';
  if (config.speech.listenEngine !== 'auto')
    return `in use   no: the setting speech.listenEngine is ${config.speech.listenEngine}`;
  return `in use   no: turnpike speech use ${name}`;
}

function stepsOf(session: Session): Steps {
  let told = 0;
  return {
    signal: session.terminal.signal,
    step: (text) => session.printer.progress(text),
    progress(bytes, total) {
      const least = total === undefined ? TELL_BYTES : (total * TELL_PERCENT) / 100;
      if (bytes !== total && bytes >= told && bytes - told < least) return;
      told = bytes;
      const percent = total === undefined ? '' : ` of ${fileSize(total)}, ${Math.floor((bytes * 100) / total)} %`;
      session.printer.progress(`downloaded ${fileSize(bytes)}${percent}`);
    },
  };
}

async function asFailure<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new Failure('unexpected', (error as Error).message);
  }
}

const EXAMPLES = `
Examples:
  $ turnpike speech install parakeet-v3
  $ turnpike speech install parakeet-v3 --mirror https://mirror.example.com/asr-models
  $ turnpike speech install --from ./sherpa-onnx-whisper-base.en.tar.bz2

A download that broke off goes on with the same command. A proxy is taken from HTTPS_PROXY.`;
