"""OpenVINO's ScaledDotProductAttention, the query heads of a KV head as if they were its query tokens."""
import numpy as np
import openvino as ov
from openvino import opset13

from cpu.worker import DIM, HEADS, KV_HEADS, Way

NAMES = ["openvino"]
PRODUCTS = ["MatMul", "ScaledDotProductAttention", "Subgraph"]  # what its compiled model may have made of it
TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}


def ways(sets, dtype, threads, asked):
    kind, ctx = TYPES[dtype], sets[0][1].shape[1]
    shapes = [1, KV_HEADS, HEADS // KV_HEADS, DIM], [1, KV_HEADS, ctx, DIM], [1, KV_HEADS, ctx, DIM]
    inputs = [opset13.parameter(list(shape), kind) for shape in shapes]
    node = opset13.scaled_dot_product_attention(*inputs, causal=False)
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": dtype}
    model = ov.Core().compile_model(ov.Model([opset13.convert(node, np.float32)], inputs), "CPU", config)
    request = model.create_infer_request()

    def tensor(x, shape):
        x = x.reshape(shape)
        return ov.Tensor(x, list(shape), kind) if dtype == "bf16" else ov.Tensor(x, shared_memory=True)

    def call(s):
        tensors = [tensor(x, shape) for x, shape in zip(s, shapes)]

        def run():
            for i, x in enumerate(tensors):
                request.set_input_tensor(i, x)
            request.infer()
            return request.get_output_tensor(0).data

        return run

    def computes():
        infos = [op.get_rt_info() for op in model.get_runtime_model().get_ops()]
        products = [info for info in infos if info["layerType"].astype(str) in PRODUCTS]
        return " ".join(sorted({info["primitiveType"].astype(str) for info in products}))

    return {"folded": Way(computes(), [call(s) for s in sets],
                          lambda out: np.array(out, np.float32).reshape(HEADS, DIM))}
