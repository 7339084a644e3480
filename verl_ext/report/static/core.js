// Shared by every page: elements, data blocks, the address, tooltips. Text of others is only ever a text node.
"use strict";

globalThis.report = (() => {
  const isLive = document.documentElement.dataset.live === "1";

  // ------------------------------ elements ------------------------------

  // el("button", {class: "chip", onclick: f, style: {"--share": 1}}, "text", child, null)
  function el(tag, options = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, own] of Object.entries(value)) element.style.setProperty(key, own);
      else if (name === "tip") setTip(element, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
    element.append(...kept.map((child) => (child instanceof Node ? child : plain(child))));
    return element;
  }

  // What turns the direction of letters is shown as its code: it would reorder the line around it.
  const DIRECTION = /[\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/gu;
  const plain = (text) =>
    String(text).replaceAll(DIRECTION, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  // A text of any length in a box of bounded height; a button shows all of it.
  const MOST = 20000;
  function clamped(text, options = {}) {
    const shown = plain(text);
    const pre = el("pre", { ...options, class: "clamped", dir: "auto" }, shown.slice(0, MOST));
    if (shown.length < 1200 && shown.split("\n").length < 14) return pre;
    const button = el(
      "button",
      {
        class: "more",
        onclick: () => {
          const isOpen = pre.classList.toggle("open");
          pre.textContent = isOpen ? shown : shown.slice(0, MOST);
          button.textContent = isOpen ? "less" : `all ${shown.length.toLocaleString("en")} characters`;
        },
      },
      `all ${shown.length.toLocaleString("en")} characters`,
    );
    return el("div", {}, pre, button);
  }

  // ------------------------------ data blocks ------------------------------

  const embedded = new Map();
  for (const script of document.querySelectorAll("script[data-block]")) embedded.set(script.dataset.block, script);
  const unpacked = new Map();

  async function packedText(name) {
    if (!isLive) {
      if (!embedded.has(name)) throw new Error(`this page has no data block ${name}`);
      return embedded.get(name).textContent;
    }
    const answer = await fetch(`block/${encodeURIComponent(name)}`);
    if (!answer.ok) throw new Error(`the server has no data block ${name}: is the run still there?`);
    return answer.text();
  }

  async function loadText(name) {
    const packed = await packedText(name);
    const bytes = Uint8Array.fromBase64
      ? Uint8Array.fromBase64(packed)
      : Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function load(name) {
    if (!unpacked.has(name)) unpacked.set(name, loadText(name).then(JSON.parse));
    return unpacked.get(name);
  }

  // ------------------------------ the address ------------------------------

  const address = () => Object.fromEntries(new URLSearchParams(location.search));

  // Replaces the whole query string but the theme; null and "" are left out.
  function go(params, { replace = false } = {}) {
    const { theme } = address();
    const kept = Object.entries({ theme, ...params }).filter(
      ([, value]) => value !== null && value !== undefined && value !== "",
    );
    const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
    history[replace ? "replaceState" : "pushState"](null, "", query ? `?${query}` : location.pathname);
    return render(!replace);
  }

  const change = (changes, options) => go({ ...address(), ...changes }, options);

  // ------------------------------ tooltips ------------------------------

  const tips = new WeakMap();
  const tipBox = el("div", { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tipBox);

  // `lines`: an array of texts, or a function that gives one when it is needed.
  function setTip(element, lines) {
    tips.set(element, lines);
    element.classList.add("has-tip");
  }

  function showTip(element, event) {
    const lines = tips.get(element);
    const texts = typeof lines === "function" ? lines(event) : lines;
    if (!texts || texts.length === 0) return hideTip();
    tipBox.replaceChildren(...texts.map((text) => el("div", {}, String(text).slice(0, 1500))));
    tipBox.hidden = false;
    const box = element.getBoundingClientRect();
    const left = event?.clientX ?? box.left;
    const below = Math.max(box.top, Math.min(box.bottom, event?.clientY ?? box.bottom)) + 14;
    tipBox.style.left = `${Math.max(4, Math.min(left, innerWidth - tipBox.offsetWidth - 8))}px`;
    tipBox.style.top = `${below + tipBox.offsetHeight > innerHeight ? Math.max(4, box.top - tipBox.offsetHeight - 6) : below}px`;
  }

  const hideTip = () => {
    tipBox.hidden = true;
  };
  for (const name of ["pointermove", "focusin"]) {
    document.addEventListener(name, (event) => {
      const element = event.target.closest?.(".has-tip");
      if (element && tips.has(element)) showTip(element, name === "focusin" ? null : event);
      else hideTip();
    });
  }
  document.addEventListener("scroll", hideTip, true);

  // ------------------------------ views ------------------------------

  const main = document.getElementById("main");
  let view = null;
  let drawn = 0;

  // A page's `draw(params, index)` fills <main>. A click while it waits for data makes what it waits for void.
  async function render(fromTop = false) {
    const own = ++drawn;
    const { theme } = address();
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    hideTip();
    try {
      await view.draw(address(), await load("index"), () => own === drawn);
      if (own === drawn && fromTop) window.scrollTo(0, 0);
    } catch (error) {
      if (own !== drawn) return;
      main.replaceChildren(el("p", { class: "note error" }, `This view cannot be shown: ${error.message}`));
    }
    document.documentElement.dataset.drawn = own;
  }

  async function follow() {
    // What the page came with: something may have been added before the first question.
    let known = Number(document.documentElement.dataset.version);
    for (;;) {
      try {
        const version = await (await fetch("version")).json();
        if (version !== known) {
          unpacked.clear();
          view.forget?.();
          await render();
        }
        known = version;
        document.documentElement.dataset.version = version;
      } catch {
        // The server may be gone for good or for a moment: what is shown stays.
      }
      await new Promise((resume) => setTimeout(resume, 2000));
    }
  }

  function start(page) {
    view = page;
    window.addEventListener("popstate", () => render());
    render();
    if (isLive) follow();
  }

  return { el, plain, clamped, load, loadText, address, go, change, setTip, hideTip, main, start, isLive, redraw: () => render() };
})();
