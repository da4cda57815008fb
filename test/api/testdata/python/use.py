"""Uses the generated client as somebody would who has only read the OpenAPI document."""

import sys
from io import BytesIO

from waterclock_client import Client
from waterclock_client.api.jobs import cancel_timers
from waterclock_client.api.service import get_cluster, list_topics, next_occurrences
from waterclock_client.api.timers import (
    cancel_timer,
    count_timers,
    get_timer,
    list_timers,
    pause_timer,
    post_timers,
    put_timer,
    resume_timer,
)
from waterclock_client.models.count_timers_state import CountTimersState
from waterclock_client.models.new_timer import NewTimer
from waterclock_client.models.new_timers import NewTimers
from waterclock_client.models.problem import Problem
from waterclock_client.models.put_timer_wait import PutTimerWait
from waterclock_client.models.result_outcome import ResultOutcome
from waterclock_client.models.target import Target
from waterclock_client.models.timer_state import TimerState
from waterclock_client.types import File, Unset


def use(url: str, topic: str, target: str) -> None:
    client = Client(base_url=url)
    to = Target(topic=target)

    # Schedule: as JSON, and with the payload as the body.
    one = NewTimer(value="hello from Python", after="1h", target=to)
    made = put_timer.sync(topic, "py/one é", client=client, body=one)
    assert not isinstance(made, Problem) and made is not None, made
    assert made.outcome is ResultOutcome.SCHEDULED, made
    fires = File(payload=BytesIO(b"fires \x00\xff"))
    fired = put_timer.sync_detailed(
        topic, "py-fires", client=client, body=fires,
        timer_after="500ms", timer_target_topic=target, waterclock_pass="from=python",
    )
    assert fired.status_code == 201, fired
    written = put_timer.sync(topic, "py-written", client=client, body=one, wait=PutTimerWait.WRITTEN)
    assert not isinstance(written, Problem) and written is not None, written
    assert written.outcome is ResultOutcome.WRITTEN, written

    # Get, list, count.
    timer = get_timer.sync(topic, "py/one é", client=client)
    assert not isinstance(timer, Problem) and timer is not None, timer
    assert timer.id == "py/one é" and timer.state is TimerState.PENDING, timer
    assert timer.due.tzinfo is not None and timer.target.topic == target, timer
    assert not isinstance(timer.payload, Unset) and timer.payload.text == "hello from Python", timer
    page = list_timers.sync(topic, client=client, prefix="py/", limit=10)
    assert not isinstance(page, Problem) and page is not None, page
    assert [t.id for t in page.timers] == ["py/one é"], page

    # Pause and resume.
    paused = pause_timer.sync(topic, "py/one é", client=client, if_match=f'"{timer.source}"')
    assert not isinstance(paused, Problem) and paused is not None, paused
    assert paused.outcome is ResultOutcome.PAUSED, paused
    n = count_timers.sync(topic, client=client, prefix="py/", state=CountTimersState.PAUSED)
    assert not isinstance(n, Problem) and n is not None and n.count == 1, n
    resumed = resume_timer.sync(topic, "py/one é", client=client)
    assert not isinstance(resumed, Problem) and resumed is not None, resumed

    # What is wrong is a Problem, with a reason.
    again = put_timer.sync_detailed(topic, "py/one é", client=client, body=one, if_none_match="*")
    assert again.status_code == 412 and isinstance(again.parsed, Problem), again
    assert again.parsed.reason == "condition-not-met", again
    bad = put_timer.sync(topic, "py-bad", client=client, body=NewTimer(value="", after="soon", target=to))
    assert isinstance(bad, Problem) and bad.reason == "bad-duration" and not bad.request, bad

    # Many.
    many = [NewTimer(id=f"py-many-{i}", value="v", after="1h", target=to) for i in range(3)]
    posted = post_timers.sync(topic, client=client, body=NewTimers(timers=many))
    assert not isinstance(posted, Problem) and posted is not None, posted
    assert [r.status for r in posted.results] == [201, 201, 201], posted
    dry = cancel_timers.sync(topic, client=client, prefix="py-many-", dry_run=True)
    assert not isinstance(dry, Problem) and dry is not None, dry
    assert not isinstance(dry.matching, Unset) and dry.matching.count == 3, dry

    # Cancel.
    cancelled = cancel_timer.sync(topic, "py/one é", client=client)
    assert not isinstance(cancelled, Problem) and cancelled is not None, cancelled
    assert cancelled.outcome is ResultOutcome.CANCELLED, cancelled
    gone = get_timer.sync_detailed(topic, "py/one é", client=client)
    assert gone.status_code == 404 and isinstance(gone.parsed, Problem), gone

    # The service.
    topics = list_topics.sync(client=client)
    assert not isinstance(topics, Problem) and topics is not None, topics
    assert [t.topic for t in topics.topics] == [topic], topics
    cluster = get_cluster.sync(client=client)
    assert not isinstance(cluster, Problem) and cluster is not None, cluster
    assert cluster.partitions and all(p.state == "live" for p in cluster.partitions), cluster
    following = next_occurrences.sync(client=client, cron="0 9 * * mon-fri", zone="Africa/Lagos", n=3)
    assert not isinstance(following, Problem) and following is not None, following
    assert len(following.next_) == 3, following


use(*sys.argv[1:])
print("all is well")
