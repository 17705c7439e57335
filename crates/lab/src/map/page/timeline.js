(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("timelines-data").textContent);
  const svg = document.querySelector("#picture svg");
  const table = document.getElementById("numbers");
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", "0");
  cursor.setAttribute("y2", String(svg.viewBox.baseVal.height));
  svg.appendChild(cursor);
  const cell = (row, kind, text) => {
    const made = document.createElement(kind);
    made.textContent = text;
    row.appendChild(made);
  };
  const show = (seconds) => {
    const x = data.left + (data.right - data.left) * seconds / Math.max(data.seconds, 1e-9);
    cursor.setAttribute("x1", String(x));
    cursor.setAttribute("x2", String(x));
    table.replaceChildren();
    const head = table.insertRow();
    cell(head, "th", seconds.toFixed(0) + " s");
    for (const timeline of data.timelines) cell(head, "th", timeline.name);
    const at = data.timelines.map((timeline) => timeline.spans.find((span) => span[0] >= seconds));
    const rows = [["requests", (span) => span[1]]].concat(data.lines.map((name, index) => [name, (span) => span[2][index]]));
    for (const [name, value] of rows) {
      const row = table.insertRow();
      cell(row, "th", name);
      for (const span of at) cell(row, "td", span ? String(value(span)) : "done");
    }
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * data.width / box.width;
    const share = (x - data.left) / (data.right - data.left);
    show(Math.min(Math.max(share, 0), 1) * data.seconds);
  });
  show(0);
})();
