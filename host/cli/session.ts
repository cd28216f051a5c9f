/**
 * What every command shares: the global options, the printer, the host at the other end, the wallet.
 * Made once per run from the command line; nothing in it is looked up before it is needed.
 */

import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { deployKeyId } from '../shared/deploy-keys.ts';
import { formatUsd, micro, parseUsd } from '../shared/money.ts';
import { guardedFetch } from './answer.ts';
import { Consent } from './consent.ts';
import { HostClient } from './host-client.ts';
import { Assets, parseAllowedAsset } from './paying/assets.ts';
import type { Protocol } from './paying/offers.ts';
import type { PayOptions } from './paying/pay-request.ts';
import { type Project, readProject } from './project/manifest.ts';
import { Failure } from './terminal/failure.ts';
import { plainTerminal } from './terminal/plain-text.ts';
import { Printer } from './terminal/printer.ts';
import { processTerminal, type Terminal } from './terminal/terminal.ts';
import { type ChosenWallet, chooseWallet } from './wallet/choose.ts';
import { announcedUrl, dataFolders, findLocalHost, type LocalHost } from './wallet/local-host.ts';

/** What a command may be given instead of the real thing. */
export interface CommandDeps {
  terminal: Terminal;
  fetch: typeof fetch;
}

export interface GlobalOptions {
  json?: boolean;
  hostUrl?: string;
  wallet?: string;
  data?: string;
  yes?: boolean;
  maxPay?: string;
  protocol?: Protocol;
  rpcUrl?: string;
  allowAsset?: string[];
  allowEnv?: string[];
  allowHttp?: boolean;
  /** The host of `turnpike dev` in the working folder. */
  local?: boolean;
}

/** Where `turnpike dev` keeps its host's data, below the project. */
export const DEV_FOLDER = join('.turnpike', 'dev');

export const DEPLOY_KEY_VARIABLE = 'TURNPIKE_DEPLOY_KEY';
export const DEFAULT_HOST_URL = 'http://localhost:8402';
/** Most that `--yes` pays without `--max-pay`, unless the user's settings say otherwise, USD. */
export const DEFAULT_MAX_PAY = '0.20';

export class Session {
  readonly terminal: Terminal;
  readonly printer: Printer;
  readonly options: GlobalOptions;
  /** Follows no redirect, and sends no secret without TLS. */
  readonly fetch: typeof fetch;
  readonly consent: Consent;
  /** Named by an option or the environment; before all else. */
  readonly #namedHost: string | undefined;
  #hostUrl: URL | undefined;
  /** The project that alone names the host; undefined: the user does. */
  #namedBy: Project | undefined;
  #called: URL | undefined;
  #localHost: Promise<LocalHost | undefined> | undefined;
  #wallet: Promise<ChosenWallet> | undefined;

  constructor(deps: CommandDeps, options: GlobalOptions) {
    this.terminal = plainTerminal(deps.terminal);
    this.fetch = guardedFetch(deps.fetch, options.allowHttp === true);
    this.options = options.local
      ? { ...options, data: join(deps.terminal.cwd, DEV_FOLDER), wallet: 'test:0' }
      : options;
    this.printer = new Printer(this.terminal, options.json === true);
    this.consent = new Consent(this.terminal, this.#asks);
    this.#namedHost = options.local ? this.#devHost() : (options.hostUrl ?? deps.terminal.env.TURNPIKE_URL);
    this.#hostUrl = this.namedUrl;
  }

  /** @throws Failure `usage` where none was started in the working folder */
  #devHost(): string {
    const url = announcedUrl(this.dataFolders);
    if (url === undefined)
      throw new Failure('usage', 'There is no turnpike dev in this folder; start it in another terminal.');
    return url;
  }

  /** The named host, else the project's, else the one that a data folder of this machine tells of. */
  get hostUrl(): URL {
    this.#hostUrl ??= this.#announcedUrl();
    return this.#hostUrl;
  }

  /** The host that an option or the environment names. */
  get namedUrl(): URL | undefined {
    return this.#namedHost === undefined ? undefined : parseHostUrl(this.#namedHost);
  }

