// The one script of the page: shows what is live, and counts the time of what is running.
// Everything works without it; then a reload shows what is new.
"use strict";

const holder = document.querySelector("[data-live]");
const news = document.getElementById("news");

function elapsed(seconds) {
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function tick() {
  for (const one of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, Date.now() / 1000 - Number(one.dataset.since));
    one.textContent = `running ${elapsed(seconds)}`;
  }
}

// What was said before is not said again; what is new is, to who listens instead of looking.
function sayings(element) {
  return Array.from(element.querySelectorAll("[data-say]"), (one) => one.dataset.say);
}

function show(part) {
  const old = document.getElementById(`part-${part.id}`);
  if (!old || old.dataset.digest === part.digest) return;
  const before = new Set(sayings(old));
  const open = Array.from(old.querySelectorAll("details[id][open]"), (one) => one.id);
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  const ends = new Set();
  for (const one of old.querySelectorAll("pre.lines")) {
    if (one.scrollTop + one.clientHeight >= one.scrollHeight - 4) ends.add(one.closest("[id]").id);
  }
  // Parsed apart from the page: a document that is made so runs no script.
  const fresh = new DOMParser().parseFromString(part.html, "text/html").body;
  old.replaceChildren(...fresh.childNodes);
  old.dataset.digest = part.digest;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  for (const one of old.querySelectorAll("pre.lines")) {
    if (ends.has(one.closest("[id]").id)) one.scrollTop = one.scrollHeight;
  }
  const said = sayings(old).filter((text) => !before.has(text));
  if (said.length) news.textContent = said.slice(-3).join(". ");
}

if (holder) {
  const source = new EventSource(holder.dataset.live);
  source.addEventListener("parts", (event) => {
    for (const part of JSON.parse(event.data).parts) show(part);
    tick();
  });
  source.addEventListener("over", () => {
    source.close();
    holder.removeAttribute("data-live");
  });
  addEventListener("pagehide", () => source.close());
}

for (const one of document.querySelectorAll("pre.lines")) one.scrollTop = one.scrollHeight;
tick();
setInterval(tick, 1000);
