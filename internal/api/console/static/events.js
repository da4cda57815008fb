// Adds events to a table as they happen, on the page of a timer and on that of all activity.
'use strict';
(() => {
  const lines = 200; // at most, in the table and held back while it is paused
  const told = document.querySelector('#told[data-events]');
  if (!told) return;
  const watched = document.getElementById('watched');
  const pause = document.getElementById('pause');
  // What does not print, or turns the direction of writing, is shown as its code.
  const code = (c) => '\\u' + c.codePointAt(0).toString(16).padStart(4, '0');
  const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, code);
  const words = (e) => {
    const request = e.request || e.cancel || e.source;
    return [
      e.occurrence && `occurrence ${e.occurrence}`, e.type === 'moved' && e.pending ? `due ${exact(e.due)} → ${exact(e.pending.due)}` :
        e.occurrence && `late ${e.lateness || 0} ms`,
      e.target && `to ${e.target}`, e.reason, e.detail, request && `request ${request}`,
    ].filter(Boolean).join(' · ');
  };
  const id = (e) => {
    if (!e.id) return e.idBase64 ? `base64 ${e.idBase64}` : 'none';
    const link = document.createElement('a');
    link.href = '/timer?' + new URLSearchParams({id: e.id, topic: told.dataset.topic});
    const text = document.createElement('bdi');
    text.className = 'mono';
    text.append(visible(e.id));
    link.append(text);
    return link;
  };
  // clock writes a time as pages do.
  const parts = {
    year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit',
    fractionalSecondDigits: 3, hourCycle: 'h23',
  };
  const clock = (at) => {
    try {
      return at.toLocaleString('sv-SE', {...parts, timeZone: document.documentElement.dataset.zone}).replace(',', '.');
    } catch { // the browser does not know the zone
      return at.toISOString().slice(0, 23).replace('T', ' ') + ' UTC';
    }
  };
  const exact = (at) => clock(new Date(at)).replace(/\.000(?= |$)/, ''); // without milliseconds that are 0
  const add = (e) => {
    const row = told.tBodies[0].insertRow(0);
    told.classList.remove('empty');
    document.getElementById('nothing')?.remove();
    const at = document.createElement('time'), when = new Date(e.at);
    const readable = typeof e.type === 'string' && !isNaN(when); // another program may have written it
    at.className = 'nowrap';
    if (readable) {
      at.dateTime = when.toISOString();
      at.append(clock(when));
    }
    const what = readable ? [visible(e.type), visible(words(e))] : ['unreadable', ''];
    const cells = [['At', at], ['What', what[0]], ['Detail', what[1]]];
    if (told.dataset.topic) cells.splice(1, 0, ['ID', id(e)]);
    for (const [label, content] of cells) {
      const cell = row.insertCell();
      cell.dataset.label = label;
      const inner = document.createElement('span');
      inner.append(content);
      cell.append(inner);
    }
    while (told.tBodies[0].rows.length > lines) told.tBodies[0].deleteRow(-1);
  };

  // A line is added at the top. It waits while one reads: the top is out of sight, or the focus, the pointer or a
  // selection is in the table.
  const reading = () => told.getBoundingClientRect().top < 0 || told.contains(document.activeElement) ||
    told.matches(':hover') || !getSelection().isCollapsed && getSelection().containsNode(told, true);
  const going = 'What happens is added as it happens' + (pause ? `; the newest ${lines} lines are kept.` : '.');
  let state = going;
  let paused = false;
  let held = []; // events that wait
  let dropped = 0; // older ones than those in held
  const say = () => {
    const kept = dropped ? `, of which the newest ${lines} are kept` : '', n = held.length + dropped;
    const text = paused ? `Paused; ${n} held back${kept}.` : n ? `${n} new${kept}.` : state;
    if (watched.textContent !== text) watched.textContent = text;
    if (pause) pause.textContent = paused ? 'Go on' : n ? 'Show' : 'Pause';
  };
  const show = () => {
    const waiting = held;
    held = [];
    dropped = 0;
    waiting.forEach(add);
    say();
  };
  if (pause) {
    pause.hidden = false;
    pause.addEventListener('click', () => {
      paused = !paused && !held.length;
      if (paused) say();
      else show();
    });
  }
  setInterval(() => { if (!paused && held.length && !reading()) show(); }, 1000);

  // The stream is closed while the page is hidden, and continues after the last event that it got. EventSource does the
  // latter by itself, unless the service refuses it for a moment.
  const address = new URL(told.dataset.events, location.href);
  let stream = null, again;
  const open = () => {
    clearTimeout(again);
    stream?.close();
    stream = null;
    if (document.hidden) return;
    stream = new EventSource(address);
    stream.addEventListener('open', () => { state = going; say(); });
    stream.addEventListener('error', () => {
      state = 'Not live: the connection is lost. What happens meanwhile is added when it is there again.';
      say();
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(open, 5000);
    });
    stream.addEventListener('event', (message) => {
      if (message.lastEventId) address.searchParams.set('position', message.lastEventId);
      const e = JSON.parse(message.data);
      if (!paused && !held.length && !reading()) {
        add(e);
        return;
      }
      held.push(e);
      if (held.length > lines) dropped += held.splice(0, held.length - lines).length;
      say();
    });
  };
  document.addEventListener('visibilitychange', open);
  open();
})();
