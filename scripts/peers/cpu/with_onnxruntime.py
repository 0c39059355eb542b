"""ONNX Runtime's com.microsoft GroupQueryAttention: a token behind those that lie in its KV cache, in place."""
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from cpu.worker import DIM, HEADS, KV_HEADS, Way

NAMES = ["onnxruntime"]
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}  # its CPU kernels know no bf16


def ways(sets, dtype, threads, asked):
    if dtype not in TYPES:
        return {}
    kind, ctx = TYPES[dtype], sets[0][1].shape[1]
    cache, token = [1, KV_HEADS, ctx, DIM], [1, 1, KV_HEADS * DIM]
    value = helper.make_tensor_value_info
    inputs = [value("q", kind, [1, 1, HEADS * DIM]), value("k", kind, token), value("v", kind, token),
              value("past_k", kind, cache), value("past_v", kind, cache), value("past", TensorProto.INT32, [1]),
              value("total", TensorProto.INT32, [])]
    outputs = [value("o", kind, [1, 1, HEADS * DIM]), value("all_k", kind, cache), value("all_v", kind, cache)]
    node = helper.make_node("GroupQueryAttention", [x.name for x in inputs], [x.name for x in outputs],
                            domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV_HEADS)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def call(s):
        q, k, v = (x[None] for x in s)
        last = [np.ascontiguousarray(x[:, :, -1].reshape(token)) for x in (k, v)]
        of = onnxruntime.OrtValue.ortvalue_from_numpy
        arrays = [q.reshape(1, 1, HEADS * DIM), *last, k, v, np.array([ctx - 1], np.int32), np.array(ctx, np.int32)]
        values = [of(x) for x in arrays]
        out = of(np.zeros_like(arrays[0]))
        binding = session.io_binding()
        for x, to in zip(inputs, values):
            binding.bind_ortvalue_input(x.name, to)
        for x, to in zip(outputs, [out, values[3], values[4]]):
            binding.bind_ortvalue_output(x.name, to)

        def run():
            session.run_with_iobinding(binding)
            return out

        return run

    return {"gqa": Way(f"{dtype} in and out", [call(s) for s in sets],
                       lambda out: out.numpy().astype(np.float32).reshape(HEADS, DIM))}
