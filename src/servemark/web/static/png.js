// A drawing as a picture file: the SVG with its computed colours written into it, on a canvas with its title and legend.
//
//   picture(svg node, { title, lines: [text], legend: [{ label, i }], foot }) -> Blob (image/png), twice the screen's size

import { style } from "./chart.js";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "paint-order"];
const PAD = 24;

export async function picture(node, { title, lines, legend, foot }) {
  const width = node.width.baseVal.value;
  const height = node.height.baseVal.value;
  const root = getComputedStyle(document.documentElement);
  const ink = (name) => resolved(node, "var(" + name + ")");
  const ratio = 2;
  const head = 40 + lines.length * 20;
  const keys = rowsOf(legend, width);
  const canvas = document.createElement("canvas");
  canvas.width = (width + 2 * PAD) * ratio;
  canvas.height = (head + height + keys.height + 34 + 2 * PAD) * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = ink("--raised");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const family = getComputedStyle(document.body).fontFamily;
  write(pen, title, PAD, PAD + 18, "650 20px " + family, ink("--ink"), width);
  lines.forEach((text, k) => write(pen, text, PAD, PAD + 44 + k * 20, "13px " + family, ink("--soft"), width));
  pen.drawImage(await image(frozen(node, root)), PAD, PAD + head, width, height);
  for (const { label, i, x, y } of keys.items) {
    const { colour, shape } = style(i);
    const at = [PAD + x + 8, PAD + head + height + y];
    pen.save();
    pen.translate(...at);
    pen.fillStyle = resolved(node, colour);
    pen.fill(new Path2D(shape));
    pen.restore();
    write(pen, label, at[0] + 14, at[1] + 4, "13px " + family, ink("--ink"), 400);
  }
  write(pen, foot, PAD, canvas.height / ratio - PAD + 4, "11px " + family, ink("--faint"), width);
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
