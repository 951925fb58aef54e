"""Rebuilds a prefix cache from KV events, loses every fifth message and asks for it again.

Python 3.11, pyzmq 27.3.0, msgpack 1.2.4:
    subscriber.py PUB-ENDPOINT ROUTER-ENDPOINT TOPIC BATCHES
It prints each block as "group hash" when it has all batches, and figures to stderr.
"""

import random
import sys

import msgpack
import zmq

pub, router, topic, batches = sys.argv[1:4] + [int(sys.argv[4])]
context = zmq.Context()
sub = context.socket(zmq.SUB)
sub.setsockopt_string(zmq.SUBSCRIBE, topic)
sub.connect(pub)
dealer = context.socket(zmq.DEALER)
dealer.connect(router)

blocks = set()
following = events = lost = replays = 0


def take(payload):
    global following, events
    following += 1
    _, batch, rank = msgpack.unpackb(payload)
    assert rank == 0
    for event in batch:
        events += 1
        if event[0] == "AllBlocksCleared":
            blocks.clear()
        elif event[0] == "BlockStored":
            name, hashes, parent, tokens, block_size, lora_id, medium, lora_name, extra_keys, group, kind, window = event
            assert len(tokens) == len(hashes) * block_size and len(extra_keys) == len(hashes)
            blocks.update((group, h) for h in hashes)
        else:
            name, hashes, medium, group = event
            assert name == "BlockRemoved"
            blocks.difference_update((group, h) for h in hashes)


def replay():
    global replays, following
    replays += 1
    dealer.send_multipart([b"", following.to_bytes(8, "big")])
    while True:
        _, number, payload = dealer.recv_multipart()
        if int.from_bytes(number, "big", signed=True) == -1:
            assert payload == b""
            return
        following = int.from_bytes(number, "big")  # a gap was lost by the server; the next batch clears
        take(payload)


chance = random.Random(1)
while following < batches:
    if not sub.poll(500):
        replay()  # the subscription came too late, or the last message was lost
        continue
    got, number, payload = sub.recv_multipart()
    assert got.decode() == topic
    number = int.from_bytes(number, "big")
    if chance.random() < 0.2:
        lost += 1
        continue
    if number > following:
        replay()
    if number >= following:
        following = number
        take(payload)
print(f"pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}: {following} batches, {events} events, {lost} lost, {replays} replays, {len(blocks)} blocks", file=sys.stderr)
for group, h in sorted(blocks):
    print(group, h)