  #announcedUrl(): URL {
    return parseHostUrl(announcedUrl(this.dataFolders) ?? DEFAULT_HOST_URL);
  }

  /** Whether a person can be asked. */
  get #asks(): boolean {
    return this.terminal.interactive && this.options.json !== true;
  }

  /** @throws Failure when the project alone names the host, and the user does not confirm it */
  async #confirmHost(): Promise<void> {
    const { origin } = this.hostUrl;
    if (this.#namedBy === undefined) return;
    const { hosts } = await this.consent.settings();
    if (hosts?.some((host) => URL.parse(host)?.origin === origin)) return;
    await this.consent.require(this.#namedBy.folder, {
      key: `host ${origin}`,
      question: `The project names the host ${origin}. Send its code and secrets there, and pay there?`,
      otherwise: `Confirm it with --host-url ${origin}, or once at a terminal.`,
    });
  }

  /** May the project have this variable of the environment on this host? @throws Failure when not */
  async allowVariable(project: Project, variable: string, secret: string): Promise<void> {
    if (this.options.allowEnv?.includes(variable)) return;
    const { origin } = this.hostUrl;
    await this.consent.require(project.folder, {
      key: `env ${variable} ${origin}`,
      question: `The project asks for the environment variable ${variable}, as its secret ${secret} on ${origin}. Give it?`,
      otherwise: `Allow it with --allow-env ${variable}, or once at a terminal.`,
    });
  }

  /**
   * The project of the working folder, or of an entry file. Its host is talked to from then on, if no other is named,
   * and the user has confirmed it.
   * @throws Failure `usage`
   */
  async project(entry?: string, { manifest, env }: { manifest?: string; env?: string } = {}): Promise<Project> {
    const project = await readProject(this.terminal, entry, manifest, env);
    const { host } = project.manifest;
    if (host !== undefined && this.#namedHost === undefined) {
      const known = this.#announcedUrl();
      this.#hostUrl = parseHostUrl(host);
      if (this.#hostUrl.origin !== known.origin) this.#namedBy = project;
    }
    return project;
  }

  get dataFolders(): string[] {
    return dataFolders(this.terminal, this.options.data);
  }

  localHost(): Promise<LocalHost | undefined> {
    this.#localHost ??= this.#findLocalHost();
    return this.#localHost;
  }

  /** Before anything is paid: the URL that is called. If it is a host on this machine, that one's test money pays. */
  calls(url: URL): void {
    this.#called = url;
  }

  async #findLocalHost(): Promise<LocalHost | undefined> {
    const called = this.#called && (await findLocalHost(this.#called, this.dataFolders));
    return called ?? findLocalHost(this.hostUrl, this.dataFolders);
  }

  /**
   * The deploy key of the environment, with which no wallet is needed. A wallet that an option names comes before it.
   * @throws Failure `usage`
   */
  get deployKey(): string | undefined {
    const key = this.terminal.env[DEPLOY_KEY_VARIABLE];
    if (!key || this.options.wallet !== undefined) return undefined;
    if (deployKeyId(key) !== undefined) return key;
    throw new Failure('usage', `${DEPLOY_KEY_VARIABLE} holds no deploy key; it is what turnpike keys create printed.`);
  }

  wallet(): Promise<ChosenWallet> {
    this.#wallet ??= this.localHost().then((local) =>
      chooseWallet(this.terminal, this.options.wallet, local, this.hostUrl),
    );
    return this.#wallet;
  }

  /** @throws Failure when the user has not confirmed the host that a project names */
  async host(): Promise<HostClient> {
    await this.#confirmHost();
    return new HostClient({
      url: this.hostUrl,
      fetch: this.fetch,
      signal: this.terminal.signal,
      deployKey: this.deployKey,
      paying: () => this.paying('for this host', true, true),
      allowHttp: this.options.allowHttp === true,
    });
  }

  /** The limit of `--max-pay`; undefined: the person is asked. */
  get maxMicroUsd(): bigint | undefined {
    return this.options.maxPay === undefined ? undefined : parseLimit(this.options.maxPay);
  }

  /** Whether to spend credit: yes with a limit or --yes, else the person is asked. */
  async approveCredit({ usd, balanceUsd }: { usd: string; balanceUsd: string }): Promise<boolean> {
    const { options, terminal } = this;
    this.printer.progress(`price   ${usd} USD of ${balanceUsd} USD credit`);
    if (options.maxPay !== undefined) return true;
    if (options.yes) return this.#withinYes(parseUsd(usd));
    if (this.#asks) return terminal.confirm(`Pay ${usd} USD from credit?`);
    throw new Failure('usage', `It costs ${usd} USD. Say yes with --yes, or set a limit with --max-pay ${usd}.`);
  }

  /**
   * A yes without a limit is no yes to any price: whoever asks for the money names it.
   * @param told a lower limit: the amount that the user named, or the price that the host publishes
   * @throws Failure `payment`
   */
  async #withinYes(microUsd: bigint, told?: bigint): Promise<true> {
    const cap = parseUsd((await this.consent.settings()).maxPay ?? DEFAULT_MAX_PAY);
    if (microUsd <= (told ?? cap)) return true;
    const usd = formatUsd(micro(microUsd));
    throw new Failure(
      'payment',
      `It costs ${usd} USD; --yes alone pays at most ${formatUsd(micro(told ?? cap))} USD${told === undefined ? '' : ', as published'}. If that is right: --max-pay ${usd}.`,
    );
  }

  /**
   * How to pay, from the global options.
   * @param what names the thing in the question to the person
   * @param ownHost whether the host is Turnpike's own API, which takes a challenge without the body
   * @param told what the user named as the amount, micro-USD: `--yes` pays this much
   */
  async paying(what: string, repeatable: boolean, ownHost = false, told?: bigint): Promise<PayOptions> {
    const [{ account, source }, local] = await Promise.all([this.wallet(), this.localHost()]);
    const { options, terminal } = this;
    const { maxMicroUsd } = this;
    return {
      policy: {
        protocol: options.protocol,
        maxMicroUsd,
        assets: new Assets(local?.network, (options.allowAsset ?? []).map(parseAllowedAsset)),
      },
      signer: { account, local: local?.network, rpcUrl: options.rpcUrl },
      approve: async ({ usd, microUsd, offer, symbol, testMoney }) => {
        const price = `${offer.intent === 'upto' ? 'at most ' : ''}${usd} USD`;
        const how = `${symbol}${testMoney ? ', worth nothing' : ''}, chain ${offer.chainId}, ${offer.protocol}`;
        this.printer.progress(`price   ${price} (${how})`);
        this.printer.progress(`wallet  ${account.address} (${source})`);
        if (maxMicroUsd !== undefined) return true;
        if (options.yes) return this.#withinYes(microUsd, told);
        if (this.#asks) return terminal.confirm(`Pay ${price} ${what}?`);
        throw new Failure('usage', `It costs ${price}. Say yes with --yes, or set a limit with --max-pay ${usd}.`);
      },
      repeatable,
      ownHost,
      unasked: options.yes === true && maxMicroUsd === undefined,
      fetch: this.fetch,
    };
  }
}

/** The dependencies of the real command. */
export function processDeps(): CommandDeps {
  return { terminal: processTerminal(homedir()), fetch };
}

/** Wraps a command's work: makes its session from the options before and after the command's name. */
export function withSession<Args extends unknown[]>(
  deps: CommandDeps | undefined,
  work: (session: Session, ...args: Args) => Promise<void>,
): (...args: [...Args, Command]) => Promise<void> {
  return async (...all) => {
    const command = all.at(-1) as Command;
    const args = all.slice(0, -1) as Args;
    await work(new Session(deps ?? processDeps(), command.optsWithGlobals()), ...args);
  };
}

function parseHostUrl(text: string): URL {
  const url = URL.parse(text);
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new Failure(
      'usage',
      `Not a host's address: ${text}. It looks like https://host.example or ${DEFAULT_HOST_URL}.`,
    );
  }
  return url;
}

function parseLimit(text: string): bigint {
  try {
    return parseUsd(text.replace(/^\$/, ''));
  } catch {
    throw new Failure('usage', `Not an amount: ${text}. It takes USD, such as 0.25.`);
  }
}
