// Questions before something happens, and the text of a key, once.

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

/** Whether the person really wants it. */
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

const underWay = new Set();

/** Does what has this name, unless it is being done: whoever presses twice means it once. */
export async function once(name, what) {
  if (underWay.has(name)) return;
  underWay.add(name);
  try {
    await what();
  } finally {
    underWay.delete(name);
  }
}

/** Shows a new key. It is in no other place, and gone with the dialog. */
export async function showKey(text) {
  const field = h("input", { id: "new-key", readonly: true, value: text, spellcheck: "false" });
  // Behind an open dialog nothing is seen or read out: this one has a place of its own for what was done.
  const said = h("p", { class: "small", role: "status" });
  const copy = async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "Copied.";
    } catch {
      said.textContent = "The browser does not let this page copy: the text is selected, copy it yourself.";
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
  dialog.append(
    h("h2", { id: "dialog-title" }, "The new key"),
    h("label", { for: "new-key" }, "Keep it now: nobody can show it again."),
    h("div", { class: "line" }, field, button("Copy", copy, { kind: "primary" })),
    said,
    h("div", { class: "line end" }, button("I have it", () => dialog.close(""))),
  );
  const closed = open(dialog);
  field.select();
  await closed;
  field.value = "";
}

/** Does something, says that it is done, or why not. */
export async function act(done, what) {
  try {
    const answer = await what();
    say(done);
    return answer;
  } catch (error) {
    const id = error.request ? ` Request ${error.request}` : "";
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", role: "alertdialog" });
    dialog.append(
      h("h2", { id: "dialog-title" }, "That did not work"),
      h("p", {}, error.message),
      id ? h("p", { class: "small" }, id) : "",
      h("div", { class: "line end" }, button("Close", () => dialog.close(""))),
    );
    await open(dialog);
    return null;
  }
}
