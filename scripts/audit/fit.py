"""The file that a case names by fit=: datasets/README.md, "Fits"."""

import json
import os
import re
import struct

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def fit_of(dump):
    """Its tensors by name; {} where the case names none, None where it is not here."""
    name = re.search(r"[:,]fit=([^,]*)", dump.word("case"))
    if not name:
        return {}
    for path in (name[1], os.path.join(ROOT, "datasets", "fits", name[1] + ".safetensors")):
        if os.path.isfile(path):
            return read_fit(path)
    return None


def read_fit(path):
    """Tensors of a safetensors file in binary32."""
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack_from("<Q", blob)
    header, data = json.loads(blob[8:8 + length]), memoryview(blob)[8 + length:]
    types = {"F32": "<f4", "F16": "<f2"}
    return {name: np.frombuffer(data[of["data_offsets"][0]:of["data_offsets"][1]], types[of["dtype"]]).astype("<f4").reshape(of["shape"])
            for name, of in header.items() if name != "__metadata__" and of["dtype"] in types}
