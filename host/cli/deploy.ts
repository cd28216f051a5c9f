/** `turnpike deploy`: bundles, shows the price, pays, waits until the URL answers. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import type { Metadata } from './metadata-view.ts';
import { bundleEntry } from './project/bundle.ts';
import { type ProjectFlags, projectSettings, slugKey, slugOf } from './project/manifest.ts';
import { addProjectOptions } from './project/options.ts';
import { readManifestSecrets, readSecretFlags } from './project/secrets.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { isLoopback } from './wallet/local-host.ts';

const LIVE_WITHIN_MS = 20_000;

export function deployCommand(deps?: CommandDeps): Command {
  const command = new Command('deploy')
    .description('deploy a handler to a new slug; the paying wallet owns it')
    .argument('[entry]', 'file with the default export; default: "entry" of turnpike.json')
    .action(withSession(deps, deploy))
    .addHelpText(
      'after',
      `
Example:
  $ turnpike deploy ./src/index.ts --slug hello --kv --secret API_KEY=@key.txt --price "POST /v1/x=0.05"`,
    );
  return addProjectOptions(command);
}

async function deploy(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const { terminal, printer } = session;
  const project = await session.project(entry, flags.manifest);
  const slug = slugOf(project, flags.slug);
  const file = entry ?? project.manifest.entry;
  if (file === undefined) throw new Failure('usage', 'Which file? Give it, or "entry" in turnpike.json.');
  printer.progress(`bundle  ${file}`);
  const code = await bundleEntry(file, project, entry === undefined ? undefined : terminal, flags.root);
  const secrets = {
    ...(await readManifestSecrets(project, terminal, (variable, name) =>
      session.allowVariable(project, variable, name),
    )),
    ...(await readSecretFlags(flags.secret ?? [], terminal)),
  };
  const body = {
    slug,
    ...code,
    ...projectSettings(project, flags),
    ...(Object.keys(secrets).length > 0 ? { secrets } : {}),
  };
  const host = await session.host();
  const answer = await host.pay<Metadata>('POST', '/_admin/deploy', body, randomUUID()).catch((error) => {
    throw error instanceof Failure && error.document?.code === 'slug_taken' ? takenHint(error, slug) : error;
  });
  printer.progress(`paid    ${answer.paid?.amount ?? '0'} USD`);
  printer.progress('wait    until it answers');
  await session.consent.remember(project.folder, slugKey(slug, host.origin));
  if (mayBeCalled(answer.body.url, session.hostUrl)) await waitUntilLive(session, answer.body.url);
  printer.result({ ...answer.body, paid: answer.paid ?? null }, `${answer.body.url}`);
}

/** The address is the host's word: one on the internet does not make this machine call its own network. */
function mayBeCalled(text: unknown, hostUrl: URL): boolean {
  const url = typeof text === 'string' ? URL.parse(text) : null;
  if (!url || !/^https?:$/.test(url.protocol)) return false;
  if (url.hostname === hostUrl.hostname || url.hostname.endsWith(`.${hostUrl.hostname}`)) return true;
  return isLoopback(url) ? isLoopback(hostUrl) : url.protocol === 'https:' && /\.[a-z][a-z0-9-]*$/i.test(url.hostname);
}

function takenHint(error: Failure, slug: string): Failure {
  return new Failure('refused', `${error.message} If it is yours: turnpike update --slug ${slug}.`, error.document);
}

/** Any answer of the handler will do, an error of its own too; what the host says for it (starting) will not. */
async function waitUntilLive(session: Session, url: string): Promise<void> {
  const deadline = performance.now() + LIVE_WITHIN_MS;
  for (;;) {
    const response = await session
      .fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(LIVE_WITHIN_MS) })
      .catch(() => undefined);
    const hosts =
      response?.headers.get('content-type') === 'application/problem+json' && [404, 503].includes(response.status);
    await response?.body?.cancel();
    if (response && !hosts) return;
    if (performance.now() > deadline || session.terminal.signal.aborted) {
      throw new Failure('unreachable', `It is deployed and paid, but ${url} does not answer yet. See turnpike logs.`);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
