// Ask again and again: not while the page is hidden, at once when it is seen again.

const all = new Set();

/** Run `work` now and then `seconds` after it ended; `now()` runs it sooner, `stop()` ends it. */
export function every(seconds, work) {
  const poll = { timer: null, busy: false, again: false, stopped: false };
  poll.now = async () => {
    clearTimeout(poll.timer);
    if (poll.busy) {
      poll.again = true;
      return;
    }
    if (poll.stopped || document.hidden) return;
    poll.busy = true;
    try {
      await work();
    } finally {
      poll.busy = false;
      if (!poll.stopped) poll.timer = setTimeout(poll.now, poll.again ? 0 : seconds * 1000);
      poll.again = false;
    }
  };
  poll.stop = () => {
    poll.stopped = true;
    clearTimeout(poll.timer);
    all.delete(poll);
  };
  all.add(poll);
  poll.now();
  return poll;
}

/** Run everything at once, after something has changed. */
export function refreshAll() {
  for (const poll of all) poll.now();
}

document.addEventListener("visibilitychange", () => document.hidden || refreshAll());
