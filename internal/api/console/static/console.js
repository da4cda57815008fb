// What pages do by themselves. All else works without it.
'use strict';
(() => {
  const page = document.documentElement;
  const patience = 8000; // ms that an answer may take
  const get = async (address) => {
    const headers = {Accept: 'text/html', 'Waterclock-Live': '1'};
    const answer = await fetch(address, {headers, cache: 'no-store', signal: AbortSignal.timeout(patience)});
    return new DOMParser().parseFromString(await answer.text(), 'text/html');
  };

  // The zone of pages may be that of the browser, wherever it is now.
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const browser = document.getElementById('browser-zone');
  if (here) {
    browser.value = 'browser:' + here;
    browser.textContent = `This browser: ${here}`;
    browser.hidden = false;
    const moved = 'follows' in page.dataset && page.dataset.zone !== here;
    if (moved && navigator.cookieEnabled && !sessionStorage.getItem('zone ' + here)) {
      sessionStorage.setItem('zone ' + here, 'asked'); // once: the service may not know the zone
      browser.click();
    }
  }

  // rough is a duration in its two largest units, as pages write it.
  const rough = (ms) => {
    const units = [[31536e6, 'y', 864e5, 'd'], [864e5, 'd', 36e5, 'h'], [36e5, 'h', 6e4, 'min'], [6e4, 'min', 1e3, 's']];
    for (const [unit, name, part, partName] of units) {
      if (ms < unit) continue;
      const rest = Math.floor(ms % unit / part);
      return `${Math.floor(ms / unit)} ${name}` + (rest > 0 && ms / unit < 100 ? ` ${rest} ${partName}` : '');
    }
    return `${Math.floor(ms / 1e3)} s`;
  };

  // change makes an element like that of a newer page. Nodes that are on both pages stay in the document, so they keep
  // their ticks and the focus. An element with an ID, or a row with a tick box, stays the same element wherever it
  // moves; others match by their place. The script itself keeps elements with data-own up to date.
  const keyOf = (e) => e.id || e.nodeName === 'TR' && e.querySelector('input[name=pick]')?.value || '';
  const change = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (fresh.hasAttribute('data-own')) return;
    for (const {name} of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
    }
    for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const rows = new Map([...old.children].map((e) => [keyOf(e), e])), next = [...fresh.childNodes];
    const keys = new Set(next.map((e) => keyOf(e)));
    for (const [key, e] of rows) if (key && !keys.has(key)) e.remove();
    let at = old.firstChild;
    for (const node of next) {
      const key = keyOf(node), alike = at && !keyOf(at) && at.nodeName === node.nodeName;
      const same = key ? rows.get(key) : alike ? at : null;
      if (!same) {
        old.insertBefore(node, at); // this takes it out of the newer page
        continue;
      }
      while (key && at && at !== same && !keyOf(at)) { // otherwise same would move, and lose the focus
        const e = at;
        at = at.nextSibling;
        e.remove();
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      change(same, node);
    }
    while (at) {
      const e = at;
      at = at.nextSibling;
      e.remove();
    }
  };

  // A page is as of when it was made or updated. Ten seconds later it says that it is old, and why.
  const byID = (id) => document.getElementById(id);
  const toggle = byID('live'), main = byID('content'), stale = byID('stale'), period = 5000;
  let live = [...document.querySelectorAll('[data-live]')];
  const updates = live.length > 0;
  let since = Date.now(); // when the page was made or updated last
  let next = since + period, timer, busy = false; // of the next update; busy: one is under way
  let shown = since; // when the page was last shown or hidden: a hidden page is not updated
  let why = ''; // why the last update failed
  let ahead = Date.parse(byID('as-of').dataset.now) - since; // ms by which the clock of the service is ahead

  const read = async () => {
    if (live.length === 0) { // nothing changes on this page: only see whether the service answers
      await fetch('/static/icon.svg', {method: 'HEAD', cache: 'no-store', signal: AbortSignal.timeout(patience)});
      return '';
    }
    const fresh = await get(location.href), parts = live.map((e) => [e, fresh.getElementById(e.id)]);
    if (!fresh.getElementById('as-of')) return 'The answer is no page of the console: load this one again.';
    if (parts.every(([, newer]) => !newer)) return fresh.querySelector('h1').textContent + ': load the page again.';
    ahead = Date.parse(fresh.getElementById('as-of').dataset.now) - Date.now();
    // A part that is not live on the newer page does not change any more.
    live = parts.filter(([, newer]) => newer?.hasAttribute('data-live') ?? true).map(([e]) => e);
    for (const id of ['as-of', 'live-dead']) parts.push([byID(id), fresh.getElementById(id)]);
    for (const [e, newer] of parts) { // a part that is missing is not known now; another part says why
      if (newer) change(e, newer);
      else e.setAttribute('data-stale', '');
    }
    copyable(main);
    ticks();
    return '';
  };
  const update = async () => {
    if (busy) return;
    busy = true;
    clearTimeout(timer);
    const begun = Date.now();
    if (!document.hidden && (!updates || toggle.checked)) {
      try {
        why = await read();
        if (!why) since = Date.now();
      } catch {
        why = 'The service does not answer.';
      }
      count();
    }
    busy = false;
    // A page that takes long is asked for less often.
    const wait = Math.max(period, Math.min(60_000, 10 * (Date.now() - begun)));
    next = Date.now() + wait;
    timer = setTimeout(update, wait);
  };
  // tell says whether the page is old, and returns it.
  const tell = () => {
    const age = Date.now() - since, off = updates && !toggle.checked;
    const late = why !== '' || off || Date.now() > Math.max(next, shown) + period;
    const old = age > 2 * period && late;
    const reason = !old ? '' : off ? 'Updates are switched off.' : why || 'The service does not answer.';
    const says = byID('stale-says'); // a change is read aloud
    if (says.textContent !== reason) says.textContent = reason;
    const aged = rough(age);
    byID('stale-age').textContent = updates ? `What is shown is ${aged} old.` : `The last answer was ${aged} ago.`;
    stale.hidden = !old;
    main.toggleAttribute('data-stale', old && updates);
    return old;
  };
  // Countdowns go on by themselves. When one ends, the page is updated to show the outcome.
  const count = () => {
    const old = tell();
    let ended = false;
    for (const e of document.querySelectorAll('[data-due]')) {
      const left = Date.parse(e.dataset.due) - Date.now() - ahead;
      const due = left > -1000 ? 'now' : `${rough(-left)} ago`;
      const text = left >= 1000 ? `in ${rough(left)}` : old ? 'due, and not known if fired' : due;
      ended ||= text === 'now' && e.textContent !== text;
      if (e.textContent !== text) e.textContent = text;
    }
    if (ended) setTimeout(update, 300);
  };
  if (updates) {
    byID('live-label').hidden = false;
    toggle.checked = sessionStorage.getItem('live') !== 'off';
    toggle.addEventListener('change', () => {
      sessionStorage.setItem('live', toggle.checked ? 'on' : 'off');
      update();
    });
  }
  byID('stale-again').addEventListener('click', () => {
    if (updates && !toggle.checked) toggle.click();
    else update();
  });
  document.addEventListener('visibilitychange', () => {
    shown = Date.now();
    if (!document.hidden) update();
  });
  addEventListener('pageshow', (event) => { if (event.persisted) update(); });
  setInterval(count, 1000);
  timer = setTimeout(update, period);

  // Timers are ticked one by one, or all of the page.
  const boxes = () => [...document.querySelectorAll('input[name=pick]')];
  const ticks = () => {
    const all = byID('all');
    if (!all) return;
    const some = boxes(), ticked = some.filter((b) => b.checked).length;
    byID('all-label').hidden = false;
    all.checked = ticked === some.length;
    all.indeterminate = ticked > 0 && ticked < some.length;
    byID('ticked').textContent = ticked ? `${ticked} ticked:` : 'None ticked';
    for (const b of all.closest('form').querySelectorAll('button[name=do]')) b.disabled = ticked === 0;
  };
  document.addEventListener('change', (event) => {
    if (event.target.id === 'all') for (const b of boxes()) b.checked = event.target.checked;
    if (event.target.id === 'all' || event.target.name === 'pick') ticks();
  });
  addEventListener('pageshow', ticks); // a browser that goes back ticks what was ticked
  ticks();

  // A button copies the text that its attribute has as JSON or, if that is empty, the text of the element before it.
  const copyable = (root) => { for (const b of root.querySelectorAll('[data-copy]')) b.hidden = false; };
  copyable(document);
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // the page is not from a secure origin
      const field = document.createElement('textarea');
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand('copy');
      field.remove();
    }
  };
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    await copy(button.dataset.copy ? JSON.parse(button.dataset.copy) : button.previousElementSibling.textContent);
    button.focus();
    const label = button.firstChild;
    label.textContent = 'Copied';
    setTimeout(() => { label.textContent = 'Copy'; }, 2000);
  });

  // On a narrow screen what is long and comes before the matter is folded.
  if (matchMedia('(max-width: 46rem)').matches) for (const e of document.querySelectorAll('details[data-wide]')) e.open = false;

  if (document.getElementById('cron')) {
    const fields = ['cron', 'every', 'zone', 'at', 'jitter', 'not-on', 'shift'].map((id) => document.getElementById(id)).filter(Boolean);
    const when = () => new URLSearchParams(fields.map((field) => [field.name, field.value])).toString();
    let wait;
    const explain = async () => {
      const asked = when();
      try {
        const fresh = await get('/schedule?' + asked);
        if (asked === when()) change(byID('explained'), fresh.getElementById('explained'));
      } catch { /* the button asks in the other way */ }
    };
    for (const field of fields) {
      field.addEventListener('input', () => { clearTimeout(wait); wait = setTimeout(explain, 250); });
    }
  }

  document.addEventListener('keydown', (event) => {
    const menu = document.querySelector('details.zone');
    if (event.key === 'Escape' && menu.open) {
      menu.open = false;
      menu.querySelector('summary').focus();
    }
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    const find = byID('find');
    find.focus();
    find.select();
  });
})();
