#!/usr/bin/env python3
"""test_torch_attention.py PROGRAM: peers/torch_attention.py beside a stand-in of PyTorch and FlashInfer, which says what lives on the
device: nothing does while habench runs; which cases it takes by itself; that FlashInfer's kernels are made for them."""

import contextlib
import importlib.machinery
import io
import os
import sys
import tempfile
import types
import weakref
from unittest import mock

alive = weakref.WeakSet()


class Tensor:
    def __init__(self, *shape, dtype="float16", device=None):
        self.shape, self.dtype = shape, dtype
        alive.add(self)

    def of(self, *shape):
        return Tensor(*shape, dtype=self.dtype)

    def same(self, *_):
        return self.of(*self.shape)

    to = float = contiguous = transpose = same
    device = "cuda"

    def reshape(self, *shape):
        return self.of(*shape)

    def squeeze(self, _):
        return self.of(*self.shape[:2], *self.shape[3:])

    def unsqueeze(self, _):
        return self.of(*self.shape[:2], 1, *self.shape[2:])

    def norm(self):
        return 1.0

    def __sub__(self, other):
        return mock.Mock(norm=lambda: 0.0)

    __mul__ = same


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name].__dict__.update(members)


functional = mock.Mock(scaled_dot_product_attention=lambda q, *_, **__: q.same(), pad=lambda x, _: x.same())
cuda = mock.MagicMock()
cuda.Event.return_value.elapsed_time.return_value = 0.25
types_made = []  # of FlashInfer's kernels


class Wrapper:
    def __init__(self, room, *_, **__):
        self.room = room

    def plan(self, *_, q_data_type, kv_data_type, **__):
        types_made.append((q_data_type, kv_data_type))

    def run(self, q, pages):
        return q.same()


module("torch", cuda=cuda, device=str, float16="float16", bfloat16="bfloat16", float32="float32", int32="int32", uint8="uint8", zeros=Tensor,
       arange=lambda n, **__: Tensor(n), full=lambda shape, *_, **__: Tensor(*shape), inference_mode=contextlib.nullcontext, __version__="0")
module("torch.nn")
module("torch.nn.functional", **{name: getattr(functional, name) for name in ("scaled_dot_product_attention", "pad")})
module("safetensors", safe_open=None)
module("flashinfer", BatchDecodeWithPagedKVCacheWrapper=Wrapper)
sys.modules["torch"].nn = sys.modules["torch.nn"]
sys.modules["torch.nn"].functional = sys.modules["torch.nn.functional"]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
sys.dont_write_bytecode = True
import torch_attention as peers  # noqa: E402

passed = failed = 0


def holds(what, true):
    global passed, failed
    passed, failed = passed + bool(true), failed + (not true)
    if not true:
        print(f"FAILED: {what}")


def say(*words):
    """Exit status and text of the script with these words."""
    out = io.StringIO()
    with mock.patch.object(sys, "argv", ["torch_attention.py", *words]), contextlib.redirect_stdout(out):
        return peers.main(), out.getvalue()


ran, kept, at_empty = [], [], []


def run_habench(program, case, device, out, dump):
    ran.append(case)
    kept.append(len(alive))
    return {"step_ns": "4000", "layers": "2", "gpu_kernel_idle": "0.5"}


def load(dump):
    return [{what: Tensor(1, 8 if what in "kv" else 32, 48 if what in "kv" else 1, 128) for what in ("q", "k", "v", "out")} for _ in range(2)], 1.0


def refuse(*_):
    raise RuntimeError("out of memory")  # a new one each time: it holds the tensors of its frames


cuda.empty_cache.side_effect = lambda: at_empty.append(len(alive))
with mock.patch.multiple(peers, run_habench=run_habench, load=load):
    code, text = say("habench", "--device", "cuda", "a", "b")
    holds(f"two cases are right: {code}\n{text}", code == 0 and text.count("0.0e+00") == 2)
    holds("each is run before and after its peers", ran == ["a", "a", "b", "b"])
    holds(f"none of the peers' tensors lives beside habench: {kept}", kept == [0, 0, 0, 0])
    holds(f"nor when the memory is given back: {at_empty}", len(at_empty) == 4 and not any(at_empty))
    holds(f"FlashInfer attends: {types_made}", types_made == [("float16", "float16")] * 2)
    with mock.patch.object(peers, "time_cuda", refuse):
        code, text = say("habench", "--device", "cuda", "a", "b")
    holds(f"what has no memory leaves none to the next: {code} {kept}", code == 20 and not any(kept))

    del ran[:]
    steps = [line.split('"$HABENCH" ')[1].replace('"$DEVICE"', "cuda").split() for line in open("suites/gpu_day.steps") if "torch_attention.py" in line]
    types_made.clear()
    with mock.patch.object(peers, "decode_cases", lambda program: [program]):
        codes = [say("habench", *words)[0] for words in steps]
    holds(f"steps of a day make kernels first, and then compare: {steps} {codes} {types_made} {ran}",
          codes == [0, 0] and [made[0] for made in types_made] == ["float16", "bfloat16", "float16"] and ran == ["habench"] * 2)

types_made.clear()
code, text = say("habench", "--device", "cuda", "--compile")
holds(f"kernels are made for both types: {types_made}", code == 0 and types_made == [("float16",) * 2, ("bfloat16",) * 2])
with mock.patch.object(Wrapper, "run", side_effect=OSError("no compiler")):
    holds("what cannot be made is said", say("habench", "--device", "cuda", "--compile") == (20, "flashinfer, float16: no compiler\n"))
with mock.patch.dict(sys.modules):
    del sys.modules["flashinfer"]
    if not importlib.util.find_spec("flashinfer"):
        holds("without FlashInfer it is waived", say("habench", "--device", "cuda", "--compile")[0] == 77)

with tempfile.TemporaryDirectory() as away:
    os.chdir(away)
    cases = peers.decode_cases(sys.argv[1])
holds(f"the cases of decode, none twice, short ones first: {cases}",
      len(cases) == 10 and "ctx=32768" in cases[0] and "ctx=131072,batch=16" in cases[-1] and not any("graph=1" in c or "f32" in c for c in cases))
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
