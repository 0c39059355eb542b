"""OpenVINO's two kinds of attention. `folded`: ScaledDotProductAttention, the query heads of a KV head as if they were its
query tokens. `paged`: PagedAttention, which its servers run: a token behind the others in blocks of 32 keys, in place."""
import math

import numpy as np
import openvino as ov
from openvino import opset13

from cpu.worker import DIM, HEADS, KV_HEADS, Way

NAMES = ["openvino"]
PRODUCTS = ["MatMul", "PagedAttention", "ScaledDotProductAttention", "Subgraph"]  # what a compiled model may have made of it
TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}
BLOCK = 32  # keys of a block of PagedAttention on CPUs


def compiled(result, inputs, dtype, threads):
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": dtype, "KV_CACHE_PRECISION": dtype}
    return ov.Core().compile_model(ov.Model([opset13.convert(result, np.float32)], inputs), "CPU", config)


def computes(model):
    infos = [op.get_rt_info() for op in model.get_runtime_model().get_ops()]
    products = [info for info in infos if info["layerType"].astype(str) in PRODUCTS]
    return " ".join(sorted({info["primitiveType"].astype(str) for info in products}))


def tensor(x, shape, dtype):
    x = np.ascontiguousarray(x).reshape(shape)
    return ov.Tensor(x, list(shape), TYPES[dtype]) if dtype == "bf16" else ov.Tensor(x, shared_memory=True)


def way(model, all_tensors):
    request = model.create_infer_request()

    def call(tensors):
        def run():
            for i, x in enumerate(tensors):
                request.set_input_tensor(i, x)
            request.infer()
            return request.get_output_tensor(0).data

        return run

    return Way(computes(model), [call(tensors) for tensors in all_tensors],
               lambda out: np.array(out, np.float32).reshape(HEADS, DIM))


def folded(sets, dtype, threads):
    ctx = sets[0][1].shape[1]
    shapes = [1, KV_HEADS, HEADS // KV_HEADS, DIM], [1, KV_HEADS, ctx, DIM], [1, KV_HEADS, ctx, DIM]
    inputs = [opset13.parameter(list(shape), TYPES[dtype]) for shape in shapes]
    node = opset13.scaled_dot_product_attention(*inputs, causal=False)
    return way(compiled(node, inputs, dtype, threads),
               [[tensor(x, shape, dtype) for x, shape in zip(s, shapes)] for s in sets])


def paged_model(dtype, threads):
    """Inputs: query, key, value, their caches, past_lens, subsequence_begins, block_indices and where those of a sequence
    begin, max_context_len. The rest, of OpenVINO 2026.4, is off: windows, ALiBi, rotation, choices of keys, sinks."""
    from openvino._pyopenvino.op import _PagedAttentionExtension

    def none(*shape, kind=np.int32):
        return opset13.constant(np.zeros(shape, kind))

    tokens = [opset13.parameter([-1, heads * DIM], TYPES[dtype]) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    caches = [opset13.parameter([-1, KV_HEADS, -1, -1], ov.Type.dynamic) for _ in range(2)]  # KV_CACHE_PRECISION's
    lists = [opset13.parameter([-1], ov.Type.i32) for _ in range(4)]
    longest = opset13.parameter([], ov.Type.i32)
    scale = opset13.constant(np.array(1 / math.sqrt(DIM), np.float32))
    inputs = [*tokens, *caches, *lists, scale, none(), none(0, kind=np.float32), longest,
              none(0),  # score_aggregation_window
              none(0), none(0, 0), none(0, DIM, kind=np.float32),  # rotation: blocks, deltas, table
              none(0, kind=np.float32), opset13.constant(np.array(64, np.int32)), opset13.constant(np.array(16, np.int32)),
              none(0, 0, 0, 0, kind=np.float32),  # behind xattention's threshold, block and stride: sinks
              none(), none(0), none(0), none(0),  # adaptive_rkv
              none(0), none(0, kind=np.uint8), none(0)]  # token types, qq_bias and its begins
    node = _PagedAttentionExtension([x.output(0) for x in inputs])
    for name, value in zip(("num_k_heads", "k_head_size", "num_v_heads", "v_head_size"), (KV_HEADS, DIM) * 2):
        node.get_rt_info()[name] = value
    return compiled(node.output(0), [*tokens, *caches, *lists, longest], dtype, threads)


def blocks(x):
    """[KV heads][keys][dim] as [blocks][KV heads][BLOCK][dim]"""
    count = -(-x.shape[1] // BLOCK)
    out = np.zeros((count, KV_HEADS, BLOCK, DIM), x.dtype)
    whole = x.shape[1] // BLOCK * BLOCK
    out[:whole // BLOCK] = x[:, :whole].reshape(KV_HEADS, -1, BLOCK, DIM).swapaxes(0, 1)
    out[whole // BLOCK:, :, :x.shape[1] - whole] = x[None, :, whole:]
    return out


def paged(sets, dtype, threads):
    """A Way, or why there is none"""
    try:
        model = paged_model(dtype, threads)
    except (ImportError, RuntimeError) as problem:  # other versions have other inputs
        return f"PagedAttention cannot be built: {' '.join(str(problem).split())[-120:]}"
    kind = model.inputs[3].element_type
    if kind != TYPES[dtype]:
        return f"no cache of {dtype} on this CPU, but of {kind.get_type_name()}"
    ctx = sets[0][1].shape[1]
    count = -(-ctx // BLOCK)
    lists = [ov.Tensor(np.array(x, np.int32)) for x in ([ctx - 1], [0, 1], range(count), [0, count], ctx)]

    def tensors(q, k, v):
        tokens = [tensor(x, (1, x.size), dtype) for x in (q, k[:, -1], v[:, -1])]
        caches = [blocks(x) for x in (k, v)]
        return [*tokens, *(tensor(x, x.shape, dtype) for x in caches), *lists]

    return way(model, [tensors(*s) for s in sets])


def ways(sets, dtype, threads, asked):
    return {"folded": folded(sets, dtype, threads), "paged": paged(sets, dtype, threads)}
