# copy.py BROKERS SOURCE TO etf1 STOPPED [fire|drop], or copy.py BROKERS SOURCE TO sky
#
# Copies the schedules of another scheduler that are pending in the topic SOURCE to the request topic
# TO, in one transaction, with keys by murmur2. docs/MIGRATION.md says when to run it, and which it
# copies. It needs confluent-kafka.
# STOPPED is the Unix time, in seconds, at which the last etf1 scheduler had exited.
import collections, re, sys
from confluent_kafka import Consumer, Producer, TopicPartition, TIMESTAMP_NOT_AVAILABLE

brokers, source, to, scheduler = sys.argv[1:5]
stopped = int(sys.argv[5]) if scheduler == "etf1" else 0
overdue = sys.argv[6] if len(sys.argv) > 6 else "ask"
producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2_random",
                     "transactional.id": f"copy-{source}-{to}", "transaction.timeout.ms": 900000})
producer.init_transactions()  # ends what an earlier run has left open
consumer = Consumer({"bootstrap.servers": brokers, "group.id": f"copy-{source}-{to}",
                     "enable.auto.commit": False, "isolation.level": "read_committed",
                     "enable.partition.eof": True})

def partitions(topic):
    return consumer.list_topics(topic, timeout=30).topics[topic].partitions

def ends(topic):
    return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions(topic)}

def records(topic):
    left = set(partitions(topic))
    consumer.assign([TopicPartition(topic, p, 0) for p in left])
    while left:
        record = consumer.poll(60)
        if record is None:
            sys.exit(f"{topic} does not answer; nothing is copied")
        if record.error() and record.error().name() == "_PARTITION_EOF":
            left.discard(record.partition())
        elif record.error():
            sys.exit(f"{record.error()}; nothing is copied")
        else:
            yield record

def headers(record, name):  # values that are not empty, in order
    return [v.decode(errors="replace") for k, v in record.headers() or [] if k == name and v]

def epoch(record):  # as etf1 reads it: the first header counts, what is no number is 0
    first = [v for k, v in record.headers() or [] if k == "scheduler-epoch"][:1]
    text = (first[0] or b"").decode(errors="replace") if first else ""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else 0

def refused(record):  # why waterclock would refuse it; "" if it would not
    if len(record.key() or b"") > 512:
        return "refused here: a key over 512 bytes"
    names = [k for k, _ in record.headers() or [] if not k.startswith("waterclock-")]
    # Each etf1 schedule has up to six: its time, target and target key, and three of the emission.
    count = sum(not k.startswith("scheduler-") for k in names) + 5 + ("scheduler-target-topic" in names)
    return "refused here: more than 128 headers" if scheduler == "etf1" and count > 128 else ""

def verdict(record):  # "copy", or why not
    if record.value() is None:
        return "deleted, or fired and deleted"
    if scheduler == "sky":
        return refused(record) or "copy"
    key, due = (record.key() or b"").decode(errors="replace"), epoch(record)
    if not key.strip() or due <= 0:
        return "never fires: no key, or no scheduler-epoch"
    if due >= stopped:
        return refused(record) or "copy"
    kind, written = record.timestamp()
    if kind != TIMESTAMP_NOT_AVAILABLE and due < written // 1000:
        return "was past when it was written: dropped, or fired within the grace interval"
    # After a firing the scheduler deletes by these headers, which may be left from an earlier
    # emission, and only if the value is not empty.
    deletes = record.value() and headers(record, "scheduler-key")[:1] in ([], [key]) \
        and headers(record, "scheduler-topic")[:1] in ([], [source])
    return (refused(record) or "overdue") if deletes else "fired, and not deleted"

if any(high > low for low, high in ends(to).values()):
    sys.exit(f"{to} has records: an earlier run may have copied all, or producers have begun")
before = ends(source)
newest = {}  # by key: when and where the record is that counts, and its verdict
for r in records(source):
    when, at = r.timestamp()[1], (r.partition(), r.offset())
    other = newest.get(r.key())  # a deletion may lie on another partition than its schedule
    if other is None or other[1][0] == at[0] or other[0] <= when:
        newest[r.key()] = (when, at, verdict(r))
late = sorted(k.decode(errors="replace") for k, (_, _, v) in newest.items() if v == "overdue")
if late and overdue not in ("fire", "drop"):
    sys.exit(f"{len(late)} schedules fell due before {stopped} and were not deleted, such as {late[:3]}: the scheduler "
             "did not run. Let it run until it has fired them, or say fire or drop. Nothing is copied")
wanted = {at for _, at, v in newest.values() if v == "copy" or v == "overdue" and overdue == "fire"}
producer.begin_transaction()
for r in records(source):
    if (r.partition(), r.offset()) not in wanted:
        continue
    said = r.headers() or []
    if scheduler == "etf1":
        said = [h for h in said if h[0] != "scheduler-epoch"] + [("scheduler-epoch", str(epoch(r)))]
    while True:
        try:
            producer.produce(to, key=r.key(), value=r.value(), headers=said)
            break
        except BufferError:
            producer.poll(1)
if ends(source) != before:
    sys.exit(f"{source} is written to: stop producers and scheduler first. Nothing is copied")
producer.commit_transaction(900)
for why, n in sorted(collections.Counter(v for _, at, v in newest.values() if at not in wanted).items()):
    print(n, "left out:", why)
print(len(wanted), "copied")
