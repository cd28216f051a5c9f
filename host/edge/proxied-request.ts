/**
 * One request on its way through the edge: from the caller to an instance or to control, and the answer back.
 * Streams both ways; whatever dies on one side ends the other.
 */
import type { Socket } from 'node:net';
import type { UpstreamCall, UpstreamError, UpstreamHandler, UpstreamPool } from '../http/client/pool.ts';
import { joinSockets } from '../http/instance/tunnel.ts';
import { type Block, OWNED } from '../http/message/blocks.ts';
import type { AnswerLength, Exchange, ExchangeListener } from '../http/message/exchange.ts';
import type { ResponseHead } from '../http/message/head.ts';
import type { EdgeTraffic } from '../shared/contracts.ts';
import { nodeHttp } from '../shared/node-http.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import type { ActiveList } from './active-list.ts';
import { type AnswerPlace, answerFields } from './answer-fields.ts';
import type { Contention } from './contention.ts';
import type { Instance } from './instances.ts';
import { answerProblem } from './problem-answer.ts';
import type { UnfinishedBodies } from './unfinished-bodies.ts';
import type { Lesson } from './unpaid-calls.ts';

/** What all requests on their way through a process share. */
export interface ProxyEnvironment {
  /** Origin of the host; empty: not known. */
  home: string;
  /** Value of a `Date` field. */
  date(): string;
  /** Requests under way, for the idle limit. */
  active: ActiveList<ProxiedRequest>;
  /** Whose requests go through this edge. */
  contention: Contention;
  /** Counts the sweeps of the idle limit; a clock that costs nothing to read. */
  sweeps: number;
  /** Bytes of request bodies that are kept to be sent again. */
  replayBytes: number;
  /** Of requests to control. */
  unfinished: UnfinishedBodies;
  /** An instance in place of one that nobody listens for any more. @throws Problem */
  replace(instance: Instance): Promise<Instance>;
  finished(proxied: ProxiedRequest): void;
}

export interface ProxyLimits {
  idleTimeoutMs: number;
  maxBodyBytes: number;
}

/** Where an answer comes from. */
type Upstream = Pick<UpstreamCall, 'write' | 'end' | 'flush' | 'pause' | 'resume' | 'destroy'>;

/** An answer that is made here. */
export interface LocalAnswer extends Upstream {
  begin(handler: UpstreamHandler): void;
}

/** How long control may take to say why an instance died. */
const DEATH_NOTICE_MS = 1_000;
/** Bytes of a request body that are kept until the target is known to be alive. */
const REPLAY_BYTES = 65_536;
/** Of all requests together: beyond it, a request is not sent again. */
const ALL_REPLAY_BYTES = 33_554_432;
/** What a kept piece takes beside its bytes. */
const PIECE_BYTES = 256;
const MAX_RETRIES = 2;
/** As nginx logs it: the caller closed the connection before the answer. */
const CALLER_LEFT = 499;
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

export class ProxiedRequest implements ExchangeListener, UpstreamHandler {
  readonly exchange: Exchange;
  readonly requestId: string;
  readonly place: AnswerPlace;
  readonly startedAt = performance.now();
  status = 0;
  slot = 0;
  #lastActivity: number;
  readonly #environment: ProxyEnvironment;
  readonly #limits: ProxyLimits;
  readonly #traffic: EdgeTraffic | undefined;
  #pool: UpstreamPool | undefined;
  /** undefined: control. */
  #instance: Instance | undefined;
  /** Whole head of the request, until the answer came. */
  #head = '';
  #call: Upstream | undefined;
  #endTunnel: (() => void) | undefined;
  /** The caller takes no more of the answer for now. */
  #answerPaused = false;
  #bodyBytes = 0;
  #bodyDone: boolean;
  /** Whose body it is, where it goes to control. */
  #network: string | undefined;
  #lesson: Lesson | undefined;
  #replay: Buffer[] | undefined;
  #retries = 0;
  #entered = false;
  /** Its answer has not begun. */
  #waits = false;
  #over = false;

