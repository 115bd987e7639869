// A pasted line of a log has what no page has: addresses, and where in ExecuTorch it is from.
const asked = new URLSearchParams(location.search).get("q") ?? "";
const kept = asked.replace(/^.*?\.\w+:\d+\]/, "").replace(/\b0x[0-9a-f]{5,}\b/gi, "").trim();
if (kept !== asked.trim() && kept && location.pathname.endsWith("search.html")) {
  location.replace(`?q=${encodeURIComponent(kept)}`);
}

// sphinx-gallery's tag filter, for those who use a keyboard or a screen reader, too.
document.addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("sg-tag-list");
  if (!list) return;
  const tags = [...list.querySelectorAll(".sphx-glr-tag")];
  if (!tags.length) return;
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "Filter by tag");
  list.querySelector(".sphx-glr-tag-label").textContent = "Show only:";
  const cards = document.querySelectorAll("[data-sgtags]");
  const count = (tag) =>
    [...cards].filter((card) => JSON.parse(card.dataset.sgtags).includes(tag)).length;
  for (const button of [...tags, document.getElementById("sphx-glr-tag-clear")]) {
    button.setAttribute("role", "button");
    button.tabIndex = 0;
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
  }
  for (const tag of tags) {
    // What all cards have sorts none of them out; `alone` is for who runs recipes.
    tag.hidden = count(tag.textContent) === cards.length || tag.textContent === "alone";
    const tell = () => tag.setAttribute("aria-pressed", tag.classList.contains("active"));
    new MutationObserver(tell).observe(tag, { attributeFilter: ["class"] });
    tell();
  }
});
