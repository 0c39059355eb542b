"""Launches of the emulated device (record.c), run again by the interpreter: what a kernel reads and writes, what it may read
and write, and what the emulation, which the device suite judges, made of it."""

import glob
import os
import re
import subprocess

import numpy as np

from cases import CASES
from fault import Fault
from machine import Machine
from memory import EMPTY, Global
from parse import Module, aligned

READ, WRITTEN, WORKSPACE = range(3)
NOTHING = 0xfb  # a byte of a workspace that nothing was written to
# Kernels that take a logarithm, which is the C library's in the emulation, or sum on tensor cores
CLOSE = ('attend', 'merge', 'features', 'softmax')
LIMIT = 4e-6


def key_of(symbol):
    """What nvcc and the C++ compiler of this machine mangle alike: name, template arguments and arguments; without the
    unnamed namespace, which each calls by a name of its own, and the reference by which arguments are passed here."""
    space = re.match(r'_ZN(\d+)(?=_GLOBAL__N_)', symbol)
    if space:
        symbol = symbol[space.end() + int(space[1]):]
    else:
        symbol = re.sub(r'^_ZL?', '', symbol)
    return symbol.replace('RK', '', 1)


def name_of(key):
    length = re.match(r'\d+', key)
    return key[length.end():length.end() + int(length[0])]


def symbols_of(library):
    """kernels by their place in it"""
    text = subprocess.run(['nm', library], check=True, capture_output=True, text=True).stdout
    return {int(at, 16): key_of(name) for at, name in re.findall(r'^(\w+) \w (_Z\S+)$', text, re.M)}


class Record:
    """A launch, from a file. ranges: (address, bytes before, bytes after, kind), apart from each other."""

    def __init__(self, path, kernels):
        with open(path, 'rb') as file:
            self.key = kernels[int(file.readline())]
            *shape, self.shared_bytes, args_bytes, count = map(int, file.readline().split())
            self.grid, self.block = tuple(shape[:3]), tuple(shape[3:])
            places = [tuple(map(int, file.readline().split())) for _ in range(count)]
            self.args = file.read(args_bytes)
            before, after = ([whole(file.read(kept), size) for _, size, kept, _ in places] for _ in range(2))
        self.ranges = joined([(at, b, a, kind) for (at, *_, kind), b, a in zip(places, before, after)])


def whole(kept, size):
    return np.frombuffer(kept.ljust(size, bytes([NOTHING])), np.uint8)


def joined(ranges):
    """Those that overlap become one; what one of them reads is not unwritten."""
    apart = []
    for at, before, after, kind in sorted(ranges, key=lambda r: (r[0], -len(r[1]))):
        if not apart or at >= apart[-1][0] + len(apart[-1][1]):
            apart.append((at, before, after, np.full(len(before), kind, np.uint8)))
            continue
        start, old_before, old_after, kinds = apart[-1]
        inside = min(start + len(old_before) - at, len(before))
        kinds[at - start:at - start + inside] *= kind != READ
        kinds = np.concatenate([kinds, np.full(len(before) - inside, kind, np.uint8)])
        apart[-1] = start, np.concatenate([old_before, before[inside:]]), np.concatenate([old_after, after[inside:]]), kinds
    return apart


class Device:
    """Kernels of files of PTX, and a machine that runs them."""

    def __init__(self, files):
        self.entries, self.machine = {}, Machine(None)
        for file in files:
            self.add(file)

    def add(self, file):
        """its kernels, in place of those of the same name"""
        with open(file, encoding='utf-8') as text:
            module = Module(text.read())
        for entry in module.entries:
            self.entries[key_of(entry)] = module, entry

    def run(self, record, backward=False):
        """Faults are what it may not do, and what it does otherwise."""
        if record.key not in self.entries:
            raise Fault(f'a kernel that is in none of the files of PTX: {record.key}')
        module, entry = self.entries[record.key]
        text = module.kernel(entry)
        at = aligned(8, text.param_align)  # what is launched here begins with the kernel's address
        if aligned(at + text.param_bytes, text.param_align) != len(record.args):
            raise Fault(f'{entry}: {text.param_bytes} bytes of arguments in PTX, and {len(record.args) - at} here')
        memory = self.machine.memory = Global()
        self.machine.backward = backward
        for start, before, _, kinds in record.ranges:
            memory.allocate(before, f'{len(before)} bytes', at=start)
            empty(memory, start, before, kinds)
        self.machine.launch(text, record.grid, record.block, record.args[at:at + text.param_bytes], record.shared_bytes)
        for start, _, after, _ in record.ranges:
            got, _ = memory.fetch(start, len(after))
            judge(name_of(record.key), start, got, after)


