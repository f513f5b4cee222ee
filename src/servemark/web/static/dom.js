// Making elements. Names and figures come from files that nobody vouches for, so text enters the page as text only.
//
//   el("p", { class: "note", onclick: f, "aria-label": "…", hidden: true, vars: { "--c": "red" } }, "text", node, null, [more])
//     attributes: null, undefined and false are left out; true is the bare attribute; `on…` is a listener;
//     `vars` are CSS custom properties; an address (href) that is not of this page, http(s) or blob is left out.
//   svg("path", {…}, …)      the same in the SVG name space
//   fill(node, …children)    replaces what the node holds
//   debounce(f, ms)          f after a pause

const SVG = "http://www.w3.org/2000/svg";
const ADDRESS = /^(?:[/?#]|https?:\/\/|blob:)/i;

export function el(tag, attrs, ...children) {
  return dress(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return dress(document.createElementNS(SVG, tag), attrs, children);
}

export function fill(node, ...children) {
  node.replaceChildren();
  return put(node, children);
}

export function debounce(f, ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...args), ms);
  };
}

function dress(node, attrs, children) {
  for (const name in attrs || {}) {
    const value = attrs[name];
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const key in value) node.style.setProperty(key, value[key]);
    else if (name === "href" && !ADDRESS.test(value)) continue;
    else node.setAttribute(name, value === true ? "" : value);
  }
  return put(node, children);
}

// Thousands of nodes come by here: no list is made of the children.
function put(node, children) {
  for (const each of children) {
    if (Array.isArray(each)) put(node, each);
    else if (each !== null && each !== undefined && each !== false) node.appendChild(each instanceof Node ? each : document.createTextNode(each));
  }
  return node;
}
