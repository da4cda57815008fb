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
  // their ticks and the focus. An element with an ID or a data-key stays the same element wherever it moves; others
  // match by their place. The script itself keeps elements with data-own up to date. A list (data-list) keeps its rows
  // until its reader asks for the newer ones, and so do elements that belong to it (data-with-list): see offer.
  const keyOf = (e) => e.id || e.dataset?.key || '';
  let whole = false; // lists are to be as on the newer page
  const change = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      const selection = getSelection(); // a text that is selected stays so
      if (!selection.isCollapsed && selection.containsNode(old, true)) return;
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (fresh.hasAttribute('data-own') || fresh.hasAttribute('data-with-list') && !whole) return;
    if (old.hasAttribute('data-list') && !whole && old.rows.length) {
      offer(old, fresh);
      return;
    }
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

  // offer updates the rows of a list where they are, so that nothing moves while it is read. A row that the newer list
  // lacks stays and says so. How many are new is told beside a button that shows the newer list; fresh null: it is empty.
  const offer = (list, fresh) => {
    const rows = new Map([...fresh?.rows ?? []].map((row) => [keyOf(row), row])), order = [...rows.keys()], kept = [];
    let gone = 0;
    for (const row of list.rows) {
      const newer = rows.get(keyOf(row));
      if (newer) {
        change(row, newer);
        kept.push(keyOf(row));
        rows.delete(keyOf(row));
      } else {
        gone++;
        row.classList.remove('fresh');
      }
      row.classList.toggle('gone', !newer);
    }
    const moved = order.filter((key) => !rows.has(key)).join('\n') !== kept.join('\n') ? 'another order' : '';
    const added = rows.size && `${rows.size} new`, left = gone && `${gone} gone`;
    offered = [added, left, moved].filter(Boolean).join(', ');
  };
  let offered = ''; // what is new, in words
  const tellNews = (old) => {
    const news = document.getElementById('news');
    if (!news) return;
    news.hidden = false;
    const says = news.querySelector('span'), told = old ? 'This list is not live.' : offered || 'Live: nothing new here.';
    if (says.textContent !== told) says.textContent = told; // a change is read aloud
    news.querySelector('button').disabled = !offered;
  };
  document.addEventListener('click', async (event) => {
    if (!event.target.closest('#news button')) return;
    const had = new Set([...document.querySelectorAll('[data-list] > tr')].map(keyOf));
    await busy;
    whole = true;
    await update();
    const failed = whole; // the bar says why
    whole = false;
    if (failed) return;
    for (const row of document.querySelectorAll('[data-list] > tr')) row.classList.toggle('fresh', !had.has(keyOf(row)));
    const news = document.getElementById('news');
    if (news?.parentElement.getBoundingClientRect().top < 0) news.parentElement.scrollIntoView();
    news?.focus({preventScroll: true});
  });

  // hold returns a function that, after an update, puts what is read back to where it was in the window: the element
  // that has the focus, or one in the upper half. At the top of a page nothing is held, because news may come there.
  const hold = () => {
    const focus = document.activeElement, within = (e) => e && e !== document.body && main.contains(e);
    const seen = (e) => { const box = e.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
    const part = within(focus) && focus.closest('[data-live]');
    const at = document.elementsFromPoint(innerWidth / 2, innerHeight / 3);
    const e = within(focus) && seen(focus) ? focus : at.find((x) => within(x) && !x.closest('#news, .ticks'));
    const top = e?.getBoundingClientRect().top;
    return () => {
      if (scrollY > 0 && e?.isConnected) scrollBy({top: e.getBoundingClientRect().top - top, behavior: 'instant'});
      if (part && document.activeElement === document.body) { // what had the focus is gone
        part.tabIndex = -1;
        part.focus({preventScroll: true});
      }
    };
  };

  // A page is as of when it was made or updated. Ten seconds later it says that it is old, and why.
  const byID = (id) => document.getElementById(id);
  const toggle = byID('live'), main = byID('content'), stale = byID('stale'), period = 5000;
  let live = [...document.querySelectorAll('[data-live]')];
  const updates = live.length > 0;
  let since = Date.now(); // when the page was made or updated last
  let next = since + period, timer; // of the next update
  let busy = null; // the update that is under way
  let tookBefore = 0; // ms that the update before took
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
    for (const e of document.querySelectorAll('#as-of, [id^=live-dead]')) parts.push([e, fresh.getElementById(e.id)]);
    const back = hold();
    for (const [e, newer] of parts) { // a part that is missing is not known now; another part says why
      const list = !whole && newer && !newer.querySelector('[data-list]') && e.querySelector('[data-list]');
      const wrong = list && newer.querySelector('[role=alert] strong'); // why the list cannot be read
      if (newer && !list) change(e, newer);
      else if (list && !wrong) offer(list, null);
      else if (wrong) offered = `Not live: ${wrong.textContent}`;
      e.toggleAttribute('data-stale', !newer || Boolean(wrong));
    }
    if (whole) offered = '';
    whole = false;
    back();
    copyable(main);
    ticks();
    return '';
  };
  const update = () => busy ??= updated().finally(() => { busy = null; });
  const updated = async () => {
    clearTimeout(timer);
    const begun = Date.now();
    if (whole || !document.hidden && (!updates || toggle.checked)) {
      try {
        why = await read();
        if (!why) since = Date.now();
      } catch {
        why = 'The service does not answer.';
      }
      count();
    }
    // A page that takes long is asked for less often. One slow answer does not count: the faster of the last two does.
    const took = Date.now() - begun;
    const wait = Math.max(period, Math.min(60_000, 10 * Math.min(took, tookBefore)));
    tookBefore = took;
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
    tellNews(off || old);
    return old;
  };
  // Countdowns go on by themselves. When one ends, the page is updated to show the outcome.
  const count = () => {
    const old = tell();
    let ended = false;
    for (const e of document.querySelectorAll('[data-due]')) {
      if (e.closest('.gone')) continue;
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
  tell();
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
  // With Shift, all between this box and the one before get the same tick.
  let before;
  document.addEventListener('click', (event) => {
    const box = event.target;
    if (box.name !== 'pick') return;
    const all = boxes(), from = all.indexOf(before), to = all.indexOf(box);
    if (event.shiftKey && from >= 0) {
      for (const b of all.slice(Math.min(from, to), Math.max(from, to) + 1)) b.checked = box.checked;
      ticks();
    }
    before = box;
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
    if (event.key === 'Escape') {
      for (const menu of document.querySelectorAll('header details[open]')) {
        menu.open = false;
        menu.querySelector('summary').focus();
      }
    }
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    const find = byID('find');
    if (!find.checkVisibility()) find.closest('details').open = true;
    find.focus();
    find.select();
  });
})();
