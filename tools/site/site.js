// What is wider than the page is scrolled, by the keyboard too.
const reachable = () => {
  document.querySelectorAll("article pre, .table-wrapper, .api, div.cell_output, mjx-container").forEach((box) => {
    if (box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX)) box.tabIndex = 0;
  });
};
document.addEventListener("DOMContentLoaded", reachable);

// The source of the library is folded. One switch opens it on every page; `?code=1` does for one look.
document.addEventListener("DOMContentLoaded", () => {
  const kept = (...value) => {
    try {
      return value.length ? localStorage.setItem("show-code", value[0]) : localStorage.getItem("show-code");
    } catch { return null; }  // a browser that keeps nothing
  };
  const button = document.querySelector("button.show-code");
  const show = (isOpen) => {
    document.querySelectorAll("details.code").forEach((fold) => { fold.open = isOpen; });
    if (button) button.setAttribute("aria-pressed", isOpen);
    reachable();
  };
  if (new URLSearchParams(location.search).get("code") === "1" || kept() === "yes") show(true);
  if (button) button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-pressed") !== "true";
    kept(isOpen ? "yes" : "no");
    show(isOpen);
  });
  // A link into a fold opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    let fold = target.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  reveal();
  window.addEventListener("hashchange", reveal);
  // Paper has no folds.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((fold) => { fold.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
});
