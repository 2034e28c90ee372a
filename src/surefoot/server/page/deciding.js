/**
 * Decisions that survive a lost reply: the same decision about the same question goes out under one Idempotency-Key, also
 * after the page was loaded anew, so that the server answers it as the first time.
 */

import { newKey, Problem, stringifyExact } from "./client.js";

const TRIES_MAX = 6;
const PAUSE_MILLISECONDS = 400;
const STORED = "surefoot.decisions";
const STORED_MAX = 200;

function remembered() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(STORED) ?? "[]"));
  } catch {
    return new Map();
  }
}

function keyOf(actionId, decision) {
  const name = `${actionId} ${stringifyExact(decision)}`;
  const keys = remembered();
  const key = keys.get(name) ?? newKey();
  keys.set(name, key);
  sessionStorage.setItem(STORED, JSON.stringify([...keys].slice(-STORED_MAX)));
  return key;
}

/** Whether another try under the same key may bring the answer: no reply came, or the server could not give one now. */
export function mayHaveBeenLost(error) {
  return !(error instanceof Problem) || error.status >= 500 || error.code === "request_under_way";
}

/** Do something until a reply comes: `tried()` before each further try. Throws what the last try threw. */
export async function untilReplied(act, tried) {
  for (let number = 1; ; number += 1) {
    try {
      return await act();
    } catch (error) {
      if (!mayHaveBeenLost(error) || number === TRIES_MAX) throw error;
      tried();
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLISECONDS * number));
    }
  }
}

/** Decide: the question as it stands then. Throws Problem for what the server refused. */
export function decide(client, action, decision, tried) {
  const bound = { ...decision, input_hash: action.input_hash };
  const key = keyOf(action.id, bound);
  return untilReplied(() => client.decide(action.id, bound, { key }), tried);
}
