"""Answers the queries of package oracles, a line each: with cronsim, croniter, or dateutil (periods)."""
import re
import signal
import sys
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from dateutil.relativedelta import relativedelta

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NEVER = 1 << 40
LIMIT = 2.0  # seconds of the processor for a query, which needs some milliseconds


def unix(d):
    return int((d - EPOCH) / timedelta(seconds=1))


def by_cronsim(local, after, count, _, text, __):
    """Its expressions are always one. It parses them each time, so it goes on from there."""
    for d in islice(CronSim(text, datetime.fromtimestamp(after, local)), count):
        yield unix(d)


@cache
def parsed(text):
    return croniter(text, ret_type=datetime, implement_cron_bug=True, second_at_beginning=True)


def by_croniter(local, at, count, how, *lists):
    def first(texts):
        after = datetime.fromtimestamp(at, local)
        return min((unix(parsed(text).get_next(start_time=after)) for text in texts), default=NEVER)

    lists = [list(filter(None, texts.split("|"))) for texts in lists]
    for _ in range(count):
        x, y = map(first, lists)
        while how == "and" and x != y:
            at = max(x, y) - 1
            x, y = map(first, lists)
        at = min(x, y)
        yield at


def cron(library, zone, after, count, *query):
    """zone, after in Unix seconds, how many, "or" or "and", expressions, expressions; ends in "endless" if it loops."""
    answer = []
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        for at in library(ZoneInfo(zone), int(after), int(count), *query):
            answer.append(str(at))
    except TimeoutError:
        answer.append("endless")
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return " ".join(answer)


def overdue(*_):
    raise TimeoutError


def period(zone, anchor, text, count):
    """zone, anchor in Unix milliseconds, period, how many of them: the instant in Unix milliseconds."""
    ms, n = timedelta(milliseconds=1), int(count)
    instant = EPOCH + int(anchor) * ms
    if n == 0:
        return anchor
    units = {"Y": "years", "M": "months", "W": "weeks", "D": "days"}
    step = relativedelta(**{units[unit]: int(number) * n for number, unit in re.findall(r"(\d+)([YMWD])", text)})
    local = (instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) + step).replace(tzinfo=ZoneInfo(zone))
    # In a gap the first reading, by the offset before it, is later than the second one, by the offset after it.
    late, early = ((local.replace(fold=fold) - EPOCH) // ms for fold in (0, 1))
    before = local.utcoffset()
    while late > early + 1:
        middle = (late + early) // 2
        if (EPOCH + middle * ms).astimezone(ZoneInfo(zone)).utcoffset() == before:
            early = middle
        else:
            late = middle
    return str(late)


signal.signal(signal.SIGVTALRM, overdue)
answer = {
    "cronsim": lambda *q: cron(by_cronsim, *q), "croniter": lambda *q: cron(by_croniter, *q), "dateutil": period,
}[sys.argv[1]]
for line in sys.stdin:
    print(answer(*line.rstrip("\n").split("\t")))
