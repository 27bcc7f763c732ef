// Keeps a page up to date: when an event arrives, the page is asked for again and its parts marked "data-live" are
// replaced. Every page works without this script.
"use strict";

const page = document.querySelector("main[data-follow]");
let stale = false, asking = false, lost = null;

function busy() {
  const at = document.activeElement;
  return at && at.closest("form") && at.closest("[data-live]") && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) ? at.closest("[data-live]") : null;
}

async function refresh() {
  if (asking) { stale = true; return; }
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Part": "live" }, credentials: "same-origin" });
    if (answer.status === 401) { location.reload(); return; }  // the page to sign in, which leads back here
    if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* the stream says when the server is gone */ } finally {
    asking = false;
    if (stale) { stale = false; setTimeout(refresh, 250); }
  }
}

const typed = (place) => new Map([...place.querySelectorAll("input:not([type=hidden]), textarea, select")]
  .filter((one) => one.name && one.value !== (one.defaultValue ?? "")).map((one) => [`${one.form?.getAttribute("action")} ${one.name}`, one.value]));

const mark = (one) => [one.tagName, one.getAttribute("href") ?? one.closest("form")?.getAttribute("action"), one.textContent].join(" ");

function swap(fresh) {
  const kept = busy();
  for (const now of document.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${now.dataset.live}"]`);
    if (!next || now === kept || now.innerHTML === next.innerHTML) continue;
    const open = new Set([...now.querySelectorAll("details[open][id], details[open] > summary")].map((one) => one.textContent));
    const logs = [...now.querySelectorAll(".log"), now].map((one) => ({ end: one.scrollTop + one.clientHeight >= one.scrollHeight - 8, top: one.scrollTop }));
    const words = typed(now);
    const focused = now.contains(document.activeElement) ? mark(document.activeElement) : null;
    now.replaceChildren(...next.childNodes);
    for (const one of now.querySelectorAll("input, textarea, select")) one.value = words.get(`${one.form?.getAttribute("action")} ${one.name}`) ?? one.value;
    for (const one of now.querySelectorAll("details > summary")) if (open.has(one.textContent)) one.parentElement.open = true;
    [...now.querySelectorAll(".log"), now].forEach((one, place) => { const was = logs[place] ?? { end: true }; one.scrollTop = was.end ? one.scrollHeight : was.top; });
    if (focused) [...now.querySelectorAll("a, button, summary")].find((one) => mark(one) === focused)?.focus();
  }
  if (fresh.title) document.title = fresh.title;
}

function offline(is) {
  if (is && !lost) {
    lost = Object.assign(document.createElement("p"), { className: "offline", textContent: "Connection lost. Trying again …" });
    lost.setAttribute("role", "status");
    document.body.append(lost);
  } else if (!is && lost) { lost.remove(); lost = null; refresh(); }
}

const ATTENTION = { approval_requested: "waits for you", run_blocked: "waits for you", run_finished: "has ended" };
const notified = new Map();

function notify(kind, event) {
  if (!("Notification" in window) || Notification.permission !== "granted" || !document.hidden) return;
  const status = kind === "run" ? { BLOCKED: "waits for you", DONE: "is done", FAILED: "failed" }[JSON.parse(event.data).status] : ATTENTION[kind];
  const run = JSON.parse(event.data).runId;
  if (!status || notified.get(run) === status) return;
  notified.set(run, status);
  new Notification(`CodePilot: a run ${status}`, { body: document.querySelector("h1")?.textContent || run, tag: run }).onclick = () => { window.focus(); location.href = `/runs/${run}`; };
}

if (page) {
  let timer = null;
  const soon = () => { timer ??= setTimeout(() => { timer = null; refresh(); }, 120); };
  let stream = null, after = page.dataset.after;
  // A browser tries again by itself while nothing answers, but gives up when something does: a proxy's 502, a full
  // service, a session that has ended.
  const follow = () => {
    stream = new EventSource(page.dataset.follow + (after ? `?after=${after}` : ""));
    stream.onopen = () => offline(false);
    for (const kind of (page.dataset.events || "").split(" ")) {
      stream.addEventListener(kind, (event) => { if (after) after = event.lastEventId || after; soon(); notify(kind, event); });
    }
    stream.addEventListener("end", () => { stream.close(); soon(); });
    stream.onerror = () => {
      offline(true);
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { refresh(); follow(); }, 3000 + 2000 * Math.random());
    };
  };
  follow();
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (event) => { if (event.persisted) { refresh(); follow(); } });
}

