/** What serves the clients of a database, and what it is given for each of them. */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { DatabaseAddress } from '../../shared/connection-string.ts';
import type { Problem } from '../../shared/problem.ts';
import type { Allowance } from '../allowance.ts';
import type { Target } from '../target.ts';
import type { Connections } from './connections.ts';

/** What a protocol needs to serve one client. */
export interface Visit {
  address: DatabaseAddress;
  target: Target;
  allowance: Allowance;
  connections: Connections;
  /** Changes with the address and with what the operator opened: connections of before are not used again. */
  generation: string;
  /** Whether that is still the present one. */
  isCurrent(): boolean;
  signal: AbortSignal;
  /** The connection as it is at first, in clear. @throws Problem */
  connect(): Promise<Socket>;
  /** Whether the database is to speak TLS. */
  wantsTls: boolean;
  /** @throws Problem where the server is not who it has to be */
  secure(socket: Socket): Promise<Duplex>;
  /** From here on silence alone bounds the connection. */
  established(): void;
}

/** Serves one client until it is done. */
export interface Protocol {
  /** @throws Problem or ServerRefusal while there is no connection to the database */
  serve(client: Duplex, visit: Visit): Promise<void>;
  /** Tells a client in the words of the protocol. */
  refuse(client: Duplex, error: unknown, problem: Problem): void;
}
