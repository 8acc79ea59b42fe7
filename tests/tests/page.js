// Looks at a report as it lies on the screen; appended to a copy of the page by tests/page.rs.
addEventListener("load", () => {
  const faults = [];
  const box = element => element.getBoundingClientRect();
  const words = element => element.textContent.trim().slice(0, 40);
  const label = element => `${element.tagName}.${element.getAttribute("class") ?? ""} "${words(element)}"`;
  const all = selector => [...document.querySelectorAll(selector)];
  const root = document.documentElement;

  if (root.scrollWidth > innerWidth) faults.push(`the page is ${root.scrollWidth} wide`);
  for (const element of all("main *")) {
    if (element.closest(".scroll") || element.closest("svg")) continue;
    if (box(element).right > innerWidth + 1) faults.push(`beyond the edge: ${label(element)}`);
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== "inline")
      faults.push(`wider than its place: ${label(element)}`);
  }

  // Texts of a picture: inside it, and none over another.
  for (const svg of all("svg.plot, svg.picture")) {
    const around = box(svg);
    const texts = [...svg.querySelectorAll("text")].map(text => [text, box(text)]);
    for (const [text, at] of texts) {
      if (at.left < around.left - 1 || at.right > around.right + 1 ||
          at.top < around.top - 1 || at.bottom > around.bottom + 1)
        faults.push(`cut: ${label(text)} of ${svg.getAttribute("aria-label")}`);
      if (at.height < 8) faults.push(`too small to read: ${label(text)}`);
    }
    for (const [i, [a, at]] of texts.entries())
      for (const [b, other] of texts.slice(i + 1))
        if (at.left < other.right && other.left < at.right && at.top < other.bottom && other.top < at.bottom)
          faults.push(`overlap: ${label(a)} and ${label(b)}`);
  }

  // Contrast of text with what lies behind it, as WCAG 2.1 (1.4.3) counts it.
  const parts = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = parts(colour).map(value => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isClear = colour => parts(colour)[3] === 0;
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!isClear(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let least = 21;
  const seen = new Set();
  for (const element of all("main *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own) continue;
    const style = getComputedStyle(element);
    const colour = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [luminance(colour), luminance(behind(element))].sort((a, b) => b - a);
    const contrast = (a + 0.05) / (b + 0.05);
    least = Math.min(least, contrast);
    const kind = `${element.tagName}.${element.getAttribute("class") ?? ""}`;
    if (contrast < 4.5 && !seen.has(kind)) {
      seen.add(kind);
      faults.push(`contrast ${contrast.toFixed(2)}: ${label(element)}`);
    }
  }

  const plots = {};
  for (const plot of all("[data-plot]")) {
    const { width, height } = box(plot);
    const name = plot.dataset.plot;
    if (width < 100 || height < 20) faults.push(`a plot of ${name} is ${width} x ${height}`);
    plots[name] = (plots[name] ?? 0) + 1;
  }
  const found = {
    width: innerWidth, height: root.scrollHeight, dark: matchMedia("(prefers-color-scheme: dark)").matches,
    contrast: least, plots, faults: faults.slice(0, 30),
  };
  const place = document.createElement("script");
  place.type = "application/json";
  place.id = "found";
  place.textContent = JSON.stringify(found);
  document.body.append(place);
});
