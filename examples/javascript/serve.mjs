// Serves page.html and hands everything else on to `surefoot serve`, so that both are of one origin.
//
//     surefoot serve examples/notes.py              # in another terminal; needs no key and no network
//     node examples/javascript/serve.mjs 8200       # then open http://127.0.0.1:8200/notes/page.html
//
// It stands for the proxy that you have: the Host header is passed on, and nothing is buffered.
import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";

const server = new URL(process.env.SUREFOOT_URL ?? "http://127.0.0.1:8100");
const TYPES = { "page.html": "text/html; charset=utf-8", "page.mjs": "text/javascript; charset=utf-8" };

const own = createServer(async (incoming, answer) => {
  const name = incoming.url.replace(/^\/notes\//, "");
  if (name in TYPES) {
    answer.writeHead(200, { "Content-Type": TYPES[name] });
    answer.end(await readFile(new URL(name, import.meta.url)));
    return;
  }
  const { method, url: path, headers } = incoming;
  const asked = request({ host: server.hostname, port: server.port, method, path, headers }, (given) => {
    answer.writeHead(given.statusCode, given.headers);
    given.pipe(answer);
  });
  asked.on("error", () => answer.headersSent ? answer.destroy() : answer.writeHead(502).end());
  answer.on("close", () => asked.destroy());
  incoming.pipe(asked);
});
own.listen(Number(process.argv[2] ?? 8200), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${own.address().port}/notes/page.html`);
});