  constructor(
    environment: ProxyEnvironment,
    exchange: Exchange,
    place: AnswerPlace,
    requestId: string,
    limits: ProxyLimits,
    traffic: EdgeTraffic | undefined,
  ) {
    this.#environment = environment;
    this.exchange = exchange;
    this.place = place;
    this.requestId = requestId;
    this.#limits = limits;
    this.#traffic = traffic;
    this.#lastActivity = environment.sweeps;
    this.#bodyDone = exchange.head.framing.kind === 'none';
    if (!this.#bodyDone) this.#replay = [];
    if (traffic) {
      traffic.requests += 1;
      traffic.inFlight += 1;
    }
    environment.active.add(this);
    exchange.listen(this);
  }

  /** Whose request it is; undefined: the host's own. */
  get slug(): string | undefined {
    return this.#traffic?.slug;
  }

  /** Sends the request, whose head is given whole. */
  toInstance(instance: Instance, head: string): void {
    this.#instance = instance;
    this.#head = head;
    this.#go(instance.pool);
  }

  answerFromHere(answer: LocalAnswer): void {
    if (this.#over) {
      answer.destroy();
      return;
    }
    this.#goesOn();
    this.#call = answer;
    answer.begin(this);
  }

  /** @param network of the caller @param lesson follows the answer */
  toControl(pool: UpstreamPool, head: string, network: string, lesson: Lesson | undefined): void {
    this.#head = head;
    this.#lesson = lesson;
    this.#go(pool);
    // Most bodies came with their head.
    if (this.#over || this.#bodyDone) return;
    this.#network = network;
    if (!this.#environment.unfinished.add(network, this)) this.giveWay();
  }

  /** To others, who have fewer bodies under way. */
  giveWay(): void {
    this.#call?.destroy();
    this.#broken(new Problem('overloaded', 'Too many request bodies are under way; try again in a few seconds.'));
  }

  #go(pool: UpstreamPool): void {
    if (this.#over) return;
    this.#goesOn();
    this.#send(pool, false);
    if (this.#bodyDone) return;
    this.exchange.receive();
    this.#call?.flush();
  }

  /** Answers with a problem, where no answer began. */
  refuse(problem: Problem): void {
    if (this.#over) return;
    this.status = problem.status;
    this.#leave();
    const { date, home } = this.#environment;
    answerProblem(this.exchange, problem, this.requestId, date(), home);
  }

  /** Applies the idle limit. @param sweepMs time between two sweeps */
  sweep(sweepMs: number): void {
    const idleMs = (this.#environment.sweeps - this.#lastActivity) * sweepMs;
    // A caller that does not read its answer is the connection's to cut off.
    if (idleMs <= this.#limits.idleTimeoutMs || this.#answerPaused) return;
    const seconds = this.#limits.idleTimeoutMs / 1000;
    this.cutOff(
      new Problem(
        'upstream_timeout',
        `No byte came for ${seconds} seconds; send the request again, and the body without pauses.`,
      ),
    );
  }

  /** Ends it. @param problem what is answered, where nothing was yet */
  cutOff(problem: Problem): void {
    if (this.#endTunnel) {
      this.#endTunnel();
    } else if (this.#call) {
      this.#call.destroy();
      this.#broken(problem);
    }
  }

  /** Something went by. */
  #goesOn(): void {
    this.#lastActivity = this.#environment.sweeps;
    this.#environment.contention.seen(this.#traffic?.slug ?? '');
  }

  // ------------------------------------------------------------------------------- the caller's side

  bodyData(chunk: Buffer, block: Block | undefined): void {
    if (this.#over) return;
    this.#goesOn();
    this.#bodyBytes += chunk.length;
    if (this.#traffic) this.#traffic.bytesIn += chunk.length;
    if (this.#bodyBytes > this.#limits.maxBodyBytes) {
      this.#call?.destroy();
      this.#broken(bodyTooLarge(this.#limits.maxBodyBytes));
      return;
    }
    if (this.#replay) {
      const { replayBytes } = this.#environment;
      const kept = chunk.length + PIECE_BYTES;
      if (this.#bodyBytes <= REPLAY_BYTES && replayBytes + kept <= ALL_REPLAY_BYTES) {
        this.#environment.replayBytes += kept;
        this.#replay.push(Buffer.from(chunk));
      } else this.#forgetBody();
    }
    if (this.#call?.write(chunk, block) === false) this.exchange.pause();
  }

  bodyEnd(): void {
    this.#bodyDone = true;
    this.#finishedBody();
    this.#goesOn();
    this.#call?.end();
  }

  answerDrained(): void {
    this.#goesOn();
    if (!this.#answerPaused) return;
    this.#answerPaused = false;
    this.#call?.resume();
  }

  aborted(): void {
    this.#call?.destroy();
    this.status ||= CALLER_LEFT;
    this.#leave();
  }

  // ------------------------------------------------------------------------------------ the answer's side

  informational(head: ResponseHead): void {
    this.#goesOn();
    this.exchange.informational(head.status, head.reason, head.fields);
  }

  /** The host's own pages act for the origin wherever they are shown; only control is believed about that. */
  #placeOf(head: ResponseHead): AnswerPlace {
    return head.own && this.#instance === undefined ? { ...this.place, trusted: true, own: true } : this.place;
  }

  head(head: ResponseHead): void {
    this.#goesOn();
    this.#answerBegan();
    this.#forgetBody();
    this.#head = '';
    this.status = head.status;
    this.#lesson?.head(head);
    this.exchange.answer(
      head.status,
      head.reason || (nodeHttp.STATUS_CODES[head.status] ?? ''),
      answerFields(head, this.#placeOf(head), this.requestId, this.#environment.date()),
      answerLength(head),
      head.contentLength,
    );
  }

  data(chunk: Buffer, block: Block | undefined): void {
    this.#goesOn();
    this.#wentOut(chunk.length);
    this.#lesson?.data(chunk);
    if (!this.exchange.write(chunk, block)) this.#pauseAnswer();
  }

  end(trailers: string): void {
    this.#call = undefined;
    this.#lesson?.end();
    this.#leave();
    this.exchange.finish(trailers);
  }

  #wentOut(bytes: number): void {
    const traffic = this.#traffic;
    if (traffic === undefined) return;
    traffic.bytesOut += bytes;
    if (this.#instance !== undefined) this.#instance.bytesOut += bytes;
  }

  flush(): void {
    if (!this.#over && !this.exchange.flush()) this.#pauseAnswer();
  }

  drained(): void {
    this.#goesOn();
    if (!this.#over) this.exchange.resume();
  }

  upgraded(head: ResponseHead, socket: Socket, rest: Buffer): void {
    this.#call = undefined;
    this.#answerBegan();
    this.status = 101;
    const fields = answerFields(head, this.place, this.requestId, this.#environment.date());
    const caller = this.exchange.upgrade(
      `HTTP/1.1 101 Switching Protocols\r\n${fields}connection: Upgrade\r\nupgrade: websocket\r\n\r\n`,
    );
    this.#endTunnel = joinSockets(caller.socket, caller.rest, socket, rest, {
      in: (bytes) => {
        this.#goesOn();
        if (this.#traffic) this.#traffic.bytesIn += bytes;
      },
      out: (bytes) => {
        this.#goesOn();
        this.#wentOut(bytes);
      },
      closed: () => this.#leave(),
    });
  }

  failed(error: UpstreamError): void {
    const instance = this.#instance;
    this.#call = undefined;
    if (this.#over) return;
    if (this.#mayRetry(error)) {
      this.#retries += 1;
      this.#depart();
      if (error.failure === 'stale') this.#resend(instance);
      else if (instance) this.#again(instance);
      else this.#broken(restarting());
    } else if (!instance) {
      this.#broken(restarting());
    } else if (this.status !== 0) {
      this.#broken(new Problem('upstream_failed', error.message));
    } else {
      void instance.whyDead(DEATH_NOTICE_MS).then((problem) => {
        this.#broken(
          problem ??
            new Problem(
              'upstream_failed',
              'The handler ended the connection without an answer; its owner finds the reason by turnpike logs.',
            ),
        );
      });
    }
  }

  // --------------------------------------------------------------------------------------------- inner

  #pauseAnswer(): void {
    if (this.#answerPaused) return;
    this.#answerPaused = true;
    this.#call?.pause();
  }

  #send(pool: UpstreamPool, fresh: boolean): void {
    this.#pool = pool;
    const { head } = this.exchange;
    if (this.#instance) {
      this.#instance.enter();
      this.#instance.waiting += 1;
      this.#entered = true;
      this.#waits = true;
      if (head.expectContinue) this.exchange.sendContinue();
    }
    const mode = head.upgrade ? 'upgrade' : fresh ? 'fresh' : 'pooled';
    this.#call = pool.start(head.method, this.#head, head.framing, this, mode);
  }

  #again(instance: Instance): void {
    this.#environment.replace(instance).then(
      (next) => this.#resend(next),
      (reason: unknown) => this.refuse(asProblem(reason)),
    );
  }

  /** Sends the request anew with what came of its body so far. */
  #resend(instance: Instance | undefined): void {
    if (this.#over) return;
    this.#instance = instance;
    const pool = instance?.pool ?? this.#pool;
    if (!pool) return;
    this.#send(pool, true);
    const call = this.#call;
    for (const chunk of this.#replay ?? []) call?.write(chunk, OWNED);
    if (this.#bodyDone) call?.end();
    else {
      call?.flush();
      this.exchange.receive();
      this.exchange.resume();
    }
  }

  /** Never where the handler may have seen the request and a second run could do more than the first. */
  #mayRetry(error: UpstreamError): boolean {
    if (this.status !== 0 || this.#retries >= MAX_RETRIES || (this.#bodyBytes > 0 && !this.#replay)) return false;
    if (error.failure === 'connect') return true;
    // A request that its handler hung or swelled over breaks the connection just as an old connection would.
    if (this.#instance?.failure) return false;
    return error.failure === 'stale' && IDEMPOTENT.has(this.exchange.head.method) && !this.exchange.head.upgrade;
  }

  /** The answer cannot be completed: a problem where none of it went out, else the caller must see it break. */
  #broken(problem: Problem): void {
    if (this.#over) return;
    if (this.status === 0) {
      this.refuse(problem);
      return;
    }
    this.status = problem.status;
    this.#leave();
    this.exchange.destroy();
  }

  #forgetBody(): void {
    for (const { length } of this.#replay ?? []) this.#environment.replayBytes -= length + PIECE_BYTES;
    this.#replay = undefined;
  }

  #finishedBody(): void {
    if (this.#network !== undefined) this.#environment.unfinished.remove(this.#network, this);
    this.#network = undefined;
  }

  #answerBegan(): void {
    if (this.#waits && this.#instance) this.#instance.waiting -= 1;
    this.#waits = false;
  }

  #depart(): void {
    this.#answerBegan();
    if (!this.#entered) return;
    this.#entered = false;
    this.#instance?.leave();
  }

  #leave(): void {
    if (this.#over) return;
    this.#over = true;
    this.#forgetBody();
    this.#finishedBody();
    this.#head = '';
    this.#depart();
    if (this.#traffic) {
      this.#traffic.inFlight -= 1;
      if (this.status >= 500) this.#traffic.errors += 1;
    }
    this.#environment.active.remove(this);
    this.#environment.finished(this);
  }
}

function restarting(): Problem {
  return new Problem('not_ready', 'A part of the host is restarting; try again in a second.');
}

export function bodyTooLarge(maxBytes: number): Problem {
  return new Problem('too_large', `The request body may have at most ${maxBytes} bytes; send less.`);
}

function answerLength(head: ResponseHead): AnswerLength {
  if (head.framing.kind === 'none') return 'none';
  return head.framing.kind === 'length' ? head.framing.length : 'unknown';
}
