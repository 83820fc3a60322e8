"""Messages for Kafka: purchases in order of their event times, in as many partitions as are asked for."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from braid.bench_driver.programs.kafka_broker import BrokerProcess, create_topic
from braid.bench_driver.programs.kafka_rate import STRETCH, TOPIC, TUPLES_A_SECOND, messages, produce


def test_messages_are_purchases_in_order_of_their_event_times() -> None:
    purchases = [json.loads(message) for message in itertools.islice(messages(TUPLES_A_SECOND + 2), 0, None, 50_000)]
    times = [datetime.fromisoformat(purchase["time"]) for purchase in purchases]
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() == 1
    assert {tuple(purchase) for purchase in purchases} == {("user_id", "gem_pack", "price", "time")}


def test_all_of_them_are_produced(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        create_topic(broker.servers, TOPIC, 2)
        size = produce(broker.servers, 3 * STRETCH, 2)
        assert 60 < size < 90
        consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "test", "log_level": 0})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in (0, 1)])
        values: list[bytes] = []
        while len(values) < 3 * STRETCH:
            values += [value for message in consumer.consume(1000, 5) if (value := message.value()) is not None]
        consumer.close()
    assert sorted(values) == sorted(messages(3 * STRETCH))
