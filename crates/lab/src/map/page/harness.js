"use strict";
// Runs a page's script on as much of a browser as it uses, and prints what a reader would see: one line of JSON for each
// frame. For tests; `node harness.js PAGE`.
const fs = require("fs");
const html = fs.readFileSync(process.argv[2], "utf8");
const between = (from, to) => html.split(from)[1].split(to)[0];

class Element {
  constructor(name) {
    Object.assign(this, { name, attributes: {}, children: [], listeners: {}, style: {}, textContent: "", hidden: false, value: "" });
    Object.assign(this, { clientWidth: 600, offsetWidth: 100 });
  }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  getAttribute(key) { return this.attributes[key]; }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  addEventListener(kind, listener) { (this.listeners[kind] ||= []).push(listener); }
  dispatch(kind, event) { (this.listeners[kind] || []).forEach((listener) => listener({ target: this, preventDefault() {}, ...event })); }
  matches() { return false; }
  getBoundingClientRect() { return { left: 0, top: 0 }; }
  get tHead() { return this.children.find((child) => child.name === "thead"); }
  get tBodies() { return this.children.filter((child) => child.name === "tbody"); }
  querySelectorAll() { return []; }
  querySelector() { return new Element("path"); }
  set innerHTML(markup) { this.markup = markup; }
  getContext() {
    return {
      createImageData: (width, height) => ({ data: new Uint8ClampedArray(width * height * 4) }),
      putImageData: (image) => { this.image = image; },
      strokeRect() {},
    };
  }
  get text() { return this.textContent + this.children.map((child) => child.text).join("|"); }
}

const byId = new Map();
for (const [, id] of html.matchAll(/ id="([^"]+)"/g)) byId.set(id, new Element(id));
byId.get("films-data").textContent = between('id="films-data">', "</script>");
byId.get("cell").value = "0";
byId.get("speed").value = "5";
global.Element = Element;
global.document = Object.assign(new Element("document"), {
  documentElement: new Element("html"),
  activeElement: null,
  getElementById(id) {
    if (!byId.has(id)) throw new Error(`the page has no element '${id}'`);
    return byId.get(id);
  },
  createElement: (name) => new Element(name),
});
global.window = Object.assign(new Element("window"), { devicePixelRatio: 1, innerWidth: 1200, innerHeight: 800, matchMedia: () => new Element("media") });
global.getComputedStyle = () => ({ getPropertyValue: (name) => (html.match(new RegExp(`${name}: (#[0-9a-f]{6})`)) || [])[1] || "" });

// The element of the page's last script.
(0, eval)(html.slice(html.lastIndexOf("<script>") + 8, html.lastIndexOf("</script>")));

const films = byId.get("films").children;
const canvases = films.map((film) => film.children.flatMap((child) => child.children).find((child) => child.name === "canvas"));
// A number that another picture has not.
const digest = (bytes) => bytes.reduce((sum, byte) => (Math.imul(sum, 31) + byte) >>> 0, 7);
const rows = (table) => table.tBodies[0].children.map((line) => line.children.map((cell) => cell.text));
const tables = (film) => film.children.find((child) => child.attributes.class === "tables").children;
const slider = byId.get("slider");
const opened = Number(slider.value);
const axes = films.map((film) => film.children.find((child) => child.attributes.class === "axes").text);
const axis = byId.get("charts").children.map((box) => box.markup.match(/[a-z]+ done/)[0]).join(", ");
const last = Number(slider.max);
// Back and forth, so that frames are reached from both sides.
for (const frame of Array.from({ length: last + 1 }, (_, at) => [at, last - at]).flat()) {
  slider.value = String(frame);
  slider.dispatch("input", {});
  const seen = films.map((film, index) => {
    const [counts, tally] = tables(film);
    const columns = tally.tHead.children[0].children.map((cell) => cell.text);
    const by = (shade) => {
      byId.get("shade").value = shade;
      byId.get("shade").dispatch("change", {});
      return digest(canvases[index].image.data);
    };
    canvases[index].dispatch("keydown", { key: "d" });
    const said = film.children.find((child) => child.attributes.class === "said").text;
    return { counts: rows(counts), columns, tally: rows(tally), overlap: by("overlap"), age: by("age"), said };
  });
  console.log(JSON.stringify({ frame, moment: byId.get("moment").text, films: seen }));
}
// What is said of the last cell under the pointer, and of the cells that the keys reach down and up again.
const tip = (canvas, x, y) => {
  canvas.dispatch("mousemove", { clientX: x, clientY: y });
  return byId.get("tip").hidden ? null : byId.get("tip").text;
};
const lastSaid = canvases.map((canvas) => {
  let said = null;
  for (let x = 1; canvas.width > x; x += 2) said = tip(canvas, x, canvas.height - 4) || said;
  return said;
});
const walked = films.map((film, index) => {
  const said = () => film.children.find((child) => child.attributes.class === "said").text;
  const press = (key) => Array.from({ length: 200 }).forEach(() => canvases[index].dispatch("keydown", { key }));
  return ["s", "w"].map((key) => (press(key), said()));
});
console.log(JSON.stringify({ last: lastSaid, walked, legend: byId.get("legend").text, charts: byId.get("charts").children.length, shading: !byId.get("shading").hidden, opened, axes, axis }));
