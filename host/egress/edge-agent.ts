/**
 * Connections to this host's own edge, where it expects a PROXY header of whoever comes from this machine
 * (haproxy.org, proxy-protocol.txt, section 2.2).
 */
import type http from 'node:http';
import https from 'node:https';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { nodeHttp } from '../shared/node-http.ts';

/** Version 2, command LOCAL: the connection's own addresses count. */
const LOCAL = Buffer.from('0d0a0d0a000d0a515549540a20000000', 'hex');

type CreateConnection = http.Agent['createConnection'];

export class EdgeAgent extends nodeHttp.Agent {
  override createConnection(...args: Parameters<CreateConnection>): ReturnType<CreateConnection> {
    return announced(super.createConnection(...args));
  }
}

export class SecureEdgeAgent extends https.Agent {
  override createConnection(...[options, done]: Parameters<CreateConnection>): ReturnType<CreateConnection> {
    const { host, port } = options;
    const socket = announced(connect({ host: host ?? '', port: Number(port), noDelay: true }));
    const secured = super.createConnection({ ...options, socket } as typeof options, done);
    secured?.once('close', () => socket.destroy());
    return secured;
  }
}

function announced<Connection extends Socket | Duplex | null | undefined>(connection: Connection): Connection {
  connection?.write(LOCAL);
  return connection;
}
