// What pages do by themselves. All else works without it.
'use strict';
(() => {
  const get = async (address) => {
    const answer = await fetch(address, {headers: {Accept: 'text/html', 'Waterclock-Live': '1'}, cache: 'no-store'});
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    local(page);
    return page;
  };
  // local adds to each time what the clock of the reader shows, where that is not UTC.
  const local = (root) => {
    for (const time of root.querySelectorAll('main time[datetime]')) {
      const at = new Date(time.dateTime);
      if (isNaN(at) || at.getTimezoneOffset() === 0) continue;
      const precise = /\.\d{3}$/.test(time.textContent);
      const clock = {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', ...(precise && {fractionalSecondDigits: 3}), timeZoneName: 'short'};
      const text = at.toLocaleTimeString(undefined, clock);
      const day = at.getDate() === at.getUTCDate() ? '' : at.toLocaleDateString(undefined, {weekday: 'short', day: 'numeric', month: 'short'}) + ' ';
      const beside = root.createElement('small');
      beside.className = 'local';
      beside.textContent = `(${day}${text})`;
      time.after(' ', beside);
    }
  };
  local(document);

  // swap shows what a newer page has in place of an element of this one. Not while one is in it
  // or marks text there: it would be gone.
  const swap = (page, old) => {
    const fresh = page.getElementById(old.id);
    const marked = getSelection();
    if (!fresh || old.contains(document.activeElement) || (!marked.isCollapsed && old.contains(marked.anchorNode))) return;
    if (fresh.innerHTML !== old.innerHTML) old.replaceChildren(...fresh.childNodes);
  };

  let live = [...document.querySelectorAll('[data-live]')];
  const toggle = document.getElementById('live');
  if (live.length) {
    document.getElementById('live-label').hidden = false;
    toggle.checked = sessionStorage.getItem('live') !== 'off';
    toggle.addEventListener('change', () => sessionStorage.setItem('live', toggle.checked ? 'on' : 'off'));
    const lost = document.getElementById('lost');
    const again = async () => {
      if (toggle.checked && !document.hidden) {
        try {
          const page = await get(location.href);
          for (const element of [...live, document.getElementById('as-of'), document.getElementById('live-dead')]) swap(page, element);
          // What is over does not change any more.
          live = live.filter((element) => page.getElementById(element.id)?.hasAttribute('data-live') ?? true);
          lost.hidden = true;
        } catch {
          lost.hidden = false;
        }
      }
      if (live.length) setTimeout(again, 5000);
    };
    setTimeout(again, 5000);
    document.addEventListener('visibilitychange', () => { lost.hidden = true; });
  }

  const cron = document.getElementById('cron');
  if (cron) {
    const zone = document.getElementById('zone');
    let wait;
    const explain = async () => {
      const asked = cron.value + '\n' + zone.value;
      try {
        const page = await get('/schedule?' + new URLSearchParams({cron: cron.value, zone: zone.value}));
        if (asked === cron.value + '\n' + zone.value) swap(page, document.getElementById('explained'));
      } catch { /* the button asks in the other way */ }
    };
    for (const field of [cron, zone]) {
      field.addEventListener('input', () => { clearTimeout(wait); wait = setTimeout(explain, 250); });
    }
  }

  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    const find = document.getElementById('find');
    find.focus();
    find.select();
  });
})();
