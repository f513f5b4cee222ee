// Before the first paint: the colours that were chosen, where they differ from the system's.
try {
  const chosen = localStorage.getItem("servemark.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // no storage: the system's colours
}
