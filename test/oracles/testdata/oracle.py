"""Answers the queries of package oracles, a line each: with cronsim, croniter, or dateutil (periods)."""
import re
import signal
import sys
from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from dateutil.relativedelta import relativedelta

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NEVER = 1 << 40


def by_cronsim(text, after):
    return next(CronSim(text, after), None)


@cache
def parsed(text):
    return croniter(text, ret_type=datetime, implement_cron_bug=True, second_at_beginning=True)


def by_croniter(text, after):
    return parsed(text).get_next(start_time=after)


def cron(library, zone, after, count, how, *lists):
    """zone, after in Unix seconds, how many, "or" or "and", expressions, expressions; ends in "endless" if it loops."""
    local, at, answer = ZoneInfo(zone), int(after), []

    def first(texts):
        found = (library(text, datetime.fromtimestamp(at, local)) for text in filter(None, texts.split("|")))
        return min((int((d - EPOCH) / timedelta(seconds=1)) for d in found if d), default=NEVER)

    signal.alarm(10)
    try:
        for _ in range(int(count)):
            x, y = map(first, lists)
            while how == "and" and x != y:
                at = max(x, y) - 1
                x, y = map(first, lists)
            at = min(x, y)
            answer.append(str(at))
    except TimeoutError:
        answer.append("endless")
    signal.alarm(0)
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


signal.signal(signal.SIGALRM, overdue)
answer = {
    "cronsim": lambda *q: cron(by_cronsim, *q), "croniter": lambda *q: cron(by_croniter, *q), "dateutil": period,
}[sys.argv[1]]
for line in sys.stdin:
    print(answer(*line.rstrip("\n").split("\t")))
