/**
 * surefoot's JavaScript client: an ES module for browsers and Node 18 or newer, without a build step.
 *
 *     import { Client } from "./client.js";
 *     const client = new Client({ url: "http://127.0.0.1:8100" });
 *     const run = await client.start({ agent: "reviewer", input: "Review acme/app#128" });
 *     const watch = client.watch(run.id, { onEvent: (event) => console.log(event.sequence, event.type) });
 *     console.log((await watch.done).status);
 *
 * `watch` reads a snapshot, then the events above it; after a lost connection it goes on behind the last event that it
 * handed over. Each event comes once, in order. Integers beyond 2^53 come as BigInt, so that no digit is lost.
 */

const RETRY_MILLISECONDS_MIN = 250;
const RETRY_MILLISECONDS_MAX = 10_000;
/** The server sends something at least every 15 s: a connection that is silent for longer is dead. */
const SILENCE_MILLISECONDS_MAX = 45_000;
/** Statuses that another try does not mend. */
const FINAL = new Set([400, 401, 403, 404, 405, 410, 422]);

/** An error that the server answered: `status`, a stable `code`, and `details`; the message is for people. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? document.title ?? `HTTP ${status}`);
    this.name = "Problem";
    this.status = status;
    this.code = document.code ?? "http_error";
    this.details = document.details ?? {};
  }
}

const MARK = "\u0000surefoot-integer:";
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** JSON.parse, with integers beyond 2^53 as BigInt. */
export function parseExact(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKENS, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? JSON.stringify(MARK + token) : token,
  );
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

/** JSON.stringify, with every BigInt as an integer of all its digits. */
export function stringifyExact(value) {
  const text = JSON.stringify(value, (_, each) => (typeof each === "bigint" ? MARK + each : each));
  return text.replace(new RegExp(`"${MARK.replace("\u0000", "\\\\u0000")}(-?\\d+)"`, "g"), "$1");
}

/** Server-sent events out of pieces of text that may be cut anywhere: `feed(text)` gives the frames that are whole. */
export class FrameParser {
  #rest = "";
  #frame = { id: undefined, event: "message", data: [] };

  feed(text) {
    const frames = [];
    this.#rest += text;
    // A CR at the very end may be half of a CR LF.
    const lines = this.#rest.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        const { id, event, data } = this.#frame;
        if (data.length) frames.push({ id, event, data: data.join("\n") });
        this.#frame = { id: undefined, event: "message", data: [] };
      } else if (!line.startsWith(":")) {
        this.#field(line);
      }
    }
    return frames;
  }

  #field(line) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#frame.data.push(value);
    else if (name === "id") this.#frame.id = value;
    else if (name === "event") this.#frame.event = value;
  }
}

