/** Starting a run. */

import { newKey } from "./client.js";
import { mayHaveBeenLost, untilReplied } from "./deciding.js";
import { fill, h } from "./dom.js";
import { field, openDialog, problemBox } from "./parts.js";
import { t } from "./words.js";

/** Ask what is to be done by whom; the new run's page follows. `again` goes on with a conversation. */
export async function openStart(app, again = {}) {
  const { items } = await app.client.agents();
  if (!items.length) {
    openDialog(t("start.title"), h("p", {}, t("start.no_agents")));
    return;
  }
  const agent = h("select", { required: true }, items.map(({ name }) => h("option", { value: name, selected: name === again.agent }, name)));
  const tools = h("p", { class: "hint" });
  const showTools = () => {
    const names = items.find(({ name }) => name === agent.value).tools.map((tool) => tool.name);
    tools.textContent = names.length ? t("start.tools", { names: names.join(", ") }) : "";
  };
  agent.addEventListener("change", showTools);
  showTools();
  const input = h("textarea", { rows: 5, required: true });
  const told = h("div", { "aria-live": "assertive" });
  const go = h("button", { class: "primary" }, t("start.submit"));
  const close = h("button", { type: "button", class: "secondary", onclick: () => dialog.close() }, t("start.close"));
  // One key for one opening of this form: pressed again after a lost reply, it is the same run.
  const key = newKey();
  async function start(event) {
    event.preventDefault();
    go.disabled = true;
    const asked = { agent: agent.value, input: input.value, conversation_id: again.conversation_id };
    try {
      const run = await untilReplied(
        () => app.client.start(asked, { key }),
        () => fill(told, h("p", { class: "quiet" }, t("action.lost"))),
      );
      dialog.close();
      location.hash = `#/runs/${run.id}`;
    } catch (error) {
      go.disabled = false;
      if (app.signedOut(error)) dialog.close();
      else fill(told, mayHaveBeenLost(error) ? h("p", { class: "problem", role: "alert" }, t("page.unreachable")) : problemBox(error));
    }
  }
  const form = h("form", { onsubmit: start }, field(t("runs.agent"), agent), tools, field(t("start.input"), input), told, h("div", { class: "buttons" }, go, close));
  const dialog = openDialog(t("start.title"), form);
  input.focus();
}
