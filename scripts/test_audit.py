#!/usr/bin/env python3
"""test_audit.py PROGRAM STATES: scripts/audit.py agrees with habench on the cases of suites/audit.suite and on scores so
large that no weight is known, and finds each number of a dump that is changed. STATES DIR (suites/variants/test_states.c)
writes dumps of states that have a query, keys, weights or claims of their own; the first word of a name is the oracle's
verdict."""

import contextlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is missing, so scripts/audit.py is not tested: apt install python3-numpy\n0 passed, 0 failed")
    sys.exit(0)
from audit.chosen import Chosen
from audit.claims import CLAIMS, Depths
from audit.command import judge
from audit.definitions import DEFINITIONS
from audit.dump import TYPES
from audit.errors import Wrong
from audit.fluxion import Fluxion
from audit.head import Head
from audit.lru_blocks import LruBlocks
from audit.numbers import REAL
from audit.quest import Quest
from audit.topk import Topk

CASES = 131  # of suites/audit.suite and the traces, but for those that are waived
STATES, RIGHT, WRONG = ("all", "profile", "side"), 8, 27  # of the dumps of STATES those that are changed, how many there are
count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {said.strip()[:300]}")


def judged(path):
    """The exit code that a file ends in, and what is said."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = judge(path, True)
    return code, said.getvalue()


class File:
    """A dump that is changed in places."""

    def __init__(self, path):
        with open(path, "rb") as file:
            blob = file.read()
        (length,) = struct.unpack_from("<Q", blob)
        self.header, self.data, self.layer, self.seq = json.loads(blob[8:8 + length]), bytearray(blob[8 + length:]), 0, 1

    def array(self, what):
        entry = self.header.get(f"layer{self.layer}.seq{self.seq}.{what}") or self.header[f"layer{self.layer}.seq0.{what}"]
        begin, end = entry["data_offsets"]
        return np.frombuffer(self.data, TYPES[entry["dtype"]], (end - begin) // np.dtype(
            TYPES[entry["dtype"]]).itemsize, begin).reshape(entry["shape"])

    def write(self, path):
        text = json.dumps(self.header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + self.data)


DIM, MODEL_DIM, FIRST, END = 16, 24, 24, 48  # of the traces; the last two are tokens with queries


def huge(rng):
    """Scores whose roundings are units: some billions, far apart; and millions that are some units apart."""
    for layer, size in enumerate((dict(k=1e5, v=1, q=1e5), dict(k=1, v=1, q=10))):
        for name, shape in (("k", (2, END, DIM)), ("v", (2, END, DIM)), ("q", (4, END - FIRST, DIM))):
            x = rng.standard_normal(shape) * size[name]
            if layer and name != "v":
                x[..., 0] = 3e3
            yield layer, name, x


def projected(rng):
    """With inputs that give the queries, and with output projections."""
    for layer in range(2):
        x, wq = rng.standard_normal((END - FIRST, MODEL_DIM)), rng.standard_normal((4 * DIM, MODEL_DIM))
        q = x / np.sqrt((x * x).mean(axis=1, keepdims=True)) @ wq.T
        yield from ((layer, "k", rng.standard_normal((2, END, DIM))), (layer, "v", rng.standard_normal((2, END, DIM))),
                    (layer, "q", q.reshape(-1, 4, DIM).swapaxes(0, 1)), (layer, "x", x), (layer, "wq", wq),
                    (layer, "norm", np.ones(MODEL_DIM)), (layer, "wo", rng.standard_normal((MODEL_DIM, 4 * DIM))))


def turned(rng):
    """With rotary positions, of 10 of the dimensions of a head."""
    yield None, "rope.inv_freq", 0.7 ** np.arange(5)
    yield from projected(rng)


def trace(path, arrays):
    meta = dict(format="habench-trace", version="2", model="none", source="random", tokens=str(END),
                q_first=str(FIRST), layers="2", q_heads="4", kv_heads="2", head_dim=str(DIM), model_dim=str(MODEL_DIM),
                rope_theta="0.0", norm_eps="0.0", scale="0.25", licence="none")
    header, data = {"__metadata__": meta}, b""
    for layer, name, x in arrays(np.random.default_rng(7)):
        raw = x.astype("<f4").tobytes()
        if layer is None:
            meta.update(rope_pairing="adjacent", rope_scale="1.25")
        header[name if layer is None else f"layers.{layer}.{name}"] = dict(dtype="F32", shape=x.shape, data_offsets=(len(data), len(data) + len(raw)))
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def meta(key, change):
    """A change of the metadata."""
    def plant(file):
        file.header["__metadata__"][key] = change(file.header["__metadata__"][key])
    return plant


def element(what, change, *at):
    """A change of one number of a tensor."""
    def plant(file):
        x = file.array(what)
        x[at] = change(file, x[at])
    return plant


def both(*plants):
    return lambda file: [plant(file) for plant in plants]


def some_key(step, was, now):
    """The first key with this part, of the first head that has one, has that."""
    def plant(file):
        head, key = np.argwhere(file.array("part")[step] == was)[0]
        file.array("part")[step, head, key] = now
    return plant


def some_block(step, was, now):
    """The first whole block with this part, of 16 keys, of the first head that has one, has that."""
    def plant(file):
        part = file.array("part")[step]
        blocks = part[:, :part.shape[1] // 16 * 16].reshape(len(part), -1, 16)
        head, block = np.argwhere((blocks == was).all(axis=2))[0]
        part[head, 16 * block:16 * block + 16] = now
    return plant


def other_key(step, head):
    """The first key that the head has is left out for another."""
    def plant(file):
        part = file.array("part")[step, head]
        used, unused = np.flatnonzero(part == 1)[0], np.flatnonzero(part == 0)
        part[[used, unused[unused != used][0]]] = 0, 1
    return plant


def same_key(file):
    """The first key of head 0 that was chosen is another one before it, too."""
    chosen = file.array("part")[0, 0]
    earlier = np.flatnonzero(chosen == 0)[0]
    later = np.flatnonzero(chosen[earlier:] == 1)[0] + earlier
    file.array("k")[0, earlier] = file.array("k")[0, later]


def every_key_of(step, was, now):
    """All that this part has of the first head that has one are in that one."""
    def plant(file):
        part = file.array("part")[step]
        head = np.argwhere(part == was)[0][0]
        there = part[head][:np.flatnonzero(part[head])[-1]]
        there[there == was] = now
    return plant


def every_key(step):
    """All that there are before the step's own are used by all heads."""
    def plant(file):
        part = file.array("part")[step]
        part[:, :np.flatnonzero(part[0])[-1]] = 1
    return plant


def other_side(step, was, now):
    """All of a block that some head has in this part are in that one: 0, nowhere."""
    def plant(file):
        size, part = int(file.header["__metadata__"]["param.block"]), file.array("part")[step]
        n = np.flatnonzero(part[0])[-1] // size
        head, block = np.argwhere(part[:, :n * size:size] == was)[0]
        part[head, block * size:(block + 1) * size] = now
    return plant


def other_head(file):
    """W_O takes the first head for the second, and the second for the first."""
    wo = file.array("wo")
    wo[:, :2 * DIM] = np.roll(wo[:, :2 * DIM], DIM, axis=1)


def no_projection(file):
    del file.header["layer0.seq0.wo"]


def in_layer_1(plant, layers=2):
    def of(file):
        meta("shape.layers", lambda x: str(layers))(file)
        file.layer = 1
        plant(file)
    return of


def in_seq_0(plant):
    def of(file):
        file.seq = 0
        plant(file)
    return of


