/**
 * Node's HTTP for processes that use nothing else of the web's interfaces. `import` of `node:http` reads all that it
 * exports, of which WebSocket is one: that loads undici, 40 ms and 3 MB of a process that may never need it.
 */
export const nodeHttp = process.getBuiltinModule('node:http');
