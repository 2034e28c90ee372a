// Does what its words say with the client of the page, and prints one JSON document a line.
//   node client.mjs CLIENT.js URL watch RUN [AFTER]   every event and text, then the status at the end
//   node client.mjs CLIENT.js URL exact ACTION        the arguments of an action, and back again
import { pathToFileURL } from "node:url";

const [file, url, verb, id, after] = process.argv.slice(2);
const { Client, FrameParser, Problem, parseExact, stringifyExact } = await import(pathToFileURL(file));
const client = new Client({ url });
const say = (value) => console.log(stringifyExact(value));

if (verb === "watch") {
  const watch = client.watch(id, {
    after: after === undefined ? undefined : Number(after),
    onSnapshot: (run) => say({ snapshot: run.last_event_sequence }),
    onEvent: (event) => say({ event: event.sequence, type: event.type }),
    onText: (frame) => say({ text: frame.text }),
    onConnection: (state) => say({ connection: state }),
  });
  say({ end: (await watch.done).status });
} else if (verb === "exact") {
  const action = await client.action(id);
  say({ arguments: action.arguments, kinds: Object.values(action.arguments).map((value) => typeof value) });
} else if (verb === "refused") {
  const problem = await client.run(id).catch((error) => error);
  say({ problem: problem instanceof Problem, status: problem.status, code: problem.code });
  const watched = await client.watch(id, {}).done.catch((error) => error);
  say({ code: watched.code });
  const thrown = await client.watch(after, { onSnapshot: () => { throw new Error("of the page"); } }).done.catch((e) => e);
  say({ thrown: thrown.message });
} else {
  const stream = process.argv[5];
  for (let cut = 1; cut < stream.length; cut += 1) {
    const parser = new FrameParser();
    say([...parser.feed(stream.slice(0, cut)), ...parser.feed(stream.slice(cut))]);
  }
  say(parseExact('{"a": [2512292042121000001, -9007199254740993, 1.5e300], "b": "\\"9007199254740993, 12345678901234567890"}'));
}
