// Questions to the server, which may be slow, busy or away.

const FIRST_WAIT = 1, LONGEST_WAIT = 15; // Seconds.

// A sentence of the server's that says why not.
export class Refusal extends Error {}

// Of the same channel only the newest question is answered. While the server
// is busy or away, questions wait: longer each time, or as long as it says.
export class Server {
  // `onWait(kind, seconds)`: "busy" or "away"; `onBack()` after that.
  constructor({ onWait, onBack }) {
    Object.assign(this, { onWait, onBack });
    this.newest = new Map();
    this.failures = 0;
    this.notBefore = 0;
    this.wake = new EventTarget();
  }

  // The answer, or undefined where a newer question came in between.
  async ask(channel, path, body) {
    const mine = new AbortController(), { signal } = mine;
    this.drop(channel);
    this.newest.set(channel, mine);
    for (;;) {
      await this.pause(signal);
      if (signal.aborted) return undefined;
      const found = await request(path, body, signal);
      if (signal.aborted) return undefined;
      if (!found.wait) {
        if (this.failures) this.onBack();
        this.failures = 0;
        if (found.refusal) throw new Refusal(found.refusal);
        return found.answer;
      }
      this.failed(found);
    }
  }

  // Nobody waits for the channel's question any more.
  drop(channel) {
    this.newest.get(channel)?.abort();
  }

  // Whoever waits asks now.
  retry() {
    this.notBefore = 0;
    this.wake.dispatchEvent(new Event("wake"));
  }

  failed({ wait, seconds }) {
    const growing = FIRST_WAIT * 2 ** this.failures++;
    // Many pages that lost the same server do not return at the same moment.
    const usual = Math.min(growing, LONGEST_WAIT) * (0.8 + 0.4 * Math.random());
    const pause = seconds ?? usual;
    this.notBefore = Date.now() + 1000 * pause;
    this.onWait(wait, pause);
  }

  pause(signal) {
    const left = this.notBefore - Date.now();
    if (left <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      setTimeout(resolve, left);
      signal.addEventListener("abort", resolve);
      this.wake.addEventListener("wake", resolve, { once: true });
    });
  }
}

// An answer, a refusal, or why to wait and the seconds that the server names.
async function request(path, body, signal) {
  try {
    const response = await fetch(path, {
      signal,
      ...(body && {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      }),
    });
    if (response.status === 503 || response.status === 429) {
      return { wait: "busy", seconds: retryAfter(response) };
    }
    if (response.status === 502) return { wait: "away" };
    const text = await response.text();
    return parsed(text, response);
  } catch {
    return { wait: "away" };
  }
}

function parsed(text, response) {
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = null; // Such as the page of a proxy that asks for a password.
  }
  if (response.ok && answer && !answer.error) return { answer };
  const said = answer?.error;
  return {
    refusal: typeof said === "string" ? said
      : `The server could not answer (status ${response.status}).`,
  };
}

// Seconds or a date; undefined where the server names neither.
function retryAfter(response) {
  const header = response.headers.get("Retry-After");
  if (!header) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header)
    : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
