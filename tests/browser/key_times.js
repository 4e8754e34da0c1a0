// Milliseconds from each of twenty presses of a key to the frame that shows the new picture. The next frame is waited for.
async ([selector, keys]) => {
  const times = [];
  for (let at = 0; at < 20; at++) {
    const control = document.querySelector(selector), key = keys[at % keys.length];
    control.focus();
    const begin = performance.now();
    if (control.type === "range") {
      control.value = Number(control.value) + (at % 2 ? -1 : 1);
      control.dispatchEvent(new Event("input", {bubbles: true}));
    } else control.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - begin);
  }
  return times;
}
