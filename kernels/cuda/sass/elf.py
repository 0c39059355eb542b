"""What is read of ELF files: the cubins of GPUs, and object files of this machine (64 bits, little-endian)."""

import struct
from dataclasses import dataclass

MAX_THREADS = 5  # an attribute of a kernel in its .nv.info: the threads of its __launch_bounds__


@dataclass
class Section:
    name: str
    kind: int
    data: memoryview
    size: int
    link: int
    info: int


class Elf:
    def __init__(self, data):
        self.data = memoryview(data)
        at, = struct.unpack_from('<Q', data, 0x28)
        each, count, names = struct.unpack_from('<3H', data, 0x3a)
        heads = [struct.unpack_from('<2I4Q2I', data, at + i * each) for i in range(count)]
        strings = heads[names][4]
        self.sections = [Section(self.text(strings + name), kind, self.data[offset:offset + size], size, link, info)
                         for name, kind, _, _, offset, size, link, info in heads]
        self.by_name = {s.name: s for s in self.sections}

    def text(self, at):
        return bytes(self.data[at:self.data.obj.index(b'\0', at)]).decode()

    def symbols(self):
        """name, type (2: a function), section, value and size of each"""
        for table in self.sections:
            if table.kind != 2:
                continue
            strings = self.sections[table.link].data
            for name, info, _, section, value, size in struct.iter_unpack('<I2BH2Q', table.data):
                end = bytes(strings[name:name + 4096]).index(b'\0')
                yield bytes(strings[name:name + end]).decode(), info & 15, section, value, size

    def threads(self, kernel):
        """of a block, at most; None: the kernel does not say"""
        info = self.by_name.get('.nv.info.' + kernel)
        at = 0
        while info and at < info.size:
            form, attribute, size = struct.unpack_from('<2BH', info.data, at)
            at += 4
            if form == 4:  # of `size` bytes; the others stand in the place of a size
                if attribute == MAX_THREADS:
                    return struct.unpack_from('<I', info.data, at)[0]
                at += size
        return None

    def kernel_list(self):
        """of an object file's HA_CUDA_KERNELS (struct ha_cuda_kernel): threads and dynamic shared memory by symbol"""
        symbols = list(self.symbols())
        functions = {(section, value): name for name, kind, section, value, _ in symbols if kind == 2}
        found = {}
        for _, _, section, value, size in (s for s in symbols if s[0] == '_ZL11all_kernels'):
            for relocations in (s for s in self.sections if s.kind == 4 and s.info == section):
                for offset, info, addend in struct.iter_unpack('<2Qq', relocations.data):
                    if not value <= offset < value + size:
                        continue
                    _, _, of, base, _ = symbols[info >> 32]
                    threads_and_shared = struct.unpack_from('<I4xQ', self.sections[section].data, offset + 8)
                    found[functions[of, base + addend]] = threads_and_shared
        return found
