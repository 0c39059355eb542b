"""PyTorch's scaled_dot_product_attention: with enable_gqa, and folded: the query heads of a KV head as if they were its
query tokens, so that K and V are not expanded."""
import torch
import torch.nn.functional as F

from cpu.worker import DIM, HEADS, KV_HEADS, Way

NAMES = ["torch"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def tensor(x, dtype):
    return torch.from_numpy(x).view(DTYPES[dtype])


def ways(sets, dtype, threads, asked):
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    sets = [tuple(tensor(x, dtype).unsqueeze(0) for x in s) for s in sets]

    def call(q, k, v, **more):
        return lambda: F.scaled_dot_product_attention(q, k, v, **more)

    def way(calls):
        return Way(str(calls[0]().dtype).split(".")[-1], calls, lambda out: out.float().reshape(HEADS, DIM).numpy())

    return {"folded": way([call(q.reshape(1, KV_HEADS, HEADS // KV_HEADS, DIM), k, v) for q, k, v in sets]),
            "gqa": way([call(q.reshape(1, HEADS, 1, DIM), k, v, enable_gqa=True) for q, k, v in sets])}