/** A key for a request that may have to be sent again: the same key makes it the same request. */
export function newKey() {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Client {
  #url;
  #token;
  #headers;
  #language;
  #fetch;

  /**
   * @param {object} [options]
   * @param {string} [options.url] where the server is; in a page of the server itself leave it out
   * @param {string} [options.token] an API token
   * @param {() => Record<string, string>} [options.headers] more headers for each request, such as a CSRF token
   * @param {string} [options.language] of display texts: "en" or "zh-CN"
   * @param {typeof fetch} [options.fetch]
   */
  constructor({ url = "", token, headers = () => ({}), language, fetch = globalThis.fetch } = {}) {
    this.#url = url.replace(/\/$/, "");
    this.#token = token;
    this.#headers = headers;
    this.#language = language;
    this.#fetch = (...args) => fetch(...args);
  }

  /** One request; the answer's document, or undefined where there is none. Throws Problem, or what fetch throws. */
  async request(method, path, { body, key, signal, query } = {}) {
    const response = await this.#send(method, path, { body, key, signal, query });
    return document(response);
  }

  /** Start a run: {agent, input, conversation_id?, metadata?}. The same key again answers with the run made first. */
  start(asked, { key = newKey(), ...options } = {}) {
    return this.request("POST", "/v1/runs", { body: asked, key, ...options });
  }

  /** A page of runs, newest first: {items, next_cursor, unreadable}. Query: status, agent, cursor, limit. */
  runs(query = {}, options = {}) {
    return this.request("GET", "/v1/runs", { query, ...options });
  }

  /** One run's snapshot. */
  run(id, options = {}) {
    return this.request("GET", `/v1/runs/${encodeURIComponent(id)}`, options);
  }

  /** A page of events: {items, next_after, ended}. Query: after, limit. */
  events(id, query = {}, options = {}) {
    return this.request("GET", `/v1/runs/${encodeURIComponent(id)}/events`, { query, ...options });
  }

  /** A page of the conversation: {items, queued, next_cursor}. Query: cursor, limit. */
  messages(id, query = {}, options = {}) {
    return this.request("GET", `/v1/runs/${encodeURIComponent(id)}/messages`, { query, ...options });
  }

  /** Say something to a run under way. Where the reply was lost, say it again with the same key: it is one message. */
  say(id, text, { key = newKey(), ...options } = {}) {
    return this.request("POST", `/v1/runs/${encodeURIComponent(id)}/messages`, { body: { text }, key, ...options });
  }

  /** Stop a run: {run_id, status, may_have_been_sent}. */
  cancel(id, options = {}) {
    return this.request("POST", `/v1/runs/${encodeURIComponent(id)}/cancel`, options);
  }

  /** Take up a failed or cancelled run in a new one. */
  retry(id, options = {}) {
    return this.request("POST", `/v1/runs/${encodeURIComponent(id)}/retry`, options);
  }

  /** A page of questions, oldest first: {items, next_cursor, unreadable}. Query: status, run_id, cursor, limit. */
  actions(query = {}, options = {}) {
    return this.request("GET", "/v1/pending-actions", { query, ...options });
  }

  /** One question. */
  action(id, options = {}) {
    return this.request("GET", `/v1/pending-actions/${encodeURIComponent(id)}`, options);
  }

  /**
   * Decide about a question: {decision, reason?, external_resource_id?, url?, value?, input_hash?}.
   * Where the reply was lost, say it again with the same key: it is answered as the first time.
   */
  decide(id, decision, { key = newKey(), ...options } = {}) {
    return this.request("POST", `/v1/pending-actions/${encodeURIComponent(id)}/decision`, {
      body: decision,
      key,
      ...options,
    });
  }

  /** The agents of the server: {items}. */
  agents(options = {}) {
    return this.request("GET", "/v1/agents", options);
  }

  /**
   * Follow a run: a snapshot, then each event above it once and in order, until the run is over or `close()`.
   *
   * Handlers, all optional, never called at the same time as each other:
   * - onSnapshot(run): at the beginning, and again where the server's store is another than before;
   * - onEvent(event): {run_id, sequence, version, type, at, step_id, data};
   * - onText(frame): {step_id, attempt, text, missed, over}: what the model writes now. Replace it by the step's message;
   * - onConnection("connecting" | "open" | "waiting").
   *
   * `after` hands over the events from behind that sequence on instead (0: all of them). `done` is the snapshot at the
   * end; it rejects with a Problem that another try does not mend, or with what a handler threw.
   *
   * @returns {{done: Promise<object>, close: () => void}}
   */
  watch(id, { onSnapshot, onEvent, onText, onConnection, after } = {}) {
    const watch = new Watch(this, id, { onSnapshot, onEvent, onText, onConnection }, after);
    return { done: watch.done, close: () => watch.close() };
  }

  /** The stream's response, for `watch`. */
  stream(id, after, signal) {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
    return this.#send("GET", `/v1/runs/${encodeURIComponent(id)}/events`, { headers, signal });
  }

  async #send(method, path, { body, key, signal, query, headers: more = {} }) {
    const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    const headers = { Accept: "application/json", ...this.#headers(), ...more };
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    if (this.#language) headers["Accept-Language"] = this.#language;
    if (key !== undefined) headers["Idempotency-Key"] = `"${key}"`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await this.#fetch(this.#url + path + (search && `?${search}`), {
      method,
      headers,
      body: body === undefined ? undefined : stringifyExact(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
    if (!response.ok) throw new Problem(response.status, await document(response).catch(() => ({})));
    return response;
  }
}

async function document(response) {
  const text = await response.text();
  return text ? parseExact(text) : undefined;
}

class Watch {
  #client;
  #id;
  #handlers;
  #cursor;
  #closed = false;
  #abort = new AbortController();
  #retry = RETRY_MILLISECONDS_MIN;

  constructor(client, id, handlers, after) {
    this.#client = client;
    this.#id = id;
    this.#handlers = handlers;
    this.#cursor = after;
    this.done = this.#follow().catch((error) => {
      throw error instanceof HandlerError ? error.cause : error;
    });
  }

  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  async #follow() {
    let begun = false;
    while (!this.#closed) {
      try {
        if (!begun) {
          await this.#begin();
          begun = true;
        }
        if (await this.#read()) break;
      } catch (error) {
        if (error instanceof HandlerError) throw error;
        if (error instanceof Problem && (FINAL.has(error.status) || error.code === "unreadable")) throw error;
        // The run has fewer events than we were told of: it is another store. Begin anew.
        if (error instanceof Problem && error.code === "cursor_ahead") begun = false;
      }
      if (!this.#closed) await this.#pause();
    }
    if (!this.#closed) return this.#last();
    return undefined;
  }

  async #begin() {
    this.#tell("onConnection", "connecting");
    const run = await this.#client.run(this.#id, { signal: this.#abort.signal });
    this.#tell("onSnapshot", run);
    if (this.#cursor === undefined || this.#cursor > run.last_event_sequence) {
      this.#cursor = run.last_event_sequence;
    }
  }

  /** Read one connection; true once the run is over and all is told. */
  async #read() {
    const connection = new AbortController();
    const stop = () => connection.abort();
    this.#abort.signal.addEventListener("abort", stop);
    let silence = setTimeout(stop, SILENCE_MILLISECONDS_MAX);
    try {
      const response = await this.#client.stream(this.#id, this.#cursor, connection.signal);
      if (response.status === 204) return true;
      this.#tell("onConnection", "open");
      const parser = new FrameParser();
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(silence);
        silence = setTimeout(stop, SILENCE_MILLISECONDS_MAX);
        for (const frame of parser.feed(decoder.decode(value, { stream: true }))) {
          if (this.#closed || this.#take(frame)) return true;
        }
      }
    } finally {
      clearTimeout(silence);
      this.#abort.signal.removeEventListener("abort", stop);
      connection.abort();
    }
  }

  /** Hand a frame over; true if it is the end. */
  #take(frame) {
    this.#retry = RETRY_MILLISECONDS_MIN;
    if (frame.event === "end") return true;
    if (frame.event === "text") {
      this.#tell("onText", parseExact(frame.data));
    } else if (frame.id !== undefined) {
      const sequence = Number(frame.id);
      if (sequence <= this.#cursor) return false;
      if (sequence !== this.#cursor + 1) throw new Error(`event ${this.#cursor + 1} is missing`);
      this.#tell("onEvent", parseExact(frame.data));
      this.#cursor = sequence;
    }
    return false;
  }

  #tell(name, value) {
    try {
      this.#handlers[name]?.(value);
    } catch (error) {
      throw new HandlerError(error);
    }
  }

  async #pause() {
    this.#tell("onConnection", "waiting");
    const milliseconds = this.#retry * (0.5 + Math.random() / 2);
    this.#retry = Math.min(this.#retry * 2, RETRY_MILLISECONDS_MAX);
    await new Promise((resolve) => {
      const over = () => {
        clearTimeout(timer);
        this.#abort.signal.removeEventListener("abort", over);
        resolve();
      };
      const timer = setTimeout(over, milliseconds);
      this.#abort.signal.addEventListener("abort", over);
    });
  }

  async #last() {
    for (;;) {
      try {
        return await this.#client.run(this.#id, { signal: this.#abort.signal });
      } catch (error) {
        if (this.#closed) return undefined;
        if (error instanceof Problem && (FINAL.has(error.status) || error.code === "unreadable")) throw error;
        await this.#pause();
      }
    }
  }
}

class HandlerError extends Error {
  constructor(cause) {
    super("a handler threw", { cause });
  }
}
