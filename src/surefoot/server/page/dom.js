/** Elements from plain calls. Text is always text: nothing here, or anywhere on the page, turns a string into markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: h("a", { href, class, onclick, data: { id } }, "text", child, [more]). Attributes that are null, undefined
 * or false are left out, true is an empty one; a function is a listener of its event.
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "data") Object.assign(element.dataset, value);
    else if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** Children as `append` takes them: nested lists flattened, nothing where there is nothing. */
export function nodes(children) {
  return [children].flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");
}

/** Put other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/**
 * Children by key: an element whose `key` stays, stays in its place with its focus and what was typed into it.
 * `wanted` is [[key, make]]; `make()` is called for a new key only.
 */
export function fillByKey(parent, wanted) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const [key, make] of wanted) {
    let child = before.get(key);
    before.delete(key);
    if (child === undefined) {
      child = make();
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of before.values()) child.remove();
}

/** A details element that keeps whether it was open: `memory` is a Map that outlives it. */
export function folding(memory, key, summary, content, open = false) {
  const element = h("details", { class: "fold", open: memory.get(key) ?? open }, h("summary", {}, summary), content);
  element.addEventListener("toggle", () => memory.set(key, element.open));
  return element;
}

/**
 * Call `look` now and every `milliseconds` while the page can be seen, never twice at once; what it throws goes to
 * `failed`. Gives { stop, now }.
 */
export function poll(look, milliseconds, failed) {
  let timer;
  let stopped = false;
  let busy = false;
  async function now() {
    if (stopped || busy) return;
    clearTimeout(timer);
    busy = true;
    try {
      await look();
      failed(null);
    } catch (error) {
      if (!stopped) failed(error);
    }
    busy = false;
    if (!stopped && !document.hidden) timer = setTimeout(now, milliseconds);
  }
  document.addEventListener("visibilitychange", now);
  now();
  return {
    now,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", now);
    },
  };
}
