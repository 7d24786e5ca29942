// Times in the time zone of the browser; the page has them in UTC. Keys for a decision. Everything works without this script.
"use strict";
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
for (const element of document.querySelectorAll("time[datetime]:not([data-relative])")) {
  const time = new Date(element.dateTime);
  if (!Number.isNaN(time.getTime())) {
    element.title = element.textContent;
    element.textContent = format.format(time);
  }
}

// An approval takes two different keys: "a", and Enter in the dialog that names the proposal. A key that is held down, or
// pressed twice, approves nothing; nor does one that was meant for the page before.
const DEAD_MS = 1000;
const dialog = document.querySelector("dialog");
if (dialog) {
  const [form, choice, state] = [document.getElementById("approve"), document.getElementById("keys"), document.documentElement.dataset];
  const isText = (element) => element.matches("input:not([type=checkbox]), textarea, select");
  choice.closest("[hidden]").hidden = false;
  choice.checked = localStorage.getItem("keys") !== "off";
  choice.addEventListener("change", () => {
    state.keys = choice.checked ? "on" : "off";
    localStorage.setItem("keys", state.keys);
  });
  addEventListener("pageshow", () => {
    state.keys = choice.checked ? "dead" : "off";
    setTimeout(() => { if (state.keys === "dead") state.keys = "on"; }, DEAD_MS);
  });
  addEventListener("keydown", (event) => {
    const isOther = event.key !== "a" || event.repeat || event.ctrlKey || event.metaKey || event.altKey;
    if (isOther || state.keys !== "on" || dialog.open || isText(event.target)) return;
    event.preventDefault();
    if (form.reportValidity()) dialog.showModal();
  });
  // One press of Enter is one decision.
  dialog.addEventListener("keydown", (event) => { if (event.repeat && event.key === "Enter") event.preventDefault(); });
  form.addEventListener("submit", () => dialog.close());
}
