// The JavaScript client in Node 18 or newer: start a run, watch it, and decide when a person is asked.
//
//     surefoot serve examples/notes.py              # in another terminal; needs no key and no network
//     node examples/javascript/node.mjs writer "Tell them about the milk."
//
// SUREFOOT_URL and SUREFOOT_TOKEN name another server. The client is the file that every server has under
// /page/client.js: copy it into your project.
import { createInterface } from "node:readline/promises";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const url = process.env.SUREFOOT_URL ?? "http://127.0.0.1:8100";
const [agent = "writer", input = "Tell them about the milk."] = process.argv.slice(2);

async function clientOf(server) {
  const file = join(await mkdtemp(join(tmpdir(), "surefoot-")), "client.mjs");
  await writeFile(file, await (await fetch(`${server}/page/client.js`)).text());
  return import(pathToFileURL(file));
}

const { Client, Problem } = await clientOf(url);
const client = new Client({ url, token: process.env.SUREFOOT_TOKEN });
let asking;

async function decide(action) {
  console.log(`${action.display.text}: ${action.tool_name} ${JSON.stringify(action.arguments)}`);
  asking = createInterface({ input: process.stdin, output: process.stdout });
  const answer = (await asking.question("approve? [y/n] ")).trim();
  asking.close();
  try {
    // input_hash: decide about what was shown, or about nothing.
    const decided = await client.decide(action.id, {
      decision: answer === "y" ? "approve" : "reject",
      input_hash: action.input_hash,
    });
    console.log(`${decided.decision} by ${decided.decided_by}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    console.log(`${error.code}: ${error.message}`); // somebody else was faster
  }
}

const run = await client.start({ agent, input });
console.log(run.id);
const watch = client.watch(run.id, {
  after: 0,
  onEvent: (event) => {
    console.log(`  ${event.sequence} ${event.type}`);
    // Not awaited: events go on while the person thinks.
    if (event.type === "action_requested") client.action(event.data.action_id).then(decide);
  },
  onConnection: (state) => state === "waiting" && console.log("  the server is away; this waits for it"),
});
const done = await watch.done;
console.log(`${done.display.text}: ${JSON.stringify(done.result)}`);
asking?.close(); // where somebody else has decided meanwhile
