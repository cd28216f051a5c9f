/** `turnpike speech`: the models by which the host's speech engine hears, tells speakers apart, punctuates and speaks. */
import { basename, join, resolve } from 'node:path';
import { Command } from 'commander';
import type { Checksum, ModelKind, PublishedModel } from '../../builtin-tenants/speech/models/catalogue.ts';
import type { Steps } from '../../builtin-tenants/speech/models/install.ts';
import type { ModelShelf } from '../../builtin-tenants/speech/models/shelf.ts';
import type { HelperTrial, Trial, VoiceTrial } from '../../builtin-tenants/speech/models/trial.ts';
import type { Config } from '../shared/config.ts';
import { fileSize } from '../shared/file-size.ts';
import { callOperator } from './operator-client.ts';
import { ownFolder } from './own-folder.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

/** A smaller step than this is not worth a line. */
const TELL_PERCENT = 5;
const TELL_BYTES = 50_000_000;
const SHA256 = /^[0-9a-f]{64}$/i;

export function speechCommand(deps?: CommandDeps): Command {
  return new Command('speech')
    .description('operator: models by which this host hears and speaks')
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
        .description('use a model that is here; `none`: hear by whatever else is installed')
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
  const [{ PUBLISHED, RECOMMENDED, RECOMMENDED_VOICE }, { shelf }] = await Promise.all([
    catalogue(),
    openShelf(session),
  ]);
  const { shelfName, kindOf } = await import('../../builtin-tenants/speech/models/install.ts');
  const here = await shelf.list();
  const inUse = new Set(
    [shelf.inUse() ?? '', ...shelf.voicesInUse(), ...shelf.helpersInUse()].map((path) => basename(path)),
  );
  const state = (name: string) => {
    if (inUse.has(name)) return 'in use';
    return here.includes(name) ? 'installed' : '';
  };
  const published = PUBLISHED.map((model) => ({ ...model, state: state(shelfName(model.url)) }));
  const known = new Set(PUBLISHED.map(({ url }) => shelfName(url)));
  const others = await Promise.all(
    here
      .filter((name) => !known.has(name))
      .map(async (name) => ({
        name,
        kind: await kindOf(shelf.pathOf(name)),
        state: state(name),
      })),
  );
  const recommended = [RECOMMENDED, RECOMMENDED_VOICE];
  const rows = [
    ['model', '', 'size', 'languages', 'licence', 'engine', 'sum', ''],
    ...published.map((model) => [
      model.name,
      model.kind,
      fileSize(model.bytes),
      model.languages,
      model.licence,
      model.engine,
      model.checksum?.algorithm ?? 'not known',
      model.state || (recommended.includes(model.name) ? 'recommended' : ''),
    ]),
    ...others.map(({ name, kind, state }) => [name, kind, '', '', '', '', '', state]),
  ];
  session.printer.result(
    { published, others },
    `${table(rows)}\n\nwhisper.cpp's models need its program whisper-cli. Install one: turnpike speech install ${RECOMMENDED}, and for a voice: turnpike speech install ${RECOMMENDED_VOICE}`,
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
  const role = await roleOf(path);
  const { trial, lines } = await role.tryOut(path, { config, session, shelf, name });
  if (options.keepCurrent !== true) await role.use(shelf, name);
  const inUse = options.keepCurrent === true ? false : await takesIt(session, shelf, role.otherwise(config), name);
  session.printer.result(
    { model: name, path, sha256, kind: role.kind, trial, inUse },
    [`model    ${name}`, ...sum, ...lines, useLine(inUse, name, role.otherwise(config))].join('\n'),
  );
}

/** What a model is for decides how it is tried, and beside what it is used. */
interface Role {
  kind: ModelKind;
  /** @throws Failure */
  tryOut(
    path: string,
    context: { config: Config; session: Session; shelf: ModelShelf; name: string },
  ): Promise<{ trial: object; lines: string[] }>;
  use(shelf: ModelShelf, name: string): Promise<void>;
  /** The setting by which the host does not look at what is installed. */
  otherwise(config: Config): string | undefined;
}

const HEARS: Role = {
  kind: 'hears',
  async tryOut(path, { config, session, name }) {
    const { tryModel } = await import('../../builtin-tenants/speech/models/trial.ts');
    const trial = await tryModel(path, config.speech, session.terminal.signal).catch(notUsed(name));
    return { trial, lines: trialLines(trial) };
  },
  use: (shelf, name) => shelf.use(name),
  otherwise({ speech: { listenModel, listenEngine } }) {
    if (listenModel !== '') return 'speech.listenModel names another';
    return listenEngine === 'auto' ? undefined : `speech.listenEngine is ${listenEngine}`;
  },
};

const SPEAKS: Role = {
  kind: 'speaks',
  async tryOut(path, { name }) {
    const { tryVoice } = await import('../../builtin-tenants/speech/models/trial.ts');
    const trial = await tryVoice(path).catch(notUsed(name));
    return { trial, lines: voiceLines(trial) };
  },
  use: (shelf, name) => shelf.useVoice(name),
  otherwise: ({ speech: { speakEngine } }) =>
    speakEngine === 'auto' || speakEngine === 'sherpa-onnx' ? undefined : `speech.speakEngine is ${speakEngine}`,
};

const HELPS: Role = {
  kind: 'helps',
  async tryOut(path, { session, shelf, name }) {
    const { tryHelper } = await import('../../builtin-tenants/speech/models/trial.ts');
    const trial: HelperTrial = await tryHelper(path, shelf.helpersInUse(), session.terminal.signal).catch(
      notUsed(name),
    );
    return { trial, lines: [`result   ${trial.result}`] };
  },
  use: (shelf, name) => shelf.useHelper(name),
  otherwise: () => undefined,
};

async function roleOf(path: string): Promise<Role> {
  const { kindOf } = await import('../../builtin-tenants/speech/models/install.ts');
  const roles: Record<ModelKind, Role> = { hears: HEARS, speaks: SPEAKS, helps: HELPS };
  return roles[await kindOf(path)];
}

function notUsed(name: string): (error: Error) => never {
  return (error) => {
    throw new Failure('unexpected', `${name} is installed, and not used: ${error.message}`);
  };
}

async function use(session: Session, wanted: string): Promise<void> {
  const { shelf, config } = await openShelf(session);
  if (wanted === 'none') {
    await shelf.use(undefined);
    session.printer.result({ model: null }, 'No installed model is used any more.');
    return;
  }
  const name = await nameHere(shelf, wanted);
  const role = await roleOf(shelf.pathOf(name));
  const { trial, lines } = await role.tryOut(shelf.pathOf(name), { config, session, shelf, name });
  await role.use(shelf, name);
  const otherwise = role.otherwise(config);
  const inUse = await takesIt(session, shelf, otherwise, name);
  const all = [`model    ${name}`, ...lines, useLine(inUse, name, otherwise)];
  session.printer.result({ model: name, kind: role.kind, trial, inUse }, all.join('\n'));
}

async function remove(session: Session, wanted: string): Promise<void> {
  const { shelf } = await openShelf(session);
  const name = await nameHere(shelf, wanted);
  const inUse = shelf.inUse();
  if (inUse !== undefined && basename(inUse) === name)
    throw new Failure('usage', `${name} is in use: turnpike speech use <another>, or none, comes first.`);
  await shelf.drop(name);
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
  return { shelf: new ModelShelf(ownFolder(session)), config };
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

/** @returns whether the running host's engine uses it now; undefined: no host runs on the folder */
async function takesIt(
  session: Session,
  shelf: ModelShelf,
  otherwise: string | undefined,
  name: string,
): Promise<boolean | undefined> {
  if (otherwise !== undefined) return false;
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

function voiceLines({ sample, sampleRate, speakers, audioSeconds, tookSeconds }: VoiceTrial): string[] {
  return [
    `said     ${sample} (${audioSeconds.toFixed(1)} s, ${sampleRate} Hz)`,
    `speakers ${speakers}`,
    `took     ${tookSeconds.toFixed(1)} s, loading included`,
  ];
}

function useLine(inUse: boolean | undefined, name: string, otherwise: string | undefined): string {
  if (inUse === undefined) return 'in use   from the next start of the host on';
  if (inUse) return 'in use   now';
  if (otherwise !== undefined) return `in use   no: the setting ${otherwise}`;
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
  $ turnpike speech install kokoro-en
  $ turnpike speech install speakers-pyannote && turnpike speech install speakers-titanet
  $ turnpike speech install parakeet-v3 --mirror https://mirror.example.com/asr-models
  $ turnpike speech install --from ./sherpa-onnx-whisper-base.en.tar.bz2

A download that broke off goes on with the same command. A proxy is taken from HTTPS_PROXY.`;
