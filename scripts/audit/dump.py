"""The file that `habench check --dump DIR` writes of a case: docs/audit.md."""

import json
import struct

import numpy as np

from .claims import CLAIMS, MOST, Depths, weaker
from .errors import Damaged, Wrong

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "U8": "u1"}


class Dump:
    """A file: numbers and words of its metadata, tensors by layer, sequence and name."""

    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                blob = file.read()
            (length,) = struct.unpack_from("<Q", blob)
            self.header = json.loads(blob[8:8 + length].decode())
            self.meta = self.header.pop("__metadata__")
            kind = self.meta["format"], self.meta["version"]
        except (struct.error, ValueError, KeyError, AttributeError, TypeError):
            raise Damaged("not a dump: the file is cut off, or its header is damaged") from None
        if kind not in (("habench-dump", "2"), ("habench-dump", "3")):
            raise Damaged(f"{kind[0]} of version {kind[1]}: this script reads habench-dump of versions 2 and 3")
        self.data = memoryview(blob)[8 + length:]
        self.ctx = [int(x) for x in self.word("ctx").split("+")]
        for name in ("layers", "batch", "q_heads", "kv_heads", "head_dim", "q_len", "steps", "observed"):
            setattr(self, name, int(self.number("shape." + name)))
        self.depth, self.known = {}, {}
        if len(self.ctx) == 1:
            self.ctx *= self.batch
        if len(self.ctx) != self.batch or min(self.layers, self.batch, self.kv_heads, self.q_len, self.steps) < 1 \
                or self.q_heads % self.kv_heads:
            raise Damaged("its shape contradicts itself")

    def word(self, key):
        if not isinstance(self.meta.get(key), str):
            raise Damaged(f"its metadata has no {key}")
        return self.meta[key]

    def number(self, key):
        try:
            return float(self.word(key))
        except ValueError:
            raise Damaged(f"its {key} is '{self.meta[key]}', not a number") from None

    def claims(self, of, keys=0):
        """By name. of: device, host, profileN or either, the weaker of both sides in each respect over so many keys."""
        if of == "either":
            return weaker(self.claims("device"), self.claims("host"), keys)
        if of not in self.known:
            self.known[of] = {name: self.number(f"{of}.{name}") for name in CLAIMS}
            for name, value in self.known[of].items():
                least, end = int(name.endswith("_lanes")), 3 if name.endswith("_type") else 2 ** 32
                if not name.endswith("_eps") and not least <= value < end:
                    raise Damaged(f"its {of}.{name} is {value:g}, not from {least} to {end - 1}")
        return self.known[of]

    def may_claim(self, of):
        """Raises Wrong where no kernel lies that claims so much: docs/measurement.md, "What may be claimed"."""
        for name, most in MOST.items():
            if not 0 <= self.claims(of)[name] <= most:
                raise Wrong(f"its {of}.{name} is {self.claims(of)[name]:g}, not from 0 to {most:g}")

    def depths(self, side, keys, runs=None):
        """runs: None, or in place of those that are claimed"""
        if (side, keys, runs) not in self.depth:
            self.depth[side, keys, runs] = Depths(self, side, keys, runs)
        return self.depth[side, keys, runs]

    def has(self, layer, seq, name):
        return f"layer{layer}.seq{seq}.{name}" in self.header

    def own(self, layer, seq, name, *shape):
        """A tensor that is left out where it would be all 0."""
        if self.has(layer, seq, name):
            return self.tensor(layer, seq, name, *shape)
        return np.zeros([0 if n is None else n for n in shape], np.uint32)

    def notes(self, layer, seq):
        """By name: [steps][q_heads]"""
        begin = f"layer{layer}.seq{seq}.note."
        return {key[len(begin):]: self.tensor(layer, seq, key[len(begin) - len("note."):], self.steps, self.q_heads)
                for key in self.header if key.startswith(begin)}

    def tensor(self, layer, seq, name, *shape):
        """Of the given shape, as binary numbers can hold it. A first length of None: as many as there are."""
        name = f"layer{layer}.seq{seq}.{name}"
        try:
            entry = self.header[name]
            begin, end = entry["data_offsets"]
            kind = np.dtype(TYPES[entry["dtype"]])
            if shape[0] is None:
                shape = (*entry["shape"][:1], *shape[1:])
            if entry["shape"] != list(shape) or not 0 <= begin <= end <= len(self.data) \
                    or end - begin != kind.itemsize * int(np.prod(shape)):
                raise Damaged(f"tensor {name} is not of shape {shape}, or is cut off")
            flat = np.frombuffer(self.data[begin:end], kind)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Damaged(f"tensor {name} is missing or damaged") from None
        if entry["dtype"] == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        return flat.reshape(shape)