def looked_up(hit, plant):
    """plant(file, step, heads) of the first step behind step 0 and KV head of layer 1 that hit or missed."""
    def of(file):
        step, head = np.argwhere(file.array("note.hit")[1:] == hit)[0]
        plant(file, step + 1, slice(head // 2 * 2, head // 2 * 2 + 2))
    return in_layer_1(of)


def between(*changes, unit=1):
    """Of some heads the first units between the sink and the recent tokens that are in one part are in another."""
    def plant(file, step, heads):
        part, numbers = file.array("part")[step], file.header["__metadata__"]
        now = np.flatnonzero(part[0])[-1] + 1 - int(numbers["shape.q_len"])
        sink, recent = (int(numbers[f"param.{name}"]) for name in ("sink", "recent"))
        units = part[heads, sink:sink + (now - recent - sink) // unit * unit].reshape(heads.stop - heads.start, -1, unit)
        at = [np.flatnonzero(units[0, :, 0] == was)[0] for was, _ in changes]
        for i, (_, new) in zip(at, changes):
            units[:, i] = new
        part[heads, sink:sink + units.shape[1] * unit] = units.reshape(len(units), -1)
    return plant


def noted(name, change):
    """A note of some heads."""
    def plant(file, step, heads):
        file.array("note." + name)[step, heads] = change(file.array("note." + name)[step, heads])
    return plant


def at_step(step, heads, plant):
    return lambda file: plant(file, step, heads)


OF = lambda *at: lambda file, x: x + np.asarray(10 * file.array("bound")[at], x.dtype)
PLANTS = [  # in the dump of which variant, what it is called, the plant, what must be said
    ("hgca", "an element of o", element("out", OF(1, 0, 2, 5), 1, 0, 2, 5), "out[5] is"),
    ("hgca", "NaN in o", element("out", lambda f, x: np.nan, 2, 0, 3, 0), "out[0] is nan"),
    ("cpu", "an LSE", element("lse", lambda f, x: x + 10 * f.array("lse_bound")[1, 0, 2], 1, 0, 2), "LSE is"),
    ("cpu", "an infinite LSE", element("lse", lambda f, x: -np.inf, 1, 0, 2), "LSE is"),
    ("hgca", "the reference", element("want", lambda f, x: x + 1e-4 * f.array("bound")[1, 0, 2, 5], 1, 0, 2, 5), "reference[5]"),
    ("h2o", "the LSE's reference", element("want_lse", lambda f, x: x + 1e-4 * f.array("lse_bound")[0, 0, 1], 0, 0, 1),
     "reference LSE[0]"),
    ("hgca", "a bound", element("bound", lambda f, x: x * 1.001, 1, 0, 2, 5), "bound[5]"),
    ("cpu", "the LSE's bound", element("lse_bound", lambda f, x: x * 1.001, 1, 0, 2), "bound of LSE[0]"),
    ("cpu", "a ratio", element("ratio", lambda f, x: x / 2, 1, 0, 2), "error/bound is"),
    ("projected", "an error behind W_O", element("wo_off", lambda f, x: x + 1e-6 * f.array("wo_norm")[1, 1], 1, 1), "wo_off[0] is"),
    ("projected", "an output behind W_O", element("wo_norm", lambda f, x: x * (1 + 1e-6), 1, 0), "wo_norm[0] is"),
    ("projected", "W_O", element("wo", lambda f, x: x + 1, 3, 7), "wo_norm[0] is"),
    ("projected", "W_O with two heads exchanged", other_head, "wo_off[0] is"),
    ("h2o", "a mass", element("mass", lambda f, x: x + 1e-6, 1, 0, 2), "mass[0]"),
    ("h2o", "a step that is missing", element("done", lambda f, x: 0, 2), "recorded no more"),
    ("streaming", "a part of the other side", element("side", lambda f, x: 0, 1, 2, 0), "differ"),
    ("hgca", "a part that there is not", element("part", lambda f, x: 9, 1, 2, 0), "or parts"),
    ("hgca", "padding that was chosen", some_key(1, 2, 130), "by definition by the host"),
    ("tasks", "no padding", some_key(2, 130, 0), "is padded with"),
    ("tasks", "another key as padding", lambda f: some_key(2, 130, 0)(f) or some_key(2, 0, 130)(f), "is padded with"),
    ("streaming", "a query", element("q", lambda f, x: x + 1, 1, 0, 2, 0), "differences"),
    ("streaming", "a key", element("k", lambda f, x: x + 1, 0, 0, 0), "differences"),
    ("streaming", "a value", element("v", lambda f, x: x + 1, 0, 99, 0), "differences"),
    ("hgca", "the prefill's queries", lambda f: np.negative(f.array("observed"), f.array("observed")), "by definition"),
    ("h2o", "the prefill's queries", lambda f: np.negative(f.array("observed"), f.array("observed")), "so far"),
    ("hgca", "beta", meta("param.beta", lambda x: "4"), "by definition"),
    ("hgca", "alpha and the ring", meta("param.blk_num", lambda x: "5"), "by definition"),
    ("streaming", "the window", meta("param.window", lambda x: "41"), "by definition"),
    ("h2o", "the budget", meta("param.heavy", lambda x: "0.2"), "heavy keys"),
    ("tova", "the prefill's queries", lambda f: np.negative(f.array("observed"), f.array("observed")), "is kept with a weight"),
    ("tova", "a step's queries", element("q", lambda f, x: -x, 1), "differences"),
    ("tova", "the budget", meta("param.budget", lambda x: "0.4"), "keys are kept, not"),
    ("duo", "a streaming head that is a retrieval head", meta("param.retrieval", lambda x: "1"), "is used by nothing"),
    ("duo", "the recent tokens", meta("param.recent", lambda x: "29"), "by definition by nothing"),
    ("tova", "a head's own choice", other_key(1, 2), "differences"),
    ("cpu", "the variant", meta("variant", lambda x: "resident"), "used by the host, by definition by the device"),
    ("cpu", "an unknown variant", meta("variant", lambda x: "none"), "no definition"),
    ("cpu", "a claim", meta("host.exp_eps", lambda x: str(2 * float(x))), "bound"),
    ("cpu", "the scale", meta("scale", lambda x: "0.26"), "differences"),
] + [(variant, "a key that was used", some_key(1, 1, 0), "differences") for variant in
     ("resident", "cpu", "bmm", "hgca", "streaming", "h2o", "tova", "duo")] + [
    (variant, "a key that was not used", some_key(1, 0, 1), "differences") for variant in ("hgca", "streaming", "h2o", "tova", "duo")] + [
    ("topk", "a key less", some_key(1, 1, 0), "11 keys are chosen, not 12"),
    ("topk", "another key", other_key(1, 2), "has one of the 12 largest scores"),
    ("columns", "another key", other_key(1, 2), "one that is not has a larger score"),
    ("columns", "a key less", some_key(1, 1, 0), "a key is chosen, and one that is not"),
    ("columns", "alpha", meta("param.alpha", lambda x: "0.01"), "below the largest"),
    ("columns", "more of them", lambda f: (meta("param.alpha", lambda x: "9")(f), meta("param.most", lambda x: "1")(f)),
     "is not chosen, and is within 9"),
    ("columns", "other columns", meta("param.columns", lambda x: "0.5"), "differences"),
    ("columns", "observed queries", lambda f: f.array("observed")[:, 0].__imul__(9), "differences"),
    ("columns", "too many", meta("param.most", lambda x: "0.01"), "keys are chosen, not 1 to 1"),
    ("quest", "half a block", some_key(1, 1, 0), "is used in part"),
    ("hybrid", "half a block", some_key(1, 2, 0), "is used in part"),
    ("hybrid", "a block less", every_key_of(1, 2, 0), "0 blocks are chosen, not 2"),
    ("hybrid", "a key of the sink", element("part", lambda f, x: 0, 1, 2, 4), "token 4 is not used by the device"),
    ("hybrid", "a recent key", element("part", lambda f, x: 0, 1, 2, 99), "token 99 is not used by the device"),
    ("hybrid", "a key that has left", element("part", lambda f, x: 1, 1, 2, 7), "which it has left"),
    ("hybrid", "every block", every_key_of(1, 0, 2), "5 blocks are chosen, not 2"),
    ("hybrid", "the budget", meta("param.budget", lambda x: "0.6"), "2 blocks are chosen, not 3"),
    ("hybrid", "the sink", meta("param.sink", lambda x: "6"), "token 5 is not used by the device"),
    ("hybrid", "the digest", meta("param.digest", lambda x: "1"), "has one of the 2 largest scores"),
    ("hybrid", "the group", meta("param.group", lambda x: "1"), ""),
    ("share", "half a block", some_key(1, 1, 0), "is used in part"),
    ("share", "a block less", some_block(1, 1, 0), "1 blocks are chosen, not 2"),
    ("share", "a block more", some_block(1, 0, 1), "3 blocks are chosen, not 2"),
    ("share", "a smaller share", meta("param.budget", lambda x: "0.3"), "2 blocks are chosen, not 1"),
    ("union", "another key", other_key(1, 2), "has one of the 12 largest scores"),
    ("union", "every key", every_key(1), "61 keys are chosen, not 12 to 24"),
    ("ahead", "another key", other_key(1, 2), "has one of the 12 largest scores"),
    ("ahead", "a key less in layer 1", in_layer_1(some_key(1, 1, 0)), "layer 1 seq 0 step 1 head 0: 11 keys are chosen, not 12"),
    ("ahead_max", "another key of one head in layer 1", in_layer_1(other_key(1, 3)), "is not used alike by heads 2 and 3"),
    ("ahead_union", "another key of one head in layer 1", in_layer_1(other_key(1, 3)), "is not used alike by heads 2 and 3"),
    ("ahead_union", "every key in layer 1", in_layer_1(every_key(1)), "101 keys are chosen, not 12 to 24"),
    ("scout", "half a block", some_key(1, 1, 0), "is used in part"),
    ("scout", "half a block on the other side", some_key(1, 1, 2), "is used in part, or on both sides"),
    ("scout", "a resident block on the host", other_side(1, 1, 2), "is used by the host, and is resident"),
    ("scout", "a block of the host's on the device", other_side(1, 2, 1), "is used by the device, and is not resident"),
    ("scout", "a block of the device's nowhere", other_side(1, 1, 0), "which are not the 4 of largest score"),
    ("scout", "a block of the host's nowhere", other_side(1, 2, 0), "which are not the 4 of largest score"),
    ("scout", "a block more on the host", other_side(1, 0, 2), "the host"),
    ("scout", "a key behind the last block", element("part", lambda f, x: 0, 1, 2, 89), "behind the last whole block"),
    ("scout", "a recall less", element("note.recall", lambda f, x: 0 * x, 1), "no recall is issued in step 1"),
    ("scout", "a recall more", element("note.recall", lambda f, x: 0 * x + 1, 0), "a recall is issued in step 0, and the last"),
    ("scout", "a recall of one head", element("note.recall", lambda f, x: 0, 1, 2), "notes recall and landed are"),
    ("scout", "a recall that landed from nowhere", element("note.landed", lambda f, x: 0 * x + 1, 1), "none was under way"),
    ("scout", "the prefill's queries", lambda f: np.negative(f.array("observed"), f.array("observed")), "resident"),
    ("scout", "the cache", meta("param.cache", lambda x: "32"), "resident"),
    ("scout", "the interval", meta("param.interval", lambda x: "3"), "a recall is issued in step 1"),
    ("scout", "the budget", meta("param.budget", lambda x: "40"), "which are not the 5 of largest score"),
    ("scout", "the digest", meta("param.digest", lambda x: "1"), "resident"),
    ("scout", "a query of its own in layer 0", lambda f: meta("param.precompute", lambda x: "0")(f) or in_layer_1(
        lambda f: None)(f), "the part of the host has a query of its own"),
    ("scout", "the step's query in layer 1", in_layer_1(element("query", lambda f, x: 0 * x, 1)), "has no query of its own"),
    ("scout", "a block of the host's nowhere in layer 1", in_layer_1(other_side(1, 2, 0)), "of largest score"),
    ("scout", "a block of the device's nowhere in layer 1", in_layer_1(other_side(1, 1, 0)), "of largest score"),
    ("scout_all", "a resident block nowhere", other_side(1, 1, 0), "is used by nothing, and is resident"),
    ("net", "bgt0", element("note.bgt0", lambda f, x: x + 0.01, 1, 2), "note bgt0 of head 0"),
    ("net", "k", element("note.k", lambda f, x: x + 0.01, 1, 3), "note k of head 1"),
    ("net", "a logit", element("note.s", lambda f, x: x + 0.02, 1, 1), "note s of head 1"),
    ("net", "a query that was observed", element("observed", lambda f, x: -x, -1, 0), "note "),
    ("heads", "a label", element("note.bgt0", lambda f, x: x + 1 / 256, 1, 1), "keys"),
    ("heads", "a slope", element("note.k", lambda f, x: x + 0.01, 1, 1), "note k is"),
    ("heads", "it streams", element("note.streaming", lambda f, x: 1 - x, 1, 1), "note streaming is"),
    ("heads", "no note", element("note.s", lambda f, x: np.nan, 1, 1), "note s is nan"),
    ("heads", "tau", meta("param.tau", lambda x: "0.2"), "are needed"),
    ("fixed", "the device's", both(element("either_side", lambda f, x: 0, 1, 1, 2), element("side", lambda f, x: 1, 1, 1, 2)),
     "or on the device"),
    ("fixed", "a budget", element("note.bgt0", lambda f, x: 0.31, 1, 1), "note bgt0 of head 1 of its KV head is 0.31, not 0.3"),
    ("fixed", "a block of one head", element("note.block", lambda f, x: 64, 1, 1), "blocks of several sizes"),
    ("fixed", "a number of blocks", element("note.blocks", lambda f, x: 2, 1, 1), "2 blocks are reported"),
    ("fixed", "a key of a block nowhere", some_key(1, 3, 0), "is used in part"),
    ("fixed", "a key of the sink nowhere", some_key(1, 1, 0), "token 0 is not used by the device"),
    ("fixed", "a recent key with the sink", some_key(1, 2, 1), "with others that are elsewhere"),
    ("clo", "a key less", in_layer_1(at_step(0, slice(0, 2), between((1, 0)))), "7 keys are chosen, not 8"),
    ("clo", "a key more", in_layer_1(at_step(0, slice(0, 2), between((0, 1)))), "9 keys are chosen, not 8"),
    ("clo", "another key", in_layer_1(at_step(0, slice(0, 2), between((1, 0), (0, 1)))), "largest scores"),
    ("clo", "another key of one head", in_layer_1(at_step(0, slice(1, 2), between((1, 0), (0, 1)))), "is not used alike"),
    ("clo", "another key of a persistent head", at_step(1, slice(2, 4), between((1, 0), (0, 1))), "largest scores"),
    ("clo", "another key on a hit", looked_up(1, between((1, 0), (0, 1))), "the buffer, which is reused"),
    ("clo", "a key less on a hit", looked_up(1, between((1, 0))), "the buffer, which is reused"),
    ("clo", "another key on a miss", looked_up(0, between((1, 0), (0, 1))), "largest scores"),
    ("clo", "a key of the sink", element("part", lambda f, x: 0, 1, 2, 3), "token 3 is not used, and stays"),
    ("clo", "a recent key", element("part", lambda f, x: 0, 1, 2, 31), "token 31 is not used, and stays"),
    ("clo", "the host", element("side", lambda f, x: 0, 1, 2, 0), "is used by the host"),
    ("clo", "a hit for a miss", looked_up(0, noted("hit", lambda x: 1 - x)), "note hit is 1: similarity"),
    ("clo", "a miss for a hit", looked_up(1, noted("hit", lambda x: 1 - x)), "note hit is 0: similarity"),
    ("clo", "a hit at first", in_layer_1(at_step(0, slice(0, 2), noted("hit", lambda x: 1))), "there is no label"),
    ("clo", "a similarity at first", in_layer_1(at_step(0, slice(0, 2), noted("similarity", lambda x: 0))), "there is no label"),
    ("clo", "a similarity", looked_up(1, noted("similarity", lambda x: x + 1e-4)), "note similarity is"),
    ("clo", "no similarity", looked_up(1, noted("similarity", lambda x: np.nan)), "they have one buffer"),
    ("clo", "a note of one head", looked_up(1, lambda f, step, heads: noted("hit", lambda x: 1 - x)(f, step, slice(
        heads.start, heads.start + 1))), "they have one buffer"),
    ("clo", "no note hit", looked_up(1, noted("hit", lambda x: np.nan)), "hit nan"),
    ("clo", "the first layer offloaded", at_step(0, slice(0, 2), noted("persistent", lambda x: 0)), "note persistent is 0, hit nan"),
    ("clo", "a head persistent", in_layer_1(at_step(0, slice(0, 2), noted("persistent", lambda x: 1))), "note persistent is 1, and was 0"),
    ("clo", "a head of both sequences persistent", in_layer_1(lambda f: [f.header.pop(f"layer1.seq{i}.note.persistent") for i in (
        0, 1)] and f.header.update({f"layer1.seq{i}.note.persistent": f.header["layer0.seq0.note.persistent"] for i in (0, 1)})),
     "no head of this layer is"),
    ("clo", "the query", in_layer_1(element("q", lambda f, x: x + 1, 1, 0, 0, 0)), "differences"),
    ("clo", "eta", in_layer_1(meta("param.eta", lambda x: "0.99")), "below the threshold"),
    ("clo", "a lower eta", in_layer_1(meta("param.eta", lambda x: "0.3")), "is not below the threshold"),
    ("clo", "the group", in_layer_1(meta("param.group", lambda x: "1")), "note similarity is"),
    ("clo", "the budget", in_layer_1(meta("param.budget", lambda x: "0.3")), "keys are chosen, not"),
    ("clo", "the bits", in_layer_1(meta("param.bits", lambda x: "32")), "largest scores"),
    ("clo", "scores without codes", in_layer_1(meta("param.retrieve", lambda x: "2")), "larg"),
    ("clo", "the window", in_layer_1(meta("param.recent", lambda x: "11")), "stays on the device"),
    ("clo", "the sink", in_layer_1(meta("param.sink", lambda x: "5")), "differences"),
    ("clo", "learned codes", in_layer_1(meta("param.hash", lambda x: "1")), "the codes are learned, and the fit has none"),
    ("clo_quest", "another block", in_seq_0(in_layer_1(at_step(0, slice(0, 2), between((1, 0), (0, 1), unit=16)))), "larg"),
    ("clo_quest", "half a block", in_layer_1(at_step(0, slice(0, 2), between((1, 0)))), "is used in part"),
    ("clo_exact", "another key", in_layer_1(at_step(0, slice(2, 4), between((1, 0), (0, 1)))), "largest scores"),
    ("clo_exact", "scores by codes", in_layer_1(meta("param.retrieve", lambda x: "0")), "larg"),
    ("clo_ahead", "a key less", in_layer_1(at_step(0, slice(0, 2), between((1, 0)))), "7 keys are chosen, not 8"),
    ("clo_ahead", "another key on a hit", looked_up(1, between((1, 0), (0, 1))), "the buffer, which is reused"),
    ("clo_ahead", "a hit for a miss", looked_up(0, noted("hit", lambda x: 1 - x)), "note hit is 1: similarity"),
    ("clo_min", "the group", in_layer_1(meta("param.group", lambda x: "0")), "note similarity is"),
    ("clo_min", "the threshold", in_layer_1(meta("param.eta", lambda x: "0.99")), "below the threshold"),
    ("clo_all", "a key less", in_seq_0(at_step(1, slice(0, 2), between((1, 0)))), "keys are chosen, not"),
    ("clo_fit", "another fit", in_layer_1(meta("case", lambda x: re.sub("fit=[^,]*", x[x.index("fit=") :].split(",")[0] + ".other", x)), 3), "note similarity is"),
    ("clo_fit", "no fit", in_layer_1(meta("case", lambda x: re.sub("fit=[^,]*", "seed=1", x)), 3), "the codes are learned, and the fit has none"),
    ("clo_fit", "eps", in_layer_1(meta("param.eps", lambda x: "0"), 3), "are persistent"),
    ("clo_fit", "p", in_layer_1(meta("param.p", lambda x: "1"), 3), "threshold"),
    ("clo_fit", "a budget", in_layer_1(meta("param.device_budget_MB", lambda x: "0.03"), 3), "the budget has room for"),
    ("clo_fit", "hard", in_layer_1(meta("param.hard", lambda x: "0"), 3), "no head of this layer is"),
    ("clo_fit", "persistent later", in_layer_1(lambda f: noted("persistent", lambda x: 1 - x)(f, 2, slice(0, 4)), 3), ""),
    ("lists", "a hit more", element("note.hits", lambda f, x: x + 1, 2, 0), "note hits is"),
    ("lists", "a victim more", element("note.replaced", lambda f, x: x + 1, 2, 1), "note replaced is"),
    ("lists", "half a block", in_seq_0(at_step(1, slice(0, 2), between((1, 0)))), "is used in part"),
    ("lists", "another block", in_seq_0(at_step(1, slice(0, 2), between((1, 0), (0, 1), unit=8))), "larg"),
    ("lists", "another block of one head", in_seq_0(at_step(1, slice(1, 2), between((1, 0), (0, 1), unit=8))), "is not used alike"),
    ("lists", "the budget", meta("param.budget", lambda x: "0.6"), "blocks are chosen, not"),
    ("tokens", "a hit more", element("note.hits", lambda f, x: x + 1, 2, 0), "note hits is"),
    ("tokens", "a victim more", element("note.replaced", lambda f, x: x + 1, 2, 1), "note replaced is"),
    ("tokens", "a newest one nowhere", element("part", lambda f, x: 0, 1, 2, 40), "token 40 is not used, and is one of the newest"),
    ("tokens", "a key less", some_key(1, 1, 0), "is not used alike"),
    ("tokens", "another key of one head", other_key(1, 2), "is not used alike"),
    ("tokens", "another key", both(other_key(1, 2), other_key(1, 3)), "larg"),
    ("tokens", "the host", element("side", lambda f, x: 0, 1, 2, 0), "is used by the host"),
    ("tokens", "the budget", meta("param.budget", lambda x: "0.4"), "is not used, and is one of the newest"),
    ("tokens", "a smaller budget", meta("param.budget", lambda x: "0.2"), "tokens are chosen, not"),
    ("tokens", "more parts", meta("param.parts", lambda x: "4"), "larg"),
    ("tokens", "fewer centroids", meta("param.c", lambda x: "4"), "larg"),
    ("tokens", "the query", element("q", lambda f, x: -x, 1), "larg"),
    ("tokens", "the policy", in_seq_0(meta("param.policy", lambda x: "0")), "note "),
    ("tokens", "the capacity", in_seq_0(meta("param.capacity", lambda x: "3")), "note "),
    ("tokens", "equal codes", same_key, "which has the same codes"),
    ("tokens_4", "fewer parts", meta("param.parts", lambda x: "2"), "larg"),
    ("codes", "a coded key nowhere", some_key(1, 3, 0), "weighs nothing, and is coded"),
    ("codes", "a fresh key nowhere", some_key(1, 1, 0), "is not attended by the device: it is fresh"),
    ("codes", "a fresh key by a code", some_key(1, 1, 2), "is not attended by the device: it is fresh"),
    ("codes", "a coded key by itself", some_key(1, 2, 1), "there are two parts of one kind"),
    ("codes", "a key less", some_key(1, 2, 3), "is not"),
    ("codes", "a key more", some_key(1, 3, 2), "keys are chosen, and fewer reach tau"),
    ("codes", "another tau", meta("param.tau", lambda x: "0.5"), "keys are chosen, and fewer reach tau"),
    ("codes", "a larger tau", meta("param.tau", lambda x: "0.9999"), "keys are chosen, whose weights add up to"),
    ("codes", "what stands for a key", element("own_k", lambda f, x: x + 1, 0, 0), "is not its nearest centroid in group 0"),
    ("codes", "a query", element("q", lambda f, x: x + 3, 1, 0, 2), "differences"),
    ("codes", "fewer centroids", meta("param.c", lambda x: "8"), "is not its nearest centroid"),
    ("codes", "other groups", meta("param.dims", lambda x: "8"), "is not its nearest centroid"),
    ("codes", "books of their own", meta("param.books", lambda x: "1"), "is not its nearest centroid"),
    ("codes", "the window", meta("param.fresh", lambda x: "7"), "it is fresh"),
    ("codes", "renormalised", meta("param.renorm", lambda x: "1"), "one of weights alone without"),
    ("codes", "exact keys", meta("param.keys", lambda x: "1"), "a coded part has keys of its own and they are exact"),
    ("codes", "the side of values", element("side", lambda f, x: 1, 1, 2, 1), "values are not summed on the host"),
    ("codes", "who sums values", meta("param.values", lambda x: "0"), "values are not summed on the device"),
    ("codes", "a note kept", element("note.kept", lambda f, x: x + 1, 1, 2), "note kept is"),
    ("codes", "a note mass", element("note.mass", lambda f, x: x * 1.001, 1, 2), "note mass is"),
    ("codes", "weights that add up to less", meta("profile1.sum_least", lambda x: "0.5"), "add up to 0.5 at least"),
    ("codes", "weights that are divided", meta("profile1.sum_least", lambda x: "0"), "add up to 0 at least"),
    ("codes", "more than all", meta("profile1.sum_least", lambda x: "1.5"), "sum_least is 1.5, not from 0 to 1"),
    ("codes", "a table of 16 bits", meta("profile1.score_type", lambda x: "1"), "is not what the options say"),
    ("turned", "keys coded as they are", meta("param.rotary", lambda x: "0"), "is not its nearest centroid"),
    ("turned", "what stands for a key", element("own_k", lambda f, x: x + 1e-4, 0, 0), "is not its nearest centroid in group 0"),
    ("turned", "an angle", in_seq_0(element("inv_freq", lambda f, x: x * 1.001, 1)), "is not its nearest centroid"),
    ("turned", "pairs of halves", in_seq_0(element("rope", lambda f, x: 0, 0)), "is not its nearest centroid"),
    ("turned", "the scale", in_seq_0(element("rope", lambda f, x: x * 1.001, 1)), "is not its nearest centroid"),
    ("codes_exact", "keys by codes", meta("param.keys", lambda x: "0"), "or has none"),
    ("codes_renorm", "more than weights add up to", meta("profile1.sum_least", lambda x: "1"), "to add up to 1 at least, and are"),
    ("codes_renorm", "far less", meta("profile1.sum_least", lambda x: "0.1"), "to add up to 0.1 at least, and are"),
    ("codes_renorm", "not renormalised", meta("param.renorm", lambda x: "0"), "weighs nothing, and is coded"),
    ("codes_block", "a key of the anchor nowhere", in_seq_0(some_key(1, 1, 0)), "key 0 is used by nothing"),
    ("codes_block", "another anchor", in_seq_0(meta("param.anchor", lambda x: "9")), "key 9 is used by the device, by definition by nothing"),
    ("codes_block", "no anchor", in_seq_0(meta("param.prefill", lambda x: "0")), "is not attended by the device: it is fresh"),
    ("codes_block", "a note kept", in_seq_0(element("note.kept", lambda f, x: x + 1, 1, 2)), "a note is not 0"),
    ("codes_16", "a table of 32 bits", in_seq_0(meta("param.table", lambda x: "0")), "is not what the options say"),
    ("codes_16", "weights of 32 bits", in_seq_0(meta("param.weights", lambda x: "0")), "is not what the options say"),
    ("codes_16", "one book", in_seq_0(meta("param.books", lambda x: "0")), "is not its nearest centroid"),
    ("scout_max", "another block of one head", other_side(1, 2, 0), "have one choice, and use other blocks"),
    ("all", "another query", element("own_q", lambda f, x: x + 1, 0, 0, 0), "differences"),
    ("all", "the query of another head", element("query", lambda f, x: x + 1, 0, 0, 1), "differences"),
    ("all", "the step's query", element("query", lambda f, x: 0, 1, 2, 1), "differences"),
    ("all", "a query that is NaN", element("own_q", lambda f, x: np.nan, 3, 1, 5), "not finite"),
    ("all", "another key", element("own_k", lambda f, x: x + 1, 0, 0), "differences"),
    ("all", "a key that is infinite", element("own_k", lambda f, x: np.inf, 0, 0), "not finite"),
    ("all", "the key of another token", element("key", lambda f, x: x - 1, 1, 2, 3), "differences"),
    ("all", "a key of the cache", element("key", lambda f, x: 0, 1, 2, 1), "differences"),
    ("all", "values that are not left out", element("weight_only", lambda f, x: 0, 1, 2, 1), "differences"),
    ("all", "values that are", element("weight_only", lambda f, x: 1, 1, 2, 0), "differences"),
    ("all", "neither true nor false", element("weight_only", lambda f, x: 2, 1, 2, 0), "or parts"),
    ("all", "an exact contract", meta("contract", lambda x: "exact"), "the contract is exact"),
    ("all", "a note", element("note.block", lambda f, x: 20, 1, 2), "its block is 20"),
    ("hgca", "an exact contract", meta("contract", lambda x: "exact"), "the contract is exact"),
    ("profile", "the claims of a side", element("profile", lambda f, x: 0, 1, 2, 1), "error/bound"),
    ("profile", "the claims of another head", element("profile", lambda f, x: 3 - x, 1, 2, 1), "bound"),
    ("profile", "a claim", meta("profile1.exp_eps", lambda x: str(float(x) * 1.001)), "bound"),
    ("profile", "a claim that is too small", meta("profile1.dot_extra", lambda x: "31"), "rows beyond their bound"),
    ("profile", "a claim that is too large", meta("profile1.exp_eps", lambda x: "2.1e-3"), "exp_eps is 0.0021, not from 0 to"),
    ("profile", "an exp that is not known", meta("profile1.exp_eps", lambda x: "nan"), "exp_eps is nan, not from 0 to"),
    ("profile", "a log that is too far off", meta("profile2.log_eps", lambda x: "5e-4"), "profile2.log_eps is 0.0005, not"),
    ("profile", "more than true", meta("profile1.truncates", lambda x: "2"), "profile1.truncates is 2, not from 0 to 1"),
    ("profile", "a sum that is too deep", meta("profile1.sum_extra", lambda x: "140"), "sum_extra is 140"),
    ("profile", "a score that is too deep", meta("profile1.dot_extra", lambda x: "193"), "dot_extra is 193"),
    ("side", "one side", element("either_side", lambda f, x: 0, 1, 2, 1), "bound"),
    ("side", "a claim of the other one", meta("host.exp_eps", lambda x: str(float(x) * 1.001)), "bound"),
]


class AllKeys(Head):
    """The definition of the variant of STATES: every key, wherever, and blocks 16 to 19."""

    def judge(self, step, q, mark, padding):
        if not mark.all():
            raise Wrong("a key is missing")
        if not (np.isnan(self.note("block")) or 16 <= self.note("block") < 20):
            raise Wrong(f"its block is {self.note('block'):g}")


def states(program, folder, of):
    """What STATES writes is judged as it was there."""
    done = subprocess.run([program, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect("STATES", done.returncode == 0, done.stdout + done.stderr)
    seen = {0: 0, 10: 0}
    for name in sorted(os.listdir(folder)):
        verdict, what = name.split(".")[0].split("_", 1)
        code, said = judged(os.path.join(folder, name))
        seen[code] = seen.get(code, 0) + 1
        expect(name, code == 0 if verdict == "right" else code == 10 and "error/bound" in said.splitlines()[0], said)
        if verdict == "right":
            of[what.split("_")[0]] = os.path.join(folder, name)
    expect("right and wrong states", seen == {0: RIGHT, 10: WRONG}, str(seen))
    _, said = judged(of["all"])
    for text in ("own: 32 with a query, 32 with keys, 32 with weights alone\n", "note hit: of 16 heads, from 0 to 1, mean 0.5\n",
                 "note block: of 32 heads, from 16 to 19, mean 17.5\n"):
        expect(f"to be said: {text}", text in said, said)


def rooms():
    """Sums that are too long for one lane, and weights that are rescaled too often, need more keys than a dump here has."""
    claims = dict.fromkeys(CLAIMS, 0.0) | dict(dot_lanes=1, sum_lanes=1, join_keys=1 << 22, runs=1)
    for name, change, keys, text in (("one chunk", {}, 1 << 20, ""), ("a long one", {}, 3 << 20, "a sum over"),
                                     ("lanes", dict(sum_lanes=8), 3 << 20, ""),
                                     ("joins", dict(join_keys=64, exp_eps=2.0 ** -16), 1 << 18, ""),
                                     ("many", dict(join_keys=64, exp_eps=2.0 ** -16), 1 << 20, "a weight over")):
        dump = types.SimpleNamespace(head_dim=64, claims=lambda side, keys, change=change: claims | change)
        said = ""
        try:
            Depths(dump, "device", keys, None).leave_room("what", 64, keys)
        except Wrong as wrong:
            said = str(wrong)
        expect(f"room for {name}", text in said and bool(text) == bool(said), said)


class Rule(Chosen):
    """A choice by intervals of scores."""

    def __init__(self, rule, heads):
        self.rule, self.heads, self.place = rule, heads, 0

    def param(self, name):
        return self.rule


ONE, UNION = Chosen.HEAD, Chosen.UNION
WIDE = [[(5, 5), (6, 6.5), (1, 7), (1, 7)]]  # the first is less than the second, the others may be anything
SHARED = [[9, 5, 5, 5, 1, 1], [5, 1, 1, 1, 5, 5], [5, 1, 1, 1, 5, 5]]
CROWDED = [[2, 2, 1, 1, 1, 1], [2, 2, 2, 2, 1, 1], [1, 1, 2, 2, 1, 1], [1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 2, 2]]
CHOICES = [  # rule, scores or intervals of each head, how many a head has, what is taken, what must be said
    (ONE, WIDE, 2, (0, 1), ""), (ONE, WIDE, 2, (2, 3), ""), (ONE, WIDE, 2, (1, 2), ""),
    (ONE, WIDE, 2, (0, 2), "key 0 is chosen, and others have larger scores"),
    (ONE, WIDE, 2, (0, 1, 2), "3 keys are chosen, not 2"),
    (ONE, WIDE, 2, (), "0 keys are chosen, not 2"),
    (UNION, SHARED[:2], 2, (0, 1, 4, 5), ""), (UNION, SHARED, 2, (0, 1, 4, 5), ""),
    (UNION, SHARED[:2], 2, (0, 1, 2, 4), "2 keys, 1 one of them, are chosen in 1 places"),
    (UNION, SHARED, 2, (0, 1, 2, 4, 5), "2 keys, 1 one of them, are chosen in 1 places"),
    (UNION, SHARED[:2], 2, (0, 1, 2), "1 keys that are chosen may be the 2 of one head"),
    (UNION, SHARED[:2], 2, (1, 4, 5), "key 0 is not chosen, and has one of the 2 largest scores"),
    (UNION, [[2, 2, 1, 1, 1], [1, 1, 2, 2, 1]], 1, (0, 2), ""),
    (UNION, CROWDED, 1, (0, 1, 2, 4), ""),
    (UNION, CROWDED, 1, (0, 1, 2, 3, 4), "4 keys, 0 one of them, are chosen in 3 places"),
    (UNION, [[2, 2, 1, 1, 1], [1, 1, 2, 2, 1]], 1, (0, 4), "key 4 is chosen, and others have larger scores"),
]


def said_by(call, *args):
    try:
        call(*args)
    except Wrong as wrong:
        return str(wrong)
    return ""


def choices():
    for rule, scores, k, taken, text in CHOICES:
        of = np.array([[x if isinstance(x, tuple) else (x, x) for x in head] for head in scores], REAL)[:, None]
        said = said_by(Rule(rule, len(scores)).choose, of.mean(axis=3), (of[..., 1] - of[..., 0]) / 2,
                       np.isin(np.arange(of.shape[2]), taken), k, "key")
        expect(f"{taken} of {scores}", text in said and bool(text) == bool(said), said)


def huge_sums():
    """Nothing is known of a score, or of a mean, whose sum may overflow: of 8 keys of 6e37, not of 1e37 or 2e37."""
    for kind, keys, query, taken, text in (
            (Quest, np.repeat([6e37, 1e37, 2e37], 8), 1, range(8), ""),
            (Quest, np.repeat([6e37, 1e37, 2e37], 8), 1, range(16, 24), ""),
            (Quest, np.repeat([6e37, 1e37, 2e37], 8), 1, range(8, 16), "others have larger scores"),
            (Topk, np.array([2e38, 3e38, 2e38]), 2, [2], ""),
            (Topk, np.array([2e37, 3e37, 2e37]), 2, [2], "has one of the 1 largest scores")):
        numbers = {"scale": 1, "param.block": 8, "param.budget": 8, "param.dense_layers": 0, "param.digest": 1,
                   "param.group": 0, "param.query": 0, "param.k": 1}
        dump = types.SimpleNamespace(head_dim=1, q_len=1, number=numbers.get, word=lambda name: "f32")
        k = np.append(keys, 1).astype(REAL)[:, None]
        head = kind(dump, k, np.zeros((0, 1)), len(keys))
        head.layer, head.heads, head.place, head.group = 0, 1, 0, np.full((1, 1, 1), query, np.float32)
        mark = np.isin(np.arange(len(k)), [*taken, len(keys)]).astype(int)
        said = said_by(head.judge, 0, None, mark, mark > 1)
        expect(f"{kind.__name__} of {taken}", text in said and bool(text) == bool(said), said)


def random_net(program, case, path):
    """A fit for a case of fluxion: means and deviations of the features that `habench fit` finds, and random weights."""
    done = subprocess.run([program, "fit", case, "-o", path + ".features"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect("habench fit", done.returncode == 0, done.stdout + done.stderr)
    with open(path + ".features", "rb") as file:
        blob = file.read()
    header = json.loads(blob[8:8 + struct.unpack_from("<Q", blob)[0]])
    begin, end = (8 + struct.unpack_from("<Q", blob)[0] + at for at in header["features"]["data_offsets"])
    feature, draw = np.frombuffer(blob[begin:end], "<f4").reshape(-1, 41).astype(float), np.random.default_rng(1).normal
    deviation = feature.std(axis=0)
    inv = np.divide(1, deviation, out=np.zeros(41), where=deviation > 1e-9)
    write_fit(path, {"mean": feature.mean(axis=0), "inv": inv, "w0": draw(size=(41, 312)) / 6, "b0": draw(size=312) / 9, "w1": draw(
        size=(312, 312)) / 12, "b1": draw(size=312) / 9, "w2": draw(size=(312, 3)) * (0.01, 0.003, 0.1), "b2": np.array(
            [0.1, 0.02, 0])}, header["__metadata__"])


def random_reuse(program, case, path):
    """Fits for a case of clo: `habench fit` says whose they are; heads of all kinds of importance, of which some are hard."""
    done = subprocess.run([program, "fit", case, "-o", path + ".found"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect("habench fit", done.returncode == 0, done.stdout + done.stderr)
    with open(path + ".found", "rb") as file:
        blob = file.read()
    metadata = json.loads(blob[8:8 + struct.unpack_from("<Q", blob)[0]])["__metadata__"]
    draw = np.random.default_rng(1).uniform
    of = {"importance_q": draw(0, 1, (3, 4)), "importance_kv": draw(0.97, 1, (3, 2)), "similarity": np.array(
        [[0.5, 0.5], [0.7, 0.8], [0.93, 0.75]]), "similarity_min": np.array([[0.5, 0.5], [1, 0.9], [0.6, 0.65]]), "hash": draw(-1, 1, (3, 2, 64, 16)), "pace": np.array([1e3, 2.5])}
    write_fit(path, of, metadata)
    write_fit(path + ".other", of | {"importance_q": 1 - of["importance_q"]}, metadata)


def write_fit(path, tensors, metadata):
    arrays = {name: of.astype("<f4").tobytes() for name, of in tensors.items()}
    ends = np.cumsum([len(of) for of in arrays.values()])
    header = json.dumps({"__metadata__": metadata} | {name: {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [
        int(end) - len(of), int(end)]} for (name, of), end in zip(arrays.items(), ends)}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + b"".join(arrays.values()))


class Group:
    """Two query heads of a KV head, for Fluxion: of 261 tokens 2 are the sink, 3 recent, one new; 256 keys on the host, which
    are worth nothing, the first the most like q = 1. By hand: of equal budgets the largest blocks move least, and 0.1 of two
    is one. The host's keys weigh as the others, but for 10^-6: with tau 0.95 of |o| the labels are 129 of 256 keys, 9 of 16
    blocks, 5 of 8, 3 of 4 and 2 of 2."""

    BGT0, NEED = 129 / 256, (9 / 16, 5 / 8, 3 / 4, 1)
    K = sum(x * (need - 129 / 256) for x, need in zip((4, 5, 6, 7), NEED)) / 126

    def __init__(self, **options):
        self.numbers = {"scale": 1} | {f"param.{name}": value for name, value in (dict(
            sink=2, recent=3, digest=0, predict=2, budget=0.1, criterion=1, tau=0.95, granularity=0, skip_streaming=1,
            union=0) | options).items()}
        self.words = {"dtype": "f32", "case": "fluxion:ctx=261"}
        self.notes = [dict(bgt0=0.1, k=0, s=0, streaming=0, block=128, blocks=1) for _ in range(2)]
        self.blocks, self.side, self.own, self.missing, self.moved = [{0}, {0}], "either", [], (), ()
        self.k = REAL(-1e-6) * np.arange(262)[:, None]

    def says(self):
        dump = types.SimpleNamespace(q_heads=2, head_dim=1, q_len=1, number=self.numbers.get, word=self.words.get)
        heads = [Fluxion(dump, self.k, np.ones((1, 1), REAL), 261) for _ in range(2)]
        for i, head in enumerate(heads):
            size = int(self.notes[i].get("block", 0))
            task = [j for b in sorted(self.blocks[i]) for j in range(2 + b * size, 2 + (b + 1) * size)]
            states = [([0, 1], "device"), ([258, 259, 260, 261], "device"), (task, self.side)]
            for key in self.moved:
                states[2][0].remove(key)
                states[1][0].append(key)
            head.parts = [types.SimpleNamespace(keys=np.array([j for j in keys if j not in self.missing], int), what=self.own,
                                                claims=claims) for keys, claims in states]
            mark = np.zeros(262, int)
            for part, side in zip(head.parts, (1, 1, 2)):
                mark[part.keys] = side
            head.v = np.where((np.arange(262) < 2) | (np.arange(262) >= 258), REAL(1), REAL(0))[:, None]
            head.layer, head.heads, head.place, head.group, head.notes = 0, 2, i, np.ones((1, 2, 1)), self.notes[i]
            said = said_by(head.judge, 0, np.ones((1, 1), REAL), mark, mark > 2)
            if said:
                return said
        return said_by(Fluxion.judge_layer, heads)

    def all(self, **notes):
        for of in self.notes:
            of.update(notes)
        return self

    def with_(self, **fields):
        self.__dict__.update(fields)
        return self


def fluxions(path):
    """What is right, and each mistake, of places, blocks, labels and a net."""
    streams = dict(s=1, streaming=1)
    labels = lambda **notes: Group(predict=1, granularity=2).all(
        bgt0=Group.BGT0, k=Group.K, block=32, blocks=6).with_(blocks=[set(range(6))] * 2).all(**notes)
    one = lambda g, **notes: g.notes[1].update(notes) or g
    weights = {"mean": np.zeros(41), "inv": np.zeros(41), "w0": np.zeros((41, 312)), "b0": np.zeros(312), "w1": np.zeros(
        (312, 312)), "b1": np.zeros(312), "w2": np.zeros((312, 3)), "b2": np.array([0.1, 0, -1])}
    for i, (feature, value) in enumerate(((2, 256), (3, 6), (4, 5e-7), (5, 1), (26, np.log(3)), (27, 1), (28, 1), (32, 1))):
        weights["inv"][feature], weights["w0"][feature, i], weights["mean"][feature] = 2, 1, value - 0.25
        weights["w1"][i, i], weights["w2"][i, 2] = 1, 0.5  # each adds 1/4 to s
    write_fit(path, weights, {})
    net = lambda s=1.0, **notes: Group(predict=0).with_(words={"dtype": "f32", "case": f"fluxion:ctx=261,fit={path}"}, blocks=[
        set(), set()]).all(s=s, streaming=int(s > 0), block=0, blocks=0, **notes)
    for name, group, text in (
            ("right", Group(), ""), ("in union", Group(union=1), ""),
            ("that streams", Group(predict=1, tau=1000).all(bgt0=0, k=0, block=0, blocks=0, **streams).with_(
                blocks=[set(), set()]), ""),
            ("another budget", Group(budget=0.2), "note bgt0 of head 0"),
            ("a note less", Group().all(k=np.nan), "note k is nan"),
            ("it does not stream", Group().all(streaming=1), "note streaming is 1"),
            ("another block", Group().all(block=64).with_(blocks=[{0}, {0}]), "blocks of 64 are reported, of [128]"),
            ("a block of its own", one(Group(), block=64), "blocks of several sizes"),
            ("two blocks", Group().all(blocks=2).with_(blocks=[{0, 1}] * 2), "2 blocks are reported"),
            ("two are read", Group().with_(blocks=[{0}, {0, 1}]), "block 1 is chosen, and others"),
            ("the other one", Group().with_(blocks=[{0}, {1}]), "block 0 is not chosen"),
            ("not the same in union", Group(union=1).with_(blocks=[{0}, {1}]), "and other blocks"),
            ("both in union", Group(union=1).with_(blocks=[{0, 1}] * 2), "block 1 is chosen, and others"),
            ("a key less", Group().with_(missing=(100,)), "block 0 is used in part"),
            ("no sink", Group().with_(missing=(1,)), "token 1 is not used by the device"),
            ("no new one", Group().with_(missing=(261,)), "token 261 is not used by the device"),
            ("a key of the host among recent ones", Group().with_(moved=(100,)), "with others that are elsewhere"),
            ("on the device", Group().with_(side="device"), "or on the device"),
            ("another query", Group().with_(own=["a query"]), "is not weighed by the step's query"),
            ("labels", labels(), ""),
            ("a key more", labels(bgt0=130 / 256), "of 256 keys 129 to 129"),
            ("a key less", labels(bgt0=128 / 256), "of 256 keys 129 to 129"),
            ("another slope", labels(k=Group.K + 1e-4), "note k is"),
            ("labels with another tau", labels().with_(numbers=labels().numbers | {"param.tau": 0.8}), "note bgt0 is"),
            ("a net", net(), ""), ("that is off", net(s=1.001), "note s of head 0"), ("or bgt0", net(bgt0=0.1001), "bgt0"),
            ("its file elsewhere", net(s=1.001).with_(words={"dtype": "f32", "case": "fluxion:fit=elsewhere"}), "")):
        said = group.says()
        expect(f"fluxion, {name}: {text}", text in said and bool(text) == bool(said), said)


ONE_THIRD = dict(block=2, budget=1 / 3, capacity=1.5, sink=1, recent=1, policy=0, digest=0)
PLACES = [(1.16, 25, 29), (1.4, 45, 63), (8.2, 15, 123), (1.5, 3, 4), (1.39, 5, 6), (1, 5, 5)]  # capacity, blocks chosen, places
USED = [((0, 1), 0, 0), ((1, 2), 1, 0), ((2, 3), 1, 1), ((0, 1), 1, 1), ((2, 3), 1, 1), ((0, 5), 0, 2)]  # by hand
LISTS = [  # policy, blocks of each step with hits and victims, what must be said
    (0, USED + [((1, 3), 1, 1)], ""), (1, USED + [((1, 3), 0, 2)], ""),
    (1, USED + [((1, 3), 1, 1)], "note hits is 1, not 0"), (0, USED + [((1, 3), 0, 2)], "note hits is 0, not 1"),
    (0, USED[:2] + [((2, 3), 1, 0)], "note replaced is 0, not 1"), (0, [((0, 1), 1, 0)], "note hits is 1, not 0"),
    (0, [((0, 1, 2), 0, 0)], "3 blocks are chosen, not 2"), (0, [((0, 1), np.nan, 0)], "note hits is nan"),
    (0, [((0, 1), 0, 0, 3)], "block 3 is not chosen"), (0, [((0, 1), 0, 0, -1)], "token 0 is not used")]


def lists():
    """Six blocks of two tokens, each a dimension of its own, of which two are chosen; a cache has three places."""
    for policy, steps, text in LISTS:
        dump = types.SimpleNamespace(q_heads=1, head_dim=6, q_len=1, number=({"scale": 1} | {
            f"param.{name}": value for name, value in (ONE_THIRD | dict(policy=policy)).items()}).get, word=lambda key: "f32")
        keys = np.vstack([np.zeros((1, 6)), np.repeat(np.eye(6), 2, axis=0), np.zeros((len(steps) + 1, 6))]).astype(REAL)
        head, said = LruBlocks(dump, keys, np.ones((1, 6), REAL), 14), ""
        head.layer, head.heads, head.place = 0, 1, 0
        for step, (chosen, hits, replaced, *mistake) in enumerate(steps):
            mark = np.zeros(15 + step, int)
            for b in chosen:
                mark[1 + 2 * b:3 + 2 * b] = 1
            mark[[0, 13 + step, 14 + step]] = 1
            head.group = np.zeros((1, 1, 6))
            head.group[0, 0, list(chosen)] = 1
            if mistake == [-1]:
                mark[0] = 0
            elif mistake:
                head.group[0, 0, [chosen[1], *mistake]] = 0, 1
            head.parts = [types.SimpleNamespace(keys=np.flatnonzero(mark), what=[])]
            head.notes = dict(hits=hits, replaced=replaced)
            said = said or said_by(head.judge, step, None, mark, mark > 2) or said_by(LruBlocks.judge_layer, [head])
        expect(f"lists, {text}", text in said and bool(text) == bool(said), said)


def places():
    """A cache has floor(capacity k) places; in binary64 the first three products are below a whole number by their rounding."""
    for capacity, k, wanted in PLACES:
        dump = types.SimpleNamespace(number={f"param.{name}": value for name, value in (
            ONE_THIRD | dict(budget=1, capacity=capacity)).items()}.get)
        is_ = LruBlocks(dump, None, (), 2 + 2 * k).slots
        expect(f"places of {capacity} times {k} blocks", is_ == wanted, f"{is_}, not {wanted}")


class Mistaken(Head):
    """A definition that has a mistake of its own."""

    def judge(self, step, q, mark, padding):
        return 1 // 0


DAMAGES = [  # in which dump, what it is called, the plant, what must be said
    ("projected", "no W_O", no_projection, "has wo_off, and no W_O"),
    ("all", "a row of own_q that is not there", element("query", lambda f, x: 999, 0, 0, 1), "names row 999 of own_q"),
    ("all", "a row of own_k that is not there", element("key", lambda f, x: 999, 0, 0, 1), "names row 999 of own_k"),
    ("profile", "claims that are not there", element("profile", lambda f, x: 3, 0, 0, 1), "has no profile3."),
    ("profile", "no lanes", meta("profile1.sum_lanes", lambda x: "0"), "profile1.sum_lanes is 0, not from 1"),
    ("profile", "no type", meta("profile1.out_type", lambda x: "3"), "profile1.out_type is 3, not from 0 to 2"),
    ("profile", "no number", meta("profile1.join_keys", lambda x: "nan"), "profile1.join_keys is nan"),
]


def damages(blob):
    header = 8 + struct.unpack_from("<Q", blob)[0]
    yield "nothing", b""
    yield "cut off in its header", blob[:header // 2]
    yield "cut off in its data", blob[:-1]
    yield "a header of zeros", blob[:8] + bytes(header - 8) + blob[header:]
    yield "another version", blob.replace(b'"version":"2"', b'"version":"4"', 1)
    yield "another shape", blob.replace(b'"shape.q_heads":"4"', b'"shape.q_heads":"3"', 1)
    yield "no such tensor", blob.replace(b"layer0.seq0.lse_bound", b"layer0.seq0.lse_b0und", 1)


def main(program, program_of_states):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        cases = []
        for arrays, variant, options in (huge, "hgca:blk_size=4,blk_num=4,", "ctx=44"), (
                projected, "h2o:", "ctx=43+41,batch=2,q_len=2"), (
                turned, "hcattention:c=16,fresh=5,rotary=before,", "ctx=40+30,batch=2,observed=1"):
            file = path(arrays.__name__ + ".safetensors")
            trace(file, arrays)
            cases += [f"{of_any}dataset=trace/{file},steps=2,dtype=f32,{options}" for of_any in ("resident:", variant)]
        net = "fluxion:ctx=300+170,steps=2,q_len=2,heads=4/2,head_dim=16,layers=1,sink=5,recent=30,observed=48"
        random_net(program, net, path("net"))
        cases += [f"{net},fit={path('net')}", f"{net},fit={path('net')},union=1"]
        reuse = "clo:ctx=100+40,steps=5,heads=4/2,head_dim=16,layers=3,dataset=walk,observed=30,budget=0.2,recent=10,eta=0.94"
        random_reuse(program, reuse, path("reuse"))
        cases += [f"{reuse},bits=64,hash=learned,prefetch=0,fit={path('reuse')}", f"{reuse},bits=64,group=min,prefetch=0,fit={path('reuse')}"]
        done = subprocess.run([program, "check", "-q", "suites/audit.suite", *cases, "--dump", path("dump")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        expect("habench check", done.returncode == 0, done.stdout + done.stderr)
        of, files = {}, sorted(os.listdir(path("dump")))
        expect(f"{CASES} cases", len(files) == CASES, f"{len(files)}")
        for name in files:
            code, said = judged(path("dump/" + name))
            expect(name, code == 0, said)
            if "heads_per_task" in name and name.startswith("hgca"):
                of["tasks"] = path("dump/" + name)
            if re.search("ctx_100_steps_3_(observed_5_)?layers_1_.*head_dim_16_dtype_f16", name):
                of.setdefault(name.split("_")[0], path("dump/" + name))
            for what, end in (("share", "_budget_0.5"), ("union", "_12_group_union"), ("ahead", "query_ahead"),
                              ("ahead_max", "query_ahead_group_max"), ("ahead_union", "query_ahead_group_union"),
                              ("columns", "observed_20_layers_1_heads_4_2_head_dim_16_dtype_f16_alpha_1"),
                              ("scout", "32_group_head_interval_2"), ("scout_max", "8_budget_32_interval_2"),
                              ("scout_all", "32_group_head_resident_all_interval_2")):
                if name.endswith(end + ".safetensors"):
                    of[what] = path("dump/" + name)
            for what, end in (("net", "_recent_30"), ("heads", "_11_predict_oracle_tau_0.3"), ("fixed", "_fixed_budget_0.3")):
                if name.startswith("fluxion") and name.endswith(end + ".safetensors"):
                    of[what] = path("dump/" + name)
            for what, end in (("", "_0.94_prefetch_0_bits_64"), ("_ahead", "_0.94_bits_64"), ("_quest", "_0_retrieve_quest_bits_64"),
                              ("_exact", "_0_retrieve_exact_bits_64"), ("_min", "_64_predict_oracle"),
                              ("_all", "_all_predict_oracle"), ("_fit", "_hash_learned")):
                if name.startswith("clo") and name.endswith(end + ".safetensors"):
                    of["clo" + what] = path("dump/" + name)
            for what, end in (("", "_16_fresh_6"), ("_exact", "_16_keys_exact_fresh_6"), ("_renorm", "_16_renorm_1_fresh_6"),
                              ("_16", "_separate_weights_f16_table_f16_fresh_5"), ("_block", "_prefill_anchor_anchor_10")):
                if name.startswith("hcattention") and name.endswith(end + ".safetensors"):
                    of["codes" + what] = path("dump/" + name)
            for what, end in (("", "_c_16_budget_0.3_capacity_1.5"), ("_4", "_parts_4_c_16_budget_0.3_capacity_1.5")):
                if name.startswith("pqcache") and name.endswith(end + ".safetensors"):
                    of.setdefault("tokens" + what, path("dump/" + name))
            if name.startswith("lru_blocks"):
                of.setdefault("lists", path("dump/" + name))
            if name.startswith("hcattention") and "turned" in name:
                of["turned"] = path("dump/" + name)
            if name.startswith("h2o") and "projected" in name:
                of["projected"] = path("dump/" + name)
            if name.startswith("hybrid_fixed") and re.search("100_steps_.*_budget_0.3.safetensors", name):
                of.setdefault("hybrid", path("dump/" + name))
        rooms()
        choices()
        huge_sums()
        fluxions(path("fit"))
        lists()
        places()
        os.mkdir(path("states"))
        cpu, DEFINITIONS["cpu"] = DEFINITIONS["cpu"], AllKeys
        states(program_of_states, path("states"), of)
        plants = [(plant, 10) for plant in PLANTS] + [(plant, 20) for plant in DAMAGES]
        for (variant, name, plant, text), wanted in plants:
            file = File(of[variant])
            DEFINITIONS["cpu"] = AllKeys if variant in STATES else cpu
            meta("shape.layers", lambda x: "1")(file)  # the others are as they were
            plant(file)
            file.write(path("planted"))
            code, said = judged(path("planted"))
            expect(f"planted in {variant}: {name}, to be said: {text}", code == wanted and text in said, said)
        file = File(of["clo_fit"])
        meta("case", lambda x: re.sub("fit=[^,]*", "fit=elsewhere", x))(file)
        file.write(path("planted"))
        expect("a fit that is elsewhere", judged(path("planted"))[0] == 0, judged(path("planted"))[1])
        DEFINITIONS["cpu"] = Mistaken
        code, said = judged(of["cpu"])
        expect("a mistake in judging", code == 20 and said.startswith("DAMAGED") and said.count("\n") == 1
               and "could not be judged: ZeroDivisionError" in said, said)
        DEFINITIONS["cpu"] = cpu
        with open(of["cpu"], "rb") as file:
            blob = file.read()
        for name, damaged in damages(blob):
            with open(path("damaged"), "wb") as file:
                file.write(damaged)
            code, said = judged(path("damaged"))
            expect(f"damaged: {name}", code == 20 and said.startswith("DAMAGED"), said)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:]))