// The time that is left to answer a request.
setInterval(() => {
  for (const one of document.querySelectorAll("[data-until]")) {
    const left = Math.max(0, Math.floor((Number(one.dataset.until) - Date.now()) / 1000));
    one.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  }
}, 1000);

document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
for (const log of document.querySelectorAll(".log:not(.tall)")) log.scrollTop = log.scrollHeight;

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

// A form that checks itself: the server says what is wrong while somebody types.
const checked = document.querySelector("form[data-check]");
if (checked) {
  let timer = null;
  const carried = () => {  // what was typed goes along to the form of another kind
    for (const tab of document.querySelectorAll(".tabs a[href*='/new?']")) {
      const place = new URL(tab.href);
      for (const name of ["repo", "ref", "goal", "model"]) {
        const text = checked.elements.namedItem(name)?.value.slice(0, 1500);
        if (text) place.searchParams.set(name, text); else place.searchParams.delete(name);
      }
      tab.href = place.href;
    }
  };
  carried();
  checked.addEventListener("input", carried);
  checked.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await fetch(checked.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(checked)), credentials: "same-origin" });
      if (!answer.ok) return;
      const wrong = await answer.json();
      for (const field of checked.querySelectorAll(".field")) {
        const control = field.querySelector("[name]"), text = control && wrong[control.name];
        let shown = field.querySelector(".wrong");
        if (!text || !control.value) { shown?.remove(); control?.removeAttribute("aria-invalid"); continue; }
        shown ??= field.appendChild(Object.assign(document.createElement("b"), { className: "wrong" }));
        shown.textContent = text;
        control.setAttribute("aria-invalid", "true");
      }
    }, 400);
  });
}

// A line number in a change that is reviewed opens a comment on that line; arrow keys go from number to number.
const changes = document.querySelector(".changes form");
if (changes) {
  const numbers = (body) => [...body.rows].map((row) => [...row.cells].findLast((cell) => cell.classList.contains("n") && cell.textContent)).filter(Boolean);
  for (const choice of changes.querySelectorAll(".diff .choice")) {
    for (const [place, cell] of numbers(choice.closest("tbody")).entries()) {
      cell.setAttribute("role", "button");
      cell.setAttribute("aria-label", `Comment on line ${cell.textContent}`);
      cell.tabIndex = place ? -1 : 0;
    }
  }
  const comment = (cell) => {
    const row = cell.closest("tr"), key = row.closest("tbody").querySelector(".choice").dataset.key, name = `line:${cell.textContent}:${key}`;
    const known = changes.elements.namedItem(name);
    if (known) { known.focus(); return; }
    const remark = document.createElement("tr"), box = document.createElement("td"), text = document.createElement("textarea"), drop = document.createElement("button"), line = document.createElement("div"), label = document.createElement("label"), title = document.createElement("span");
    remark.className = "remark"; box.colSpan = row.cells.length; line.className = "row"; label.className = "field grow";
    title.textContent = `Comment on line ${cell.textContent}; it is given to the agent if you reject these lines`;
    Object.assign(text, { name, rows: 1, maxLength: 500 });
    Object.assign(drop, { type: "button", className: "button", textContent: "Remove" });
    drop.addEventListener("click", () => { remark.remove(); cell.focus(); });
    label.append(title, text); line.append(label, drop); box.append(line); remark.append(box); row.after(remark);
    text.focus();
  };
  changes.addEventListener("click", (event) => { const cell = event.target.closest(".n[role=button]"); if (cell) comment(cell); });
  changes.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".n[role=button]");
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); comment(cell); return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = numbers(cell.closest("tbody")), next = all[all.indexOf(cell) + step];
    if (next) { cell.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  });
  const shown = changes.querySelector("[data-tally]");
  const tally = () => {
    const whole = (one) => one.closest(".file").querySelector(".whole :checked")?.value;
    const hunks = [...changes.querySelectorAll(".choice[data-key]")].map((one) => whole(one) || one.querySelector(":checked").value);
    const out = hunks.filter((one) => one === "reject").length;
    shown.textContent = out ? `${out} of ${hunks.length} rejected` : hunks.length === 1 ? "1 part, accepted" : `${hunks.length} parts, all accepted`;
  };
  if (shown) { changes.addEventListener("change", tally); tally(); }
}

// Whether this browser tells when a run waits or is done, while the page is in the background.
const notifying = document.querySelector("[data-notify]");
if (notifying && "Notification" in window && Notification.permission !== "denied") {
  const show = () => { notifying.textContent = Notification.permission === "granted" ? "Notifications are on" : "Notify me here"; notifying.disabled = Notification.permission === "granted"; notifying.hidden = false; };
  notifying.addEventListener("click", () => Notification.requestPermission().then(show));
  show();
}
