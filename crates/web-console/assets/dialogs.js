// Confirmations, and the dialog that shows the text of a new key once.

import { button, h, say } from "./dom.js";

function open(dialog) {
  const before = document.activeElement;
  document.body.append(dialog);
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      done(dialog.returnValue);
    });
    dialog.showModal();
  });
}

/** Asks the user to confirm. */
export async function confirm(title, text, verb, { kind = "danger" } = {}) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
  dialog.append(
    h("h2", { id: "dialog-title" }, title),
    h("p", {}, text),
    h(
      "div",
      { class: "line end" },
      button("Cancel", () => dialog.close("")),
      button(verb, () => dialog.close("yes"), { kind }),
    ),
  );
  return (await open(dialog)) === "yes";
}

const running = new Set();

/** Runs the action with this name unless it is running already: a double click counts once. */
export async function once(name, what) {
  if (running.has(name)) return;
  running.add(name);
  try {
    await what();
  } finally {
    running.delete(name);
  }
}

/** Shows a text that is stored nowhere else, and lost when the dialog closes: a key or a link. */
export async function showOnce(title, hint, text) {
  const field = h("input", { id: "shown-once", readonly: true, value: text, spellcheck: "false" });
  // Messages behind an open dialog are not visible or read out, so the dialog has its own place for them.
  const message = h("p", { class: "small", role: "status" });
  const copy = async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(text);
      message.textContent = "Copied.";
    } catch {
      message.textContent = "Copying is blocked. The text is selected; press Ctrl-C.";
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
  dialog.append(
    h("h2", { id: "dialog-title" }, title),
    h("label", { for: "shown-once" }, hint),
    h("div", { class: "line" }, field, button("Copy", copy, { kind: "primary" })),
    message,
    h("div", { class: "line end" }, button("Done", () => dialog.close(""))),
  );
  const closed = open(dialog);
  field.select();
  await closed;
  field.value = "";
}

/** Asks for a text; `null` if the user declines. */
export async function ask(title, label, value, verb, limits = {}) {
  const field = h("input", { id: "asked", value, required: true, autocomplete: "off", ...limits });
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
  dialog.append(
    h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          dialog.close("yes");
        },
      },
      h("h2", { id: "dialog-title" }, title),
      h("label", { for: "asked" }, label),
      h("div", { class: "line" }, field),
      h("div", { class: "line end" }, button("Cancel", () => dialog.close("")), h("button", { type: "submit", class: "primary" }, verb)),
    ),
  );
  const closed = open(dialog);
  field.select();
  return (await closed) === "yes" ? field.value.trim() : null;
}

/** Runs an action and reports its success or failure. */
export async function act(done, what) {
  try {
    const answer = await what();
    say(done);
    return answer;
  } catch (error) {
    const id = error.request ? ` Request ${error.request}` : "";
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", role: "alertdialog" });
    dialog.append(
      h("h2", { id: "dialog-title" }, "The action failed"),
      h("p", {}, error.message),
      id ? h("p", { class: "small" }, id) : "",
      h("div", { class: "line end" }, button("Close", () => dialog.close(""))),
    );
    await open(dialog);
    return null;
  }
}