def empty(memory, start, before, kinds):
    """what nothing was written to"""
    place = memory.offsets[memory.starts.index(start)]
    lead = -start % 4
    words = before[lead:lead + (len(before) - lead) // 4 * 4].reshape(-1, 4)
    empty_words = np.zeros(len(before), bool)
    empty_words[lead:lead + words.size] = (words == NOTHING).all(axis=1).repeat(4)
    unwritten = (kinds == WRITTEN) | (kinds == WORKSPACE) & empty_words
    memory.bytes.state[place:place + len(before)][unwritten] = EMPTY


def judge(name, start, got, want):
    """Every byte is the emulation's; or a float close to it, of kernels that may differ."""
    differ = np.flatnonzero(got != want)
    if not len(differ):
        return
    if name.startswith('accuracy'):
        if (errors := (got.view(np.float64) > 2.0 ** -27) & (got.view(np.float64) < 2.0 ** -22)).all():
            return
        raise Fault(f'errors of {got.view(np.float64)[~errors]}')
    first = (start + int(differ[0])) // 4 * 4 - start
    if name.startswith(CLOSE):
        lead = -start % 4
        whole = lead + (len(got) - lead) // 4 * 4
        wrong = ~close(got[lead:whole], want[lead:whole], name)
        if not wrong.any() and (got[:lead] == want[:lead]).all() and (got[whole:] == want[whole:]).all():
            return
        first = lead + 4 * int(np.argmax(wrong)) if wrong.any() else first
    word, right = (x[max(first, 0):first + 4].tobytes() for x in (got, want))
    raise Fault(f'{len(differ)} of {len(got)} bytes are not those of the emulation; the first at {first}: '
                f'{word.hex()}, wanted {right.hex()}, as numbers {as_float(word)}, {as_float(right)}')


def as_float(word):
    return np.frombuffer(word.ljust(4, b'\0'), np.float32)[0]


def close(got, want, name):
    """words: equal, or floats as near as that; of a merge halves, too, which the other rounding may part"""
    with np.errstate(all='ignore'):
        a, b = (x.copy().view(np.float32).astype(np.float64) for x in (got, want))
        floats = (np.abs(a) > 1e-30) & (np.abs(b) > 1e-30) | (np.abs(a - b) < 1e-9) & (a * b == 0)
        near = floats & (np.abs(a - b) <= LIMIT * (1 + np.abs(b))) | np.isnan(a) & np.isnan(b)
        same = (got.view(np.uint32) == want.view(np.uint32)) | near
        if name.startswith('merge'):
            bits = [x.copy().view(np.uint16).astype(np.int32) for x in (got, want)]
            same |= (np.abs(bits[0] - bits[1]) <= 1).reshape(-1, 2).all(axis=1)
    return same


def record(folder, program, plugin, cases=CASES):
    """what the device of record.c launches for these, in files of the folder"""
    environment = {**os.environ, 'HA_PTX_RECORDS': os.path.abspath(folder), 'HA_EMULATED_MEMOPS': '0'}
    ran = subprocess.run([program, 'check', '-q', *cases, '--device', plugin], env=environment, capture_output=True, text=True,
                         check=False)
    if ran.returncode and cases is CASES:
        raise Fault(f'the cases fail: {ran.stdout}{ran.stderr}')


def read_all(folder, library):
    """of each kernel the smallest launches of all processes"""
    kernels, kept = symbols_of(library), {}
    for path in sorted(glob.glob(os.path.join(folder, '*'))):
        r = Record(path, kernels)
        kept.setdefault(r.key, []).append(r)
    most = 2 * int(os.environ.get('HA_PTX_EACH', 2))
    return [r for each in kept.values() for r in sorted(each, key=lambda r: np.prod(r.grid) * np.prod(r.block))[:most]]
