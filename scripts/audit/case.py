"""All that a dump holds of a case, held against what is computed here."""

import numpy as np

from .attention import State, merged
from .definitions import DEFINITIONS
from .errors import Damaged, Wrong
from .head import Head
from .numbers import REAL

NEAR = 1e-8  # of a bound: what two computations of one number may differ by; they do by 1e-10


class Audit:
    """What was found in one file."""

    def __init__(self, dump):
        self.dump, self.found, self.wrong_rows, self.rows = dump, [], 0, 0
        self.ratio = self.reference = self.bounds = 0.0
        self.own, self.notes = {}, {}  # states by what they have of their own; values of a note
        kind = DEFINITIONS.get(dump.word("variant"))
        if kind is None:
            self.found.append(f"this script has no definition of variant {dump.word('variant')}")
            kind = Head
        for layer in range(dump.layers):
            Layer(self, kind, layer).run()

    def say(self, place, text):
        self.found.append(f"{place}: {text}")

    def near(self, place, what, got, want, unit):
        """Whether habench's own number is ours; returns by how much of a unit it is not."""
        off = np.where(got == want, 0, np.abs(got - want) / unit).astype(float)
        off[np.isnan(off)] = np.inf
        if not off.max() <= NEAR:
            at = int(np.argmax(off))
            self.say(place, f"{what}[{at}] is {got.ravel()[at]:.9g} in habench, not {float(want.ravel()[at]):.9g}")
        return float(off.max())


class Part:
    """A part of a head's keys in a step: one attention state, and what it has of its own."""

    def __init__(self, dump, x, step, head, p, part):
        at, on_device, either = (step, head, p), x["side"][step, head, p] == 1, x["either_side"][step, head, p] == 1
        self.keys = np.flatnonzero((part & 127) == p + 1)
        self.dump, self.number, self.own_q, self.own_k = dump, p, x["own_q"], x["own_k"]
        self.query, self.weight_only = int(x["query"][at]), x["weight_only"][at] == 1
        self.q = self.own_q[self.query - 1] if self.query else x["q"][step, :, head]
        self.rows = x["key"][step, head, self.keys]  # of own_k, from 1
        profile = int(x["profile"][at])
        self.claims = f"profile{profile}" if profile else "either" if either else "device" if on_device else "host"
        self.asked = "device" if either and not profile else self.claims  # whose claims have to leave room
        self.what = [what for what, has in (("a query", self.query), ("keys", self.rows.any()), (
            "weights alone", self.weight_only), ("a profile", profile)) if has]
        self.named = self.what + (["either side"] if either else [])

    def check(self, audit, before):
        """Raises Wrong where no state can be made of it. before: the tokens before a step's own"""
        for what in self.named:
            audit.own[what] = audit.own.get(what, 0) + 1
        own = self.own_k[self.rows[self.rows > 0] - 1]
        if len(self.keys) and not (np.isfinite(self.q).all() and np.isfinite(own).all()):
            raise Wrong(f"part {self.number} has a query or a key of its own that is not finite")
        if self.asked == "host":
            return
        self.dump.may_claim(self.asked)
        runs = int(self.dump.number("device.runs"))
        for keys in (int((self.keys <= before).sum()), len(self.keys)):  # of the first query token, of the last
            self.dump.depths(self.asked, keys, runs).leave_room(
                f"what {self.asked} claims of part {self.number}", self.dump.head_dim, keys)

    def scores(self, token, keys, cache):
        """Of a query token with these of its keys, the first ones, and their sizes. cache: [keys][head_dim]"""
        rows, scale = self.rows[:len(keys)], REAL(self.dump.number("scale"))
        k, own = cache[keys], rows > 0
        k[own] = self.own_k[rows[own] - 1].astype(REAL)
        q = self.q[token].astype(REAL)
        return k @ q * scale, np.abs(k) @ np.abs(q) * scale

    def is_one_with(self, rest):
        """A part whose weights are not divided by their sum, and weights alone behind it: one state."""
        undivided = lambda of: of.claims.startswith("profile") and self.dump.claims(of.claims)["sum_least"] > 0
        return not self.weight_only and rest.weight_only and undivided(self) and undivided(rest)


