// Loaded into a program that the launcher started under Node 24: when the launcher is gone, however it went, the
// program ends too, as by SIGTERM.
process.channel?.unref();
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
