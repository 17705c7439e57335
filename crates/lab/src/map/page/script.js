
"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("films-data").textContent);
  const FRAMES = DATA.films[0].frames.length;
  const LEVELS = DATA.colors.length;
  const KEYFRAME = 16;
  const byId = (id) => document.getElementById(id);
  const element = (name, attributes, text) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Numbers as text: five bits to a character, low ones first; the sixth says that another follows.
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const VALUES = new Int8Array(128).fill(-1);
  for (let digit = 0; digit !== 64; digit += 1) VALUES[DIGITS.charCodeAt(digit)] = digit;
  function numbers(text) {
    const found = [];
    let number = 0, factor = 1;
    for (let at = 0; at !== text.length; at += 1) {
      const digit = VALUES[text.charCodeAt(at)];
      number += (digit & 31) * factor;
      factor *= 32;
      if (digit >= 32) continue;
      found.push(number);
      number = 0;
      factor = 1;
    }
    return found;
  }
  const signed = (number) => (number % 2 === 0 ? number / 2 : -(number + 1) / 2);

  const plain = (number) => (Math.abs(number) >= 1000 ? Math.round(number) : Number(number.toPrecision(3))).toLocaleString("en-US");
  const large = (number) => {
    const units = [[1e9, " G"], [1e6, " M"], [1e3, " k"]];
    const unit = units.find(([size]) => Math.abs(number) >= size);
    return unit ? plain(number / unit[0]) + unit[1] : plain(number);
  };
  function measured(value, unit) {
    if (unit === "bytes") return large(value) + "B";
    if (unit === "nanos") return plain(value / 1e9) + " s";
    return plain(value);
  }

  // A film, unpacked.
  function unpack(packed) {
    const rows = [];
    let first = 0;
    for (const row of packed.rows) {
      const pieces = [];
      const runs = numbers(row.pieces);
      for (let at = 0, piece = 0; at !== runs.length; at += 3) {
        for (let step = 0; step !== runs[at + 1]; step += 1) pieces.push(piece += runs[at + 2]);
      }
      rows.push({ name: row.name, device: row.device, shift: row.shift, pieces, first });
      first += pieces.length;
    }
    // Rows of one device share strips; the next device is drawn below.
    const devices = [...new Set(rows.map((row) => row.device))].map((device) => rows.filter((row) => row.device === device));
    const born = numbers(packed.states.born);
    const overlap = numbers(packed.states.overlap);
    const states = packed.states.file.map((file, index) => {
      const level = packed.states.level[index];
      return {
        usage: packed.usages[Number(packed.states.usage[index])],
        level: level === "-" ? null : Number(level),
        color: level === "-" ? LEVELS - 1 : Math.min(Number(level), LEVELS - 1),
        born: born[index], overlap: overlap[index], live: Number(packed.states.live[index]), file,
      };
    });
    const runs = packed.frames.map((frame) => numbers(frame.changes));
    const film = { ...packed, rows, devices, states, cells: first, runs, kept: [], at: -1, now: new Uint32Array(first) };
    const cells = new Uint32Array(first);
    runs.forEach((changes, frame) => {
      apply(changes, cells);
      if (frame % KEYFRAME === 0) film.kept.push(cells.slice());
    });
    return film;
  }
  function apply(changes, cells) {
    for (let at = 0, cell = 0, state = 0; at !== changes.length; at += 3) {
      cell += changes[at];
      state += signed(changes[at + 2]);
      cells.fill(state, cell, cell + changes[at + 1]);
      cell += changes[at + 1];
    }
  }
  // Brings the cells of a film to a frame.
  function seek(film, frame) {
    if (film.at === frame) return;
    const from = Math.floor(frame / KEYFRAME);
    if (film.at > frame || from * KEYFRAME > film.at) {
      film.now.set(film.kept[from]);
      film.at = from * KEYFRAME;
    }
    while (film.at !== frame) apply(film.runs[film.at += 1], film.now);
    const rewrites = new Uint16Array(film.cells);
    const runs = numbers(film.frames[frame].rewrites);
    for (let at = 0, cell = 0; at !== runs.length; at += 3) {
      cell += runs[at];
      rewrites.fill(runs[at + 2], cell, cell += runs[at + 1]);
    }
    film.rewrites = rewrites;
  }

  // Colours: of the page, which follow its scheme, and of the levels.
  let theme = {};
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const pixel = ([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
  const mix = (color, ground, share) => color.map((part, index) => Math.round(part * share + ground[index] * (1 - share)));
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    theme = {};
    for (const name of ["paper", "ink", "free", "mark", "store", "reserved"]) theme[name] = rgb(style.getPropertyValue("--" + name).trim());
    theme.levels = DATA.colors.map(rgb);
  }
  let alone = null;
  // What the strength of a colour says.
  let shade = "age";
  function share(state, frame) {
    if (shade === "overlap") return Math.min(1, state.overlap / DATA.strongest);
    return 1 - Math.sqrt(Math.min(1, Math.max(0, frame - state.born) / Math.max(1, frame)));
  }
  // The two colours of a state, which a pattern alternates.
  function colors(state, frame) {
    if (state.usage === "table" || state.usage === "file" || state.usage === "removed") {
      const strength = (DATA.oldest + (1 - DATA.oldest) * share(state, frame)) * (alone === null || alone === state.color ? 1 : 0.15);
      const color = mix(theme.levels[state.color], theme.paper, strength);
      return state.usage === "removed" ? [color, theme.store] : [color, color];
    }
    if (state.usage === "metadata") return [theme.store, theme.store];
    if (state.usage === "small files" || state.usage === "backup") return [theme.store, theme.paper];
    if (state.usage === "cached blocks") return [theme.paper, theme.store];
    if (state.usage === "retired") return [theme.reserved, theme.mark];
    if (state.usage === "reserved") return [theme.reserved, theme.reserved];
    return [theme.free, theme.free];
  }
  // Whether a pixel of a cell has the second colour.
  const PATTERNS = {
    "removed": (x, y, unit) => Math.floor(x / unit) % 2 === Math.floor(y / unit) % 2,
    "small files": (x, y, unit) => Math.floor(y / unit) % 2 === 1,
    "backup": (x, y, unit) => Math.floor(x / unit) % 2 === 1,
    "cached blocks": (x, y, unit) => Math.floor((x + y) / unit) % 3 === 0,
    "retired": (x, y, unit) => unit > Math.abs(x - y),
  };

  // A picture: rows of all parts under each other, in strips.
  function layout(film) {
    const ratio = Math.max(1, Math.round(window.devicePixelRatio || 1));
    const longest = Math.max(...film.rows.map((row) => row.pieces.length));
    const width = Math.max(200, film.scroll.clientWidth) * ratio;
    const height = Math.max(320, window.innerHeight * 0.72) * ratio;
    const wanted = Number(byId("cell").value) * ratio;
    const place = (cell) => {
      const gap = Math.max(1, Math.round(cell / 3));
      const columns = Math.max(1, Math.min(longest, Math.floor((width - cell) / cell)));
      let height = 0;
      const devices = film.devices.map((rows) => {
        const [top, strip] = [height === 0 ? 0 : height + 12 * ratio, rows.length * cell + gap];
        height = top + Math.ceil(Math.max(...rows.map((row) => row.pieces.length)) / columns) * strip;
        return { top, strip };
      });
      return { cell, columns, devices, width: columns * cell + Math.ceil(cell / 2), height, ratio };
    };
    let chosen = place(wanted || 2 * ratio);
    for (let cell = 2 * ratio + 1; !wanted && cell !== 16 * ratio; cell += 1) {
      const tried = place(cell);
      if (tried.height > height) break;
      chosen = tried;
    }
    film.layout = chosen;
    film.canvas.width = chosen.width;
    film.canvas.height = chosen.height;
    film.canvas.style.width = chosen.width / ratio + "px";
    film.canvas.style.height = chosen.height / ratio + "px";
    film.image = film.context.createImageData(chosen.width, chosen.height);
    film.pixels = new Uint32Array(film.image.data.buffer);
  }
  // Left and top of a cell.
  function corner(film, row, index) {
    const { cell, columns, devices } = film.layout;
    const device = film.devices.findIndex((rows) => rows.includes(row));
    const { top, strip } = devices[device];
    const line = Math.floor(index / columns) * strip + film.devices[device].indexOf(row) * cell;
    return [index % columns * cell + Math.floor(row.shift * cell / 2), top + line];
  }
  function draw(film, frame) {
    const { cell, width } = film.layout;
    const unit = Math.max(1, Math.floor(cell / 3));
    const marked = Math.max(1, Math.floor(cell / 2)), inset = Math.floor((cell - marked) / 2);
    const mark = pixel(theme.mark), free = pixel(theme.free);
    const looks = new Map();
    const look = (state) => {
      let found = looks.get(state);
      if (found === undefined) {
        const { usage, live } = film.states[state];
        const [first, second] = colors(film.states[state], frame).map(pixel);
        // What does not count stays empty above the rest.
        found = { first, second, pattern: PATTERNS[usage], empty: cell - Math.ceil(cell * live / 8) };
        looks.set(state, found);
      }
      return found;
    };
    film.pixels.fill(pixel(theme.paper));
    for (const row of film.rows) {
      for (let index = 0; index !== row.pieces.length; index += 1) {
        const [left, top] = corner(film, row, index);
        const { first, second, pattern, empty } = look(film.now[row.first + index]);
        for (let y = 0; y !== cell; y += 1) {
          const start = (top + y) * width + left;
          if (empty > y) film.pixels.fill(free, start, start + cell);
          else if (pattern === undefined) film.pixels.fill(first, start, start + cell);
          else for (let x = 0; x !== cell; x += 1) film.pixels[start + x] = pattern(x, y, unit) ? second : first;
        }
        if (film.rewrites[row.first + index] > 0) {
          for (let y = inset; y !== inset + marked; y += 1) {
            const start = (top + y) * width + left + inset;
            film.pixels.fill(mark, start, start + marked);
          }
        }
      }
    }
    film.context.putImageData(film.image, 0, 0);
    if (film.cursor !== null && document.activeElement === film.canvas) {
      const [left, top] = corner(film, film.cursor.row, film.cursor.index);
      film.context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
      film.context.lineWidth = 2 * film.layout.ratio;
      film.context.strokeRect(left - 1, top - 1, cell + 2, cell + 2);
    }
  }
  // What is at a place of the picture.
  function under(film, x, y) {
    const { cell, columns, devices, ratio } = film.layout;
    const device = devices.findLastIndex(({ top }) => y * ratio >= top);
    if (device === -1) return null;
    const { top, strip } = devices[device];
    const rows = film.devices[device], down = y * ratio - top;
    const line = Math.floor(down / strip), number = Math.min(rows.length - 1, Math.floor(down % strip / cell));
    const row = rows[number];
    const column = Math.floor((x * ratio - Math.floor(row.shift * cell / 2)) / cell);
    const index = line * columns + column;
    return column >= 0 && columns > column && row.pieces.length > index ? { row, index } : null;
  }
  function say(film, place) {
    const cell = place.row.first + place.index;
    const state = film.states[film.now[cell]];
    const words = [`${DATA.cell} ${place.row.pieces[place.index].toLocaleString("en-US")}, ${place.row.name}`];
    const use = DATA.uses.find((use) => use.key === state.usage);
    words.push(state.file ? state.file : use.name);
    if (state.level !== null) words.push(`level ${state.level}`);
    if (state.usage === "removed") words.push(use.name);
    if (state.usage === "table" || state.usage === "file") {
      const age = film.frames[film.at].operations - film.frames[Math.min(state.born, film.at)].operations;
      const ago = state.born >= film.at ? "in this interval" : `${large(age * DATA.scale)} ${DATA.operations} ago`;
      words.push(state.born === 0 ? "written before the first frame" : `written ${ago}`);
    }
    if (DATA.overlaps && state.usage !== "free") words.push(`${plain(state.live * 12.5)} % of it counts`);
    if (DATA.overlaps && state.usage === "table") words.push(`tables beside it with keys of its range: ${state.overlap === 255 ? "255 or more" : state.overlap}`);
    if (film.rewrites[cell] > 0) words.push(`rewritten ${film.rewrites[cell]} ${film.rewrites[cell] === 1 ? "time" : "times"} in this interval`);
    return words.join("; ");
  }

  // Numbers beside a picture.
  function fill(table, head, rows) {
    const cells = (kind, texts) => {
      const line = element("tr");
      texts.forEach((text) => line.append(element(kind, {}, text)));
      return line;
    };
    table.tHead.replaceChildren(cells("th", head));
    table.tBodies[0].replaceChildren(...rows.map((texts) => cells("td", texts)));
  }
  // What an interval begins with: the frame before, or the begin of the film, which is no frame.
  const earlier = (film, frame) => (frame === 0 ? film.begin : film.frames[frame - 1]);
  const rate = (film, frame) => {
    const [now, before] = [film.frames[frame], earlier(film, frame)];
    return now.nanos > before.nanos ? (now.operations - before.operations) * 1e9 / (now.nanos - before.nanos) : null;
  };
  function count(film, frame) {
    const [now, before] = [film.frames[frame], earlier(film, frame)];
    const whole = now.nanos > 0 ? now.operations * 1e9 / now.nanos : null;
    const rows = [
      [DATA.operations, plain(now.operations - before.operations), plain(now.operations)],
      ["time on the medium", plain((now.nanos - before.nanos) / 1e9) + " s", plain(now.nanos / 1e9) + " s"],
      [`${DATA.operations} a second`, rate(film, frame) === null ? "-" : plain(rate(film, frame)), whole === null ? "-" : plain(whole)],
    ];
    film.counters.forEach((counter, index) => {
      const [added, total] = [now.counters[index] - before.counters[index], now.counters[index]];
      rows.push([counter.name, measured(added, counter.unit), measured(total, counter.unit)]);
    });
    fill(film.counts, ["", "this interval", "in all"], rows);
    const columns = new Map();
    const tally = film.rows.map((row) => {
      const counts = new Map();
      for (let cell = row.first; cell !== row.first + row.pieces.length; cell += 1) {
        const state = film.states[film.now[cell]];
        const is = state.usage === "table" || state.usage === "file";
        const key = is ? (state.level === null ? "no level" : `level ${state.level}`) : DATA.uses.find((use) => use.key === state.usage).name;
        counts.set(key, (counts.get(key) || 0) + 1);
        columns.set(key, (is ? "0" : "1") + key);
      }
      return counts;
    });
    const keys = [...columns.keys()].sort((a, b) => (columns.get(a) > columns.get(b) ? 1 : -1));
    fill(film.tally, ["", ...keys], film.rows.map((row, index) => [row.name, ...keys.map((key) => plain(tally[index].get(key) || 0))]));
  }

  // Lines over the load, one for each film.
  const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "1 2"];
  const charts = [];
  function chart(title, values) {
    const [width, left, right, top, bottom] = [560, 56, 8, 24, 36 + 14 * values.length];
    const height = 178 + bottom;
    const highest = Math.max(1e-9, ...values.flat().filter((value) => value !== null));
    const x = (frame) => left + (width - left - right) * (frame + 1) / FRAMES;
    const y = (value) => height - bottom - (height - top - bottom) * value / highest;
    const parts = [`<path class="axis" d="M${left} ${top}V${height - bottom}H${width - right}"/>`, `<text x="4" y="12">${title}</text>`];
    for (const share of [0, 0.5, 1]) parts.push(`<text x="${left - 4}" y="${y(highest * share) + 4}" text-anchor="end">${large(highest * share)}</text>`);
    const done = Math.max(...films.map((film) => film.frames[FRAMES - 1].operations));
    for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
      parts.push(`<text x="${left + (width - left - right) * share}" y="${height - bottom + 14}" text-anchor="${anchor}">${large(done * share)}</text>`);
    }
    parts.push(`<text x="${left + (width - left - right) / 2}" y="${height - bottom + 28}" text-anchor="middle">${DATA.operations} done</text>`);
    values.forEach((line, index) => {
      const points = line.map((value, frame) => [frame, value]).filter(([, value]) => value !== null);
      const path = points.map(([frame, value]) => `${x(frame).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      const color = DATA.colors[[4, 0, 3, 2, 1, 5][index % 6]];
      parts.push(`<polyline fill="none" stroke="${color}" stroke-width="1.8" stroke-dasharray="${DASHES[index % DASHES.length]}" points="${path}"/>`);
      parts.push(`<path d="M${left + 8} ${height - bottom + 40 + index * 14}h24" stroke="${color}" stroke-width="1.8" stroke-dasharray="${DASHES[index % DASHES.length]}"/>`);
      parts.push(`<text x="${left + 38}" y="${height - bottom + 44 + index * 14}" data-name="${index}"></text>`);
    });
    parts.push(`<path class="now" d=""/>`);
    const box = element("div");
    box.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}">${parts.join("")}</svg>`;
    box.querySelectorAll("[data-name]").forEach((text) => { text.textContent = DATA.films[Number(text.getAttribute("data-name"))].name; });
    byId("charts").append(box);
    const now = box.querySelector(".now");
    charts.push((frame) => now.setAttribute("d", `M${x(frame).toFixed(1)} ${top}V${height - bottom}`));
  }

  // The page.
  const films = DATA.films.map(unpack);
  let frame = 0, timer = null;
  for (const film of films) {
    const box = element("article", { class: "film" });
    box.append(element("h2", {}, film.name));
    film.scroll = element("div", { class: "scroll" });
    film.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `${film.name}: what is on every ${DATA.cell}; the tables below say it in numbers` });
    film.context = film.canvas.getContext("2d");
    film.said = element("p", { class: "said", "aria-live": "polite" });
    film.cursor = null;
    const table = (caption) => {
      const made = element("table");
      made.append(element("caption", {}, caption), element("thead"), element("tbody"));
      return made;
    };
    film.counts = table("counted");
    film.tally = table(`${DATA.cell}s by use`);
    const tables = element("div", { class: "tables" });
    tables.append(film.counts, film.tally);
    film.scroll.append(film.canvas);
    const names = film.rows.map((row) => row.name).join(", then ");
    const [from, to] = [Math.min(...film.rows.map((row) => row.pieces[0])), Math.max(...film.rows.map((row) => row.pieces[row.pieces.length - 1]))];
    const axes = `Across and then down: ${DATA.cell}s ${plain(from)} to ${plain(to)} in the order of their addresses, one strip below the other` +
      (film.devices.some((rows) => rows.length > 1) ? `; within a strip, from above: ${names}` : "") +
      (film.devices.length > 1 ? `; devices, from above: ${names}` : "") + ".";
    box.append(element("p", { class: "axes" }, axes), film.scroll, film.said, tables, element("p", { class: "detail" }, film.detail));
    byId("films").append(box);
    film.canvas.addEventListener("mousemove", (event) => {
      const box = film.canvas.getBoundingClientRect();
      const place = under(film, event.clientX - box.left, event.clientY - box.top);
      const tip = byId("tip");
      tip.hidden = place === null;
      if (place === null) return;
      tip.textContent = say(film, place);
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = event.clientY + 18 + "px";
    });
    film.canvas.addEventListener("mouseleave", () => { byId("tip").hidden = true; });
    film.canvas.addEventListener("keydown", (event) => {
      const steps = { a: -1, d: 1, w: -film.layout.columns, s: film.layout.columns };
      const step = steps[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const at = film.cursor || { row: film.rows[0], index: 0 };
      const device = film.devices.findIndex((rows) => rows.includes(at.row)), rows = film.devices[device];
      let [number, index] = [rows.indexOf(at.row), at.index];
      // Up and down go through the rows of a strip before they leave it, and through the strips of a device.
      if (event.key === "s") [number, index] = rows.length - 1 > number ? [number + 1, index] : [0, index + step];
      else if (event.key === "w") [number, index] = number > 0 ? [number - 1, index] : [rows.length - 1, index + step];
      else index += step;
      let row = rows[number];
      const other = film.devices[device + (event.key === "s" ? 1 : event.key === "w" ? -1 : 0)];
      if (other !== undefined && other !== rows && (0 > index || index >= row.pieces.length)) {
        row = event.key === "s" ? other[0] : other[other.length - 1];
        const column = at.index % film.layout.columns;
        index = event.key === "s" ? column : row.pieces.length - 1 - (row.pieces.length - 1 - column) % film.layout.columns;
        index = Math.min(index, row.pieces.length - 1);
      }
      if (index >= 0 && row.pieces.length > index) film.cursor = { row, index };
      film.said.textContent = say(film, film.cursor || at);
      draw(film, frame);
    });
    for (const change of ["focus", "blur"]) film.canvas.addEventListener(change, () => draw(film, frame));
  }

  function swatch(state) {
    const canvas = element("canvas", { width: "14", height: "14", "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const image = context.createImageData(14, 14);
    const pixels = new Uint32Array(image.data.buffer);
    const [first, second] = colors(state, 1).map(pixel);
    const pattern = PATTERNS[state.usage];
    for (let at = 0; at !== pixels.length; at += 1) pixels[at] = pattern && pattern(at % 14, Math.floor(at / 14), 2) ? second : first;
    context.putImageData(image, 0, 0);
    return canvas;
  }
  function legend() {
    const kept = alone;
    alone = null;
    const entries = [];
    const states = films.flatMap((film) => film.states);
    const levels = new Map();
    for (const state of states) if (state.usage === "table" || state.usage === "file") levels.set(state.color, state.level);
    for (const color of [...levels.keys()].sort()) {
      const name = levels.get(color) === null ? "no level known" : `level ${levels.get(color)}`;
      const entry = element("button", { type: "button", "aria-pressed": String(kept === color), title: "show it alone" });
      entry.append(swatch({ usage: "table", color, born: 1, overlap: DATA.strongest }), element("span", {}, name));
      entry.addEventListener("click", () => { alone = kept === color ? null : color; legend(); show(frame); });
      entries.push(entry);
    }
    for (const use of DATA.uses) {
      if (use.key === "table" || use.key === "file" || !states.some((state) => state.usage === use.key)) continue;
      const entry = element("span", { title: use.meaning });
      entry.append(swatch({ usage: use.key, color: LEVELS - 1, born: 1, overlap: 0 }), element("span", {}, `${use.name}: ${use.meaning}`));
      entries.push(entry);
    }
    const strength = shade === "age" ? "the older, the fainter" : "the more tables overlap it, the stronger";
    const mark = DATA.overlaps ? `a ${DATA.cell} is filled as far as it counts` : `a square in a ${DATA.cell}: rewritten in this interval`;
    entries.push(element("span", {}, `${strength}; ${mark}`));
    byId("legend").replaceChildren(...entries);
    alone = kept;
  }

  function show(next) {
    frame = Math.max(0, Math.min(FRAMES - 1, next));
    for (const film of films) {
      seek(film, frame);
      draw(film, frame);
      count(film, frame);
      if (film.cursor !== null) film.said.textContent = say(film, film.cursor);
    }
    charts.forEach((move) => move(frame));
    const now = films[0].frames[frame];
    const full = DATA.scale > 1 ? ` (in full ${large(now.operations * DATA.scale)})` : "";
    const words = `frame ${frame + 1} of ${FRAMES}: ${plain(now.operations)} ${DATA.operations}${full}`;
    byId("moment").textContent = words;
    byId("slider").value = String(frame);
    byId("slider").setAttribute("aria-valuetext", words);
  }
  function pause() {
    clearInterval(timer);
    timer = null;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-pressed", "false");
  }
  function play() {
    if (frame === FRAMES - 1) show(0);
    timer = setInterval(() => {
      if (frame === FRAMES - 1) pause();
      else show(frame + 1);
    }, 1000 / Number(byId("speed").value));
    byId("play").textContent = "Pause";
    byId("play").setAttribute("aria-pressed", "true");
  }
  const toggle = () => (timer === null ? play() : pause());
  const go = (next) => { pause(); show(next); };
  byId("slider").max = String(FRAMES - 1);
  byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("play").addEventListener("click", toggle);
  byId("back").addEventListener("click", () => go(frame - 1));
  byId("forward").addEventListener("click", () => go(frame + 1));
  byId("speed").addEventListener("change", () => { if (timer !== null) { pause(); play(); } });
  byId("cell").addEventListener("change", () => { films.forEach(layout); show(frame); });
  byId("shading").hidden = !DATA.overlaps;
  byId("shade").addEventListener("change", (event) => { shade = event.target.value; legend(); show(frame); });
  document.addEventListener("keydown", (event) => {
    const at = event.target;
    // Elements that use these keys themselves keep them.
    const own = at instanceof Element && at.matches("select, input") || event.ctrlKey || event.altKey || event.metaKey;
    const step = event.shiftKey ? 10 : 1;
    const keys = { ArrowLeft: () => go(frame - step), ArrowRight: () => go(frame + step), Home: () => go(0), End: () => go(FRAMES - 1) };
    if (event.key === " " && !own && !at.matches("button")) keys[" "] = toggle;
    if (own || keys[event.key] === undefined) return;
    event.preventDefault();
    keys[event.key]();
  });
  let resized = null;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => { films.forEach(layout); show(frame); }, 150);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); legend(); show(frame); });

  chart(`${DATA.operations} a second, in each interval`, films.map((film) => film.frames.map((_, at) => rate(film, at))));
  films[0].counters.forEach((counter, index) => {
    if (counter.unit !== "1" || !films.every((film) => film.counters[index] !== undefined && film.counters[index].name === counter.name)) return;
    chart(`${counter.name}, in each interval`, films.map((film) => film.frames.map((now, at) => now.counters[index] - earlier(film, at).counters[index])));
  });
  readTheme();
  legend();
  films.forEach(layout);
  // It opens where the load ends; play begins at the first frame then.
  show(FRAMES - 1);
})();