class Layer:
    """A layer of all sequences, step by step."""

    def __init__(self, audit, kind, layer):
        self.audit, self.dump, self.kind, self.layer = audit, audit.dump, kind, layer
        dump, self.seqs = self.dump, []
        group = dump.q_heads // dump.kv_heads
        for b, ctx in enumerate(dump.ctx):
            tokens = ctx + dump.steps * dump.q_len
            get = lambda name, *shape, b=b: dump.tensor(layer, b, name, *shape)
            rows = dump.steps, dump.q_len, dump.q_heads
            x = {name: get(name, *rows, dump.head_dim) for name in ("q", "out", "want", "bound")}
            x.update((name, get(name, *rows)) for name in ("lse", "want_lse", "lse_bound", "ratio", "mass"))
            x["part"], x["side"] = get("part", dump.steps, dump.q_heads, tokens), get("side", dump.steps, dump.q_heads, 4)
            x["done"] = get("done", dump.steps)
            self.read_projection(x, b)
            self.read_own(x, b, tokens)
            x["k"], x["v"] = (get(name, dump.kv_heads, tokens, dump.head_dim).astype(REAL) for name in "kv")
            observed = get("observed", min(dump.observed, ctx), dump.q_heads, dump.head_dim).astype(REAL)
            x["heads"] = [kind(dump, x["k"][h // group], observed[:, h], ctx) for h in range(dump.q_heads)]
            for h, head in enumerate(x["heads"]):
                head.layer, head.heads, head.v = layer, group, x["v"][h // group]
            if not all(np.isfinite(x[name]).all() for name in ("q", "k", "v")):
                raise Damaged("Q, K or V is not finite")
            self.seqs.append(x)

    def read_projection(self, x, seq):
        """W_O, which is one for all sequences, and what habench says of it; full: full attention, as it is found."""
        dump, x["wo"] = self.dump, None
        if dump.has(self.layer, 0, "wo"):
            width = dump.q_heads * dump.head_dim
            x["wo"] = dump.tensor(self.layer, 0, "wo", None, width).astype(REAL)
            x["full"] = np.zeros((dump.q_len, width), REAL)
            for name in ("wo_off", "wo_norm"):
                x[name] = dump.tensor(self.layer, seq, name, dump.steps, dump.q_len)
        elif dump.has(self.layer, seq, "wo_off"):
            raise Damaged(f"layer {self.layer} seq {seq}: has wo_off, and no W_O")

    def read_own(self, x, seq, tokens):
        """What states have of their own, and notes."""
        dump = self.dump
        get = lambda name, *shape: dump.own(self.layer, seq, name, *shape)
        for name in ("query", "profile", "weight_only", "either_side"):
            x[name] = get(name, dump.steps, dump.q_heads, 4)
        x["key"] = get("key", dump.steps, dump.q_heads, tokens)
        x["own_q"], x["own_k"] = get("own_q", None, dump.q_len, dump.head_dim), get("own_k", None, dump.head_dim)
        x["notes"] = dump.notes(self.layer, seq)
        for name, rows in (("query", "own_q"), ("key", "own_k")):
            if x[name].max() > len(x[rows]):
                raise Damaged(f"layer {self.layer} seq {seq}: {name} names row {x[name].max()} of {rows}, which has "
                              f"{len(x[rows])}")

    def run(self):
        """Until a selection is wrong: what follows from it would be, too."""
        for step in range(self.dump.steps):
            done = [x["done"][step] == 1 for x in self.seqs]
            for seq, x in enumerate(self.seqs):
                for head in range(self.dump.q_heads if done[seq] else 0):
                    if not self.ask(step, seq, x, head):
                        return
                if done[seq] and x["wo"] is not None:
                    self.project(f"layer {self.layer} seq {seq} step {step}", step, x)
            if not all(done):
                self.audit.say(f"layer {self.layer} step {step}", "habench recorded no more of this layer")
                return
            try:
                self.kind.judge_layer([head for x in self.seqs for head in x["heads"]])
            except Wrong as wrong:
                self.audit.say(f"layer {self.layer} step {step}", wrong)
                return

    def ask(self, step, seq, x, head):
        place = f"layer {self.layer} seq {seq} step {step} head {head}"
        known = x["heads"][head]
        before, after = known.now(step)
        part, side = x["part"][step, head], x["side"][step, head]
        mark = np.where(part[:after] & 127, 2 - side[np.maximum(part[:after] & 127, 1) - 1 & 3], 0)
        flags = np.concatenate((side, x["weight_only"][step, head], x["either_side"][step, head]))
        if (part[after:] != 0).any() or ((part & 127) > 4).any() or (part == 128).any() or (flags > 1).any():
            self.audit.say(place, "keys are used that do not exist, or parts")
            return False
        try:
            states = [Part(self.dump, x, step, head, p, part) for p in range(4)]
            for state in states:
                state.check(self.audit, before)
            for token in range(self.dump.q_len):
                self.row(place, step, token, head, x, part, states)
            known.notes = {name: float(of[step, head]) for name, of in x["notes"].items()}
            for name, value in known.notes.items():
                self.audit.notes.setdefault(name, []).extend([] if np.isnan(value) else [value])
            known.parts = states
            known.group, known.place = x["q"][step, :, head - head % known.heads:][:, :known.heads], head % known.heads
            known.judge(step, x["q"][step, :, head].astype(REAL), mark, part[:after] >= 128)
        except Wrong as wrong:
            self.audit.say(place, wrong)
            return False
        return True

    def row(self, place, step, token, head, x, part, parts):
        """Questions 1 and 3 of one query."""
        audit, dump, at = self.audit, self.dump, (step, token, head)
        known, kv = x["heads"][head], head // (dump.q_heads // dump.kv_heads)
        visible = known.now(step)[0] + token + 1
        k, v, q, scale = x["k"][kv][:visible], x["v"][kv][:visible], x["q"][at].astype(REAL), REAL(dump.number("scale"))
        scores, sizes = k @ q * scale, np.abs(k) @ np.abs(q) * scale
        states, joined = [], set()

        def scored(of, keys):
            return of.scores(token, keys, k) if of.query or of.rows.any() else (scores[keys], sizes[keys])

        for p, of in enumerate(parts):
            keys, left_out = of.keys[of.keys < visible], 0
            if p in joined or not (len(keys) or p == 0):
                continue
            (s, a), values = scored(of, keys), v[keys]
            if p + 1 < len(parts) and of.is_one_with(parts[p + 1]):
                rest = parts[p + 1].keys[parts[p + 1].keys < visible]
                s, a = (np.concatenate(x) for x in zip((s, a), scored(parts[p + 1], rest)))
                values, left_out = np.concatenate((values, np.zeros((len(rest), dump.head_dim), REAL))), len(rest)
                joined.add(p + 1)
            depths = dump.depths(of.claims, len(s))
            states.append(State(s, a + scale * dump.head_dim * depths.least_term, values, depths, left_out))
            if of.weight_only:
                states[-1].leave_values_out()
        if dump.word("contract") == "exact" and ((part[:visible] == 0).any() or any(of.what for of in parts)):
            raise Wrong("the contract is exact, but a key is not used, or a state has a query, keys or weights of its own")
        want, place = merged(dump, states), f"{place} token {token}"
        audit.rows += 1
        audit.wrong_rows += not self.outputs(place, x["out"][at], x["lse"][at], x["ratio"][at], want)
        one = np.ones(1, REAL)
        bound, lse_bound = np.maximum(want.bound, REAL("1e-300")), max(want.lse_bound, REAL("1e-300"))
        audit.reference = max(audit.reference, audit.near(place, "reference", x["want"][at], want.o, bound), audit.near(
            place, "reference LSE", x["want_lse"][at] * one, want.lse * one, lse_bound))
        audit.bounds = max(audit.bounds, audit.near(place, "bound", x["bound"][at], want.bound, bound), audit.near(
            place, "bound of LSE", x["lse_bound"][at] * one, want.lse_bound * one, lse_bound))
        p = np.exp(scores - scores.max())
        if x["wo"] is not None:
            x["full"][token, head * dump.head_dim:][:dump.head_dim] = p @ v / p.sum()
        audit.near(place, "mass", x["mass"][at] * one, p[part[:visible] > 0].sum() / p.sum() * one, one)

    def project(self, place, step, x):
        """Question 3 behind W_O: all heads of each token, beside full attention."""
        for token, full in enumerate(x["full"]):
            out = x["out"][step, token].astype(REAL).ravel()
            norm = np.sqrt(((x["wo"] @ full) ** 2).sum())
            for name, of in (("wo_off", out - full), ("wo_norm", full)):
                ours = np.sqrt(((x["wo"] @ of) ** 2).sum())
                self.audit.near(f"{place} token {token}", name, x[name][step, token] * np.ones(1), ours * np.ones(1), norm)

    def outputs(self, place, out, lse, ratio, want):
        error = np.abs(np.append(out, lse).astype(REAL) - np.append(want.o, want.lse))
        bound = np.append(want.bound, want.lse_bound)
        ratios = np.where(error == 0, 0, error / bound).astype(float)
        if want.empty:
            ratios = np.where(np.append(out, 0) == 0, 0.0, np.inf)
            ratios[-1] = 0 if lse == -np.inf else np.inf
        else:
            ratios[:-1][~((out >= want.least) & (out <= want.most))] = np.inf
        ratios[np.isnan(ratios)] = np.inf
        worst = int(np.argmax(ratios))
        self.audit.ratio = max(self.audit.ratio, ratios[worst])
        good, name = ratios[worst] <= 1, "LSE" if worst == len(out) else f"out[{worst}]"
        if not good:
            self.audit.say(place, f"{name} is {np.append(out, lse)[worst]:.9g}, not "
                           f"{float(np.append(want.o, want.lse)[worst]):.9g}: error/bound {ratios[worst]:.3g}")
        if not np.isclose(ratio, ratios[worst], rtol=NEAR, atol=NEAR):
            self.audit.say(place, f"error/bound is {ratio:.9g} in habench, not {ratios[worst]:.9g}")
        return good
