"""ggml's ggml_flash_attn_ext, through scripts/peers/ggml: each query head, and folded, those of a KV head as rows."""
import ctypes

import numpy as np

from cpu.worker import DIM, HEADS, KV_HEADS, Way, widen

GROUP = HEADS // KV_HEADS


def library(asked):
    lib = ctypes.CDLL(asked["ggml"])
    lib.peer_version.restype = lib.peer_dot_type.restype = ctypes.c_char_p
    lib.peer_open.restype = ctypes.c_void_p
    lib.peer_open.argtypes = [ctypes.c_char_p] + 6 * [ctypes.c_int] + 4 * [ctypes.c_void_p]
    lib.peer_run.argtypes = [ctypes.c_void_p]
    return lib


def version(asked):
    return f"ggml {library(asked).peer_version().decode()}"


def ways(sets, dtype, threads, asked):
    lib, kind = library(asked), dtype.encode()

    def call(s, heads):
        rows = HEADS // heads
        q, out = np.ascontiguousarray(widen(s[0], dtype)), np.empty((rows, heads, DIM), np.float32)
        arrays = [q, s[1], s[2], out]
        peer = lib.peer_open(kind, heads, KV_HEADS, DIM, rows, s[1].shape[1], threads, *(x.ctypes.data for x in arrays))

        def run():
            if lib.peer_run(peer):
                raise RuntimeError("ggml_graph_compute failed")
            return arrays[3]

        return run

    def way(heads):
        return Way(f"dot {lib.peer_dot_type(kind).decode()}", [call(s, heads) for s in sets],
                   lambda out: out.swapaxes(0, 1).reshape(HEADS, DIM).copy())

    return {"gqa": way(HEADS), "folded": way(KV_HEADS)}
