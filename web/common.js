// What the pages share. The server puts this file in front of home.js, event.js and admin.js.
const texts = JSON.parse(document.getElementById('texts').textContent);
const languages = JSON.parse(document.getElementById('languages').textContent);

// The text of that key, with its {placeholders} filled in.
function t(key, values = {}) {
  return (texts[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}
