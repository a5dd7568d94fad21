// Keeps the page up to date: it fetches the page itself every two seconds, or less often where that takes long, and swaps the parts marked data-live. A part
// that somebody is typing into or has selected text in stays as it is. Without this file the pages work all the same.
"use strict";
(() => {
  const every = 2000;
  const says = document.getElementById("live");
  let seen = Date.now();

  const clock = (t) => new Date(t).toISOString().slice(11, 19);

  const inUse = (part) => {
    const selection = document.getSelection();
    const marked = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return marked || part.matches(":has(input:not([type=checkbox]):focus, select:focus, textarea:focus)");
  };

  // Whoever is at a link or button with the keyboard stays there, and rows that were asked for stay on the page.
  const swap = (part, fresh) => {
    const boxes = () => [...part.querySelectorAll("input[type=checkbox]")];
    const all = () => [...part.querySelectorAll("a, button, input[type=checkbox]")];
    const checked = boxes().map((box) => box.checked);
    const at = all().indexOf(document.activeElement);
    part.replaceChildren(...fresh.childNodes);
    boxes().forEach((box, i) => (box.checked = checked[i] ?? false));
    all()[at]?.focus();
  };

  const refresh = async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(9000) });
    if (answer.redirected) return location.reload();
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      if (fresh && fresh.innerHTML !== part.innerHTML && !inUse(part)) swap(part, fresh);
    }
    seen = Date.now();
    document.body.classList.remove("stale");
    says.textContent = "Live. Updated " + clock(seen) + ".";
  };

  const loop = async () => {
    const begun = Date.now();
    try {
      await refresh();
    } catch {
      document.body.classList.add("stale");
      says.textContent = "No answer since " + clock(seen) + ": what you see is old. Trying again.";
    }
    setTimeout(loop, Math.max(every, 10 * (Date.now() - begun))); // thousands of gateways are a lot to look at
  };
  says.removeAttribute("role"); // it changes all the time: nobody wants to hear that
  setTimeout(loop, every);
})();
