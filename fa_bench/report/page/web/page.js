"use strict";
// Titles that a browser shows late and small become a box beside the pointer; without this script they stay titles.
const box = document.getElementById("tip");
for (const mark of document.querySelectorAll(".mark")) {
  const title = mark.querySelector("title");
  mark.dataset.tip = title.textContent;
  mark.setAttribute("aria-label", title.textContent);
  title.remove();
}
function show(mark) {
  box.textContent = mark.dataset.tip;
  box.hidden = false;
  const at = mark.getBoundingClientRect();
  const own = box.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const left = Math.min(Math.max(6, at.left + at.width / 2 - own.width / 2), width - own.width - 6);
  const above = at.top - own.height - 8;
  box.style.left = `${left + scrollX}px`;
  box.style.top = `${(above > 4 ? above : at.bottom + 8) + scrollY}px`;
}
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest?.(".mark");
  if (mark) show(mark);
  else box.hidden = true;
});
