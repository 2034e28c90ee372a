/**
 * Markdown as a person reads it: the tokens of markdown-it, built into elements from a short list. HTML in the source is
 * shown as text, pictures are not loaded, and a link says where it leads. Nothing of it is ever parsed as markup.
 */

import { h, nodes } from "./dom.js";
import { marked } from "./visible.js";
import { t } from "./words.js";
import MarkdownIt from "./vendor/markdown-it.js";

const parser = MarkdownIt({ html: false, linkify: true, typographer: false });
const CHARACTERS_MAX = 200_000;
const ELEMENTS = new Set(
  "p blockquote ul ol li pre code em strong s hr br table thead tbody tr th td h1 h2 h3 h4 h5 h6".split(" "),
);

/** An element with the rendering of `source`, whose hidden characters are escapes already. */
export function rendered(source) {
  const root = h("div", { class: "markdown" });
  if (source.length > CHARACTERS_MAX) return h("div", { class: "markdown" }, h("p", {}, t("markdown.long")));
  build(parser.parse(source, {}), root);
  return root;
}

function build(tokens, root) {
  const open = [root];
  for (const token of tokens) {
    const at = open[open.length - 1];
    if (token.hidden) continue;
    if (token.nesting === 1) {
      const element = opened(token);
      at.append(element);
      open.push(element);
    } else if (token.nesting === -1) {
      const closed = open.pop();
      if (token.type === "link_close") at.after(...destination(closed));
    } else {
      at.append(...nodes(single(token)));
    }
  }
}

function opened(token) {
  if (token.type === "link_open") return link(token.attrGet("href") ?? "");
  const tag = ELEMENTS.has(token.tag) ? token.tag : "span";
  // The headings of a text are no headings of the page: its outline stays the page's own.
  if (/^h[1-6]$/.test(tag)) return h("p", { class: `heading was-${tag}` });
  return h(tag, { start: tag === "ol" ? token.attrGet("start") : null });
}

function link(href) {
  const good = /^(https?:|mailto:)/i.test(href);
  return good ? h("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" }) : h("span", { class: "dead-link" });
}

/** Where a link leads, if its words do not say so. */
function destination(element) {
  const href = element.getAttribute("href");
  if (href === null || element.textContent === href) return [];
  return [h("span", { class: "destination" }, ` (${href})`)];
}

function single(token) {
  switch (token.type) {
    case "inline": {
      const holder = h("span");
      build(token.children, holder);
      return [...holder.childNodes];
    }
    case "text":
    case "text_special":
    case "html_inline":
      return marked(token.content);
    case "html_block":
      return h("pre", {}, marked(token.content));
    case "code_inline":
      return h("code", {}, marked(token.content));
    case "code_block":
    case "fence":
      return h("pre", {}, h("code", {}, marked(token.content)));
    case "softbreak":
      return "\n";
    case "hardbreak":
      return h("br");
    case "hr":
      return h("hr");
    case "image":
      return h("span", { class: "picture" }, t("markdown.picture", { alt: token.content, address: token.attrGet("src") ?? "" }));
    default:
      return marked(token.content ?? "");
  }
}
