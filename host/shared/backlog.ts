/**
 * Connections that may wait to be accepted on a unix socket. A handler may begin a thousand calls at once, workerd
 * connects for each, and a connection past the backlog is refused at once (unix(7): EAGAIN), which the handler sees as
 * `Network connection lost.` Linux caps it at net.core.somaxconn, 4096 by default; Node's default is 511.
 */
export const BACKLOG = 4_096;
