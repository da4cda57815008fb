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

  const going = 'What happens is added as it happens' + (pause ? `; the newest ${lines} lines are kept.` : '.');
  let state = going;
  let held = null; // events while it is paused; null: it is not
  let dropped = 0; // older ones than those in held
  const say = () => {
    const kept = dropped ? `, of which the newest ${lines} are kept` : '';
    watched.textContent = held ? `Paused; ${held.length + dropped} held back${kept}.` : state;
    if (pause) pause.textContent = held ? 'Go on' : 'Pause';
  };
  if (pause) {
    pause.hidden = false;
    pause.addEventListener('click', () => {
      const waiting = held;
      held = waiting ? null : [];
      dropped = 0;
      waiting?.forEach(add);
      say();
    });
  }
  const stream = new EventSource(told.dataset.events);
  // EventSource continues by itself after the last event that it got. If it cannot, it is closed.
  stream.addEventListener('open', () => { state = going; say(); });
  stream.addEventListener('error', () => {
    state = stream.readyState === EventSource.CLOSED ?
      'The instance tells of no more events here: load the page again for what has happened since.' :
      'The connection is lost; what happens meanwhile is added when it is there again.';
    say();
  });
  stream.addEventListener('event', (message) => {
    const e = JSON.parse(message.data);
    if (!held) {
      add(e);
      return;
    }
    held.push(e);
    if (held.length > lines) dropped += held.splice(0, held.length - lines).length;
    say();
  });
})();
