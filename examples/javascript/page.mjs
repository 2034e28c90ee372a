// A page of your own on the JavaScript client: a run with its events, and the question that it waits with.
// It stands under the same origin as the server, behind your proxy or that of serve.mjs.
import { Client, newKey } from "/page/client.js";

const client = new Client({});
const find = (selector) => document.querySelector(selector);
const [state, question, events] = ["#state", "#question", "#events"].map(find);

find("#start").addEventListener("submit", async (event) => {
  event.preventDefault();
  events.replaceChildren();
  newest = 0;
  const run = await client.start({ agent: "writer", input: event.target.input.value });
  const watch = client.watch(run.id, {
    after: 0,
    onEvent: async (told) => {
      const line = document.createElement("li");
      line.textContent = told.type; // texts of a run are set as text, never as HTML
      events.append(line);
      tell(await client.run(run.id));
    },
    onConnection: (connection) => (document.body.dataset.connection = connection),
  });
  tell(await watch.done);
});

let newest = 0;

function tell(run) {
  // Answers may overtake each other: an older one changes nothing any more.
  if (run.version < newest) return;
  newest = run.version;
  const outcome = run.result?.text ?? run.error_code;
  state.textContent = outcome ? `${run.display.text}: ${outcome}` : run.display.text;
  show(run.pending_actions[0]);
}

function show(action) {
  question.hidden = action === undefined;
  if (action === undefined || question.dataset.action === action.id) return;
  question.dataset.action = action.id;
  question.querySelector("h2").textContent = action.display.text;
  question.querySelector("pre").textContent = JSON.stringify(action.arguments, null, 2);
  // One key for each answer: pressed again after a lost reply, it is the same decision.
  const key = newKey();
  for (const button of question.querySelectorAll("button")) {
    button.onclick = () => client.decide(action.id, { decision: button.name, input_hash: action.input_hash }, { key: `${button.name}-${key}` });
  }
}
