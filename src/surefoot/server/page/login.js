/** Logging in: a token becomes a session in a cookie. */

import { fill, h } from "./dom.js";
import { field, problemBox } from "./parts.js";
import { t } from "./words.js";

export function loginView(app, root, message, enter) {
  document.title = `${t("login.title")} · surefoot`;
  const told = h("div", { "aria-live": "assertive" }, message ? h("p", { class: "notice" }, message) : null);
  const token = h("input", { type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const button = h("button", { class: "primary" }, t("login.submit"));
  async function logIn(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      await enter(await app.client.request("POST", "/v1/session", { body: { token: token.value.trim() } }));
    } catch (error) {
      button.disabled = false;
      fill(told, error.code === "bad_token" ? h("p", { class: "problem", role: "alert" }, t("login.bad_token")) : problemBox(error));
      token.focus();
    }
  }
  const form = h("form", { class: "login card", onsubmit: logIn }, h("h1", {}, t("login.title")), h("p", { class: "lead" }, t("login.lead")), told);
  form.append(field(t("login.token"), token, { hint: t("login.hint") }), h("div", { class: "buttons" }, button));
  fill(root, form);
  token.focus();
  return () => fill(root);
}
