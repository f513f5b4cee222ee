// A drawing as a picture file: the SVG with its computed colours written into it, on a canvas with its title and legend.
//
//   picture(svg node, { title, lines: [text], legend: [{ label, i }], foot }) -> Blob (image/png), twice the screen's size

import { style } from "./chart.js";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "paint-order"];
const PAD = 24;

export async function picture(node, { title, lines, legend, foot }) {
  const width = node.width.baseVal.value;
  const height = node.height.baseVal.value;
  const ink = (name) => resolved(node, "var(" + name + ")");
  const ratio = 2;
  const canvas = document.createElement("canvas");
  const family = getComputedStyle(document.body).fontFamily;
  const [small, tiny] = ["13px " + family, "11px " + family];
  const said = lines.flatMap((text) => wrapped(canvas, text, small, width));
  const feet = wrapped(canvas, foot, tiny, width);
  const head = 44 + said.length * 20;
  const keys = rowsOf(legend, width);
  canvas.width = (width + 2 * PAD) * ratio;
  canvas.height = (head + height + keys.height + 20 + feet.length * 15 + 2 * PAD) * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = ink("--raised");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  write(pen, title, PAD, PAD + 18, "650 20px " + family, ink("--ink"), width);
  said.forEach((text, k) => write(pen, text, PAD, PAD + 46 + k * 20, small, ink("--soft"), width));
  pen.drawImage(await image(frozen(node)), PAD, PAD + head, width, height);
  for (const { label, i, x, y } of keys.items) {
    const { colour, shape } = style(i);
    const at = [PAD + x + 8, PAD + head + height + y];
    pen.save();
    pen.translate(...at);
    pen.fillStyle = resolved(node, colour);
    pen.fill(new Path2D(shape));
    pen.restore();
    write(pen, label, at[0] + 14, at[1] + 4, small, ink("--ink"), 400);
  }
  feet.forEach((text, k) => write(pen, text, PAD, PAD + head + height + keys.height + 30 + k * 15, tiny, ink("--faint"), width));
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function rowsOf(legend, width) {
  const items = [];
  let [x, y] = [0, 24];
  for (const { label, i } of legend) {
    const wide = 40 + label.length * 7.2;
    if (x && x + wide > width) [x, y] = [0, y + 22];
    items.push({ label, i, x, y });
    x += wide;
  }
  return { items, height: y + 16 };
}

// Lines of a text: broken at spaces, and inside a word where one is wider than a line.
function wrapped(canvas, text, font, width) {
  const pen = canvas.getContext("2d");
  pen.font = font;
  const found = [];
  let line = "";
  for (const piece of text.match(/[^ &/·]+[ &/·]*|[ &/·]+/g) || []) {
    if (line && pen.measureText(line + piece).width > width) {
      found.push(line);
      line = "";
    }
    line += piece;
    while (pen.measureText(line).width > width && line.length > 8) {
      const fits = Math.max(8, Math.floor((line.length * width) / pen.measureText(line).width) - 1);
      found.push(line.slice(0, fits));
      line = line.slice(fits);
    }
  }
  return [...found, line].filter(Boolean).slice(0, 6);
}

function write(pen, text, x, y, font, colour, width) {
  pen.font = font;
  pen.fillStyle = colour;
  let said = text;
  while (said.length > 4 && pen.measureText(said).width > width) said = said.slice(0, -2).replace(/…?$/, "…");
  pen.fillText(said, x, y);
}

function resolved(node, colour) {
  const probe = document.createElement("span");
  probe.style.setProperty("color", colour);
  node.parentNode.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function frozen(node) {
  const made = node.cloneNode(true);
  const [from, to] = [[node, ...node.querySelectorAll("*")], [made, ...made.querySelectorAll("*")]];
  from.forEach((each, k) => {
    const seen = getComputedStyle(each);
    for (const name of KEPT) to[k].setAttribute(name, seen.getPropertyValue(name));
    to[k].removeAttribute("style");
    to[k].removeAttribute("class");
    to[k].removeAttribute("href");
  });
  return new XMLSerializer().serializeToString(made);
}

async function image(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const made = new Image();
    made.src = address;
    await made.decode();
    return made;
  } finally {
    URL.revokeObjectURL(address);
  }
}
