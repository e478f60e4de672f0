const timers = new Map();

// Calls after so many milliseconds; of the same name only the last call.
export function later(name, milliseconds, call) {
  clearTimeout(timers.get(name));
  timers.set(name, setTimeout(call, milliseconds));
}

export function never(name) {
  clearTimeout(timers.get(name));
}
