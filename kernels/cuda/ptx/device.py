"""The CUDA device's launches (kernels/cuda/launch.h) by the interpreter: what is called is the host's code of the .cu files,
compiled for this machine; the kernels that it launches are what nvcc made of the same files."""

import ctypes
import os
import re
import subprocess

import numpy as np

from contracts import Contracts
from fault import Fault
from machine import Machine
from memory import Global
from parse import Module, aligned

FAILED = 719  # cudaErrorLaunchFailure


def key_of(symbol):
    """What nvcc and the C++ compiler of this machine mangle alike: name, template arguments and arguments; without the
    unnamed namespace, which each calls by a name of its own, and the reference by which arguments are passed here."""
    space = re.match(r'_ZN(\d+)(?=_GLOBAL__N_)', symbol)
    if space:
        symbol = symbol[space.end() + int(space[1]):]
    else:
        symbol = re.sub(r'^_ZL?', '', symbol)
    return symbol.replace('RK', '', 1)


class Host:
    """The library: addresses of its functions and kernels by name. nm knows those that it does not export, too."""

    def __init__(self, path):
        self.library = ctypes.CDLL(os.path.abspath(path), os.RTLD_LAZY)  # checks of operands are not here
        symbols = subprocess.run(['nm', path], check=True, capture_output=True, text=True).stdout
        offsets = {name: int(at, 16) for at, kind, name in re.findall(r'^(\w+) (\w) (\S+)$', symbols, re.M)}
        self.launch_hook = ctypes.c_void_p.in_dll(self.library, 'ha_ptx_launch')
        self.base = ctypes.addressof(self.launch_hook) - offsets['ha_ptx_launch']
        self.offsets = offsets
        self.kernels = {self.base + at: key_of(name) for name, at in offsets.items() if name.startswith('_Z')}

    def function(self, name):
        return ctypes.CFUNCTYPE(ctypes.c_uint64)(self.base + self.offsets[name])


class Device:
    """One for all cases: `begin` gives each fresh memory."""

    LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_size_t)

    def __init__(self, host, ptx_files, contracts=None):
        self.host = Host(host)
        self.api = contracts or Contracts('kernels/cuda/launch.h', ['-Ikernels/cuda/emulation'])
        self.entries = {}
        self.add_ptx(ptx_files)
        self.met = {}  # kernels that were launched: instructions
        self.machine = Machine(None)
        self.begin()
        self.hook = self.LAUNCH(self.launched)
        self.host.launch_hook.value = ctypes.cast(self.hook, ctypes.c_void_p).value

    def add_ptx(self, files):
        """kernels of these files, in place of those of the same name"""
        for file in files:
            with open(file, encoding='utf-8') as text:
                module = Module(text.read())
            for entry in module.entries:
                self.entries[key_of(entry)] = module, entry

    def begin(self, backward=False):
        self.memory = self.machine.memory = Global()
        self.machine.backward = backward
        self.fault = None

    # ---- memory

    def array(self, values, name, **place):
        """address of a copy of an array"""
        return self.memory.allocate(np.asarray(values), name, **place)

    def empty(self, size, name, **place):
        """of `size` bytes that hold nothing"""
        return self.memory.allocate(int(size), name, **place)

    def fetch(self, address, shape, kind):
        """an array from memory, and whether each element was written"""
        kind = np.dtype(kind)
        data, written = self.memory.fetch(address, int(np.prod(shape)) * kind.itemsize)
        return data.view(kind).reshape(shape), written.reshape(-1, kind.itemsize).all(axis=1).reshape(shape)

    def result(self, address, shape, kind):
        """all of which has to be written"""
        values, written = self.fetch(address, shape, kind)
        if not written.all():
            raise Fault(f'{(~written).sum()} of {written.size} elements of a result are not written')
        return values

    # ---- calls

    def call(self, name, *args):
        """A function of launch.h: numbers as they are, floats as float, structs by address. It has to succeed."""
        self.fault = None
        given = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else ctypes.c_float(a) if isinstance(a, float)
                 else ctypes.c_uint64(a) for a in args]
        result = self.host.function(name)(*given)
        if self.fault:
            raise self.fault
        return result

    def run(self, name, *args):
        error = self.call(name, *args) & 0xffffffff
        if error:
            raise Fault(f'{name} gives error {error}')

    def one(self, function, struct, **fields):
        """a function that takes a stream and a struct"""
        self.run(function, 0, self.api.make(struct, **fields))

    def batch(self, function, struct, seqs, seq=None, **fields):
        """one that takes several sequences, of fields each"""
        seq = seq or struct + '_seq'
        array = (self.api.structs[seq] * len(seqs))(*(self.api.make(seq, **s) for s in seqs))
        self.one(function, struct, batch=len(seqs), seqs=ctypes.addressof(array), **fields)

    def launched(self, kernel, args, size, grid, block, shared_bytes):
        try:
            key = self.host.kernels[kernel]
            if key not in self.entries:
                raise Fault(f'a kernel that is in none of the files of PTX: {key}')
            module, entry = self.entries[key]
            text = module.kernel(entry)
            at = aligned(ctypes.sizeof(ctypes.c_void_p), text.param_align)
            if aligned(at + text.param_bytes, text.param_align) != size:
                raise Fault(f'{entry}: {text.param_bytes} bytes of arguments in PTX, and {size - at} here')
            before = self.machine.instructions
            params = ctypes.string_at(args + at, text.param_bytes)
            self.machine.launch(text, tuple(grid[:3]), tuple(block[:3]), params, shared_bytes)
            self.met[key] = self.met.get(key, 0) + self.machine.instructions - before
            return 0
        except BaseException as fault:  # noqa: B902, it must not pass through C
            self.fault = fault
            return FAILED
