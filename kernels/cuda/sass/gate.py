#!/usr/bin/env python3
"""What ptxas made of the kernels of the CUDA device, against a table in the tree: registers, stack, shared memory,
blocks that a multiprocessor holds, and the bytes that they keep asked for. A difference fails; with --write it becomes
the table, and shows in review. Whatever the table says: a stack wants a reason, and a loop whose keys and values come
by asynchronous copies waits for the oldest of them alone."""

import argparse
import csv
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from multiprocessing import Pool

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sass  # noqa: E402
from elf import Elf  # noqa: E402

HERE = os.path.dirname(os.path.relpath(os.path.abspath(__file__)))
COMMAND = f'HABENCH_CUDA_ARCH="80 90 100" ninja cuda; {HERE}/gate.py --write'
PAGE = 'docs/cuda.md'
ARCHS = (80, 90, 100)  # of the table; code for others is held to the rules alone
KEY = ('file', 'kernel', 'arch')
FACTS = ('threads', 'registers', 'stack', 'local', 'looped', 'shared', 'blocks', 'in_flight', 'by')
COLUMNS = (*KEY, *FACTS, 'reason')

# of a multiprocessor: threads, blocks and bytes of shared memory, of which each block takes 1024 besides its own
LIMITS = {80: (2048, 32, 164 << 10), 86: (1536, 16, 100 << 10), 89: (1536, 24, 100 << 10), 90: (2048, 32, 228 << 10),
          100: (2048, 32, 228 << 10)}
REGISTERS, QUARTERS, RESERVED = 65536, 4, 1024


def blocks_held(arch, threads, registers, shared):
    """by a multiprocessor at once, as the programming guide says; None: not known"""
    if arch not in LIMITS or not threads:
        return None
    most_threads, most_blocks, memory = LIMITS[arch]
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    by_registers = REGISTERS // QUARTERS // of_warp * QUARTERS // warps
    by_memory = memory // (-(-shared // 128) * 128 + RESERVED)
    return min(most_threads // (32 * warps), most_blocks, by_registers, by_memory)


def tool(name, args, **how):
    done = subprocess.run([name, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    if done.returncode:
        raise RuntimeError(f'{os.path.basename(name)} {" ".join(args)}: {done.stderr.strip() or done.returncode}')
    return done.stdout


def read_cubin(tools, path):
    """of a cubin: compute capability, compiler, the file itself, and instructions by kernel"""
    with open(path, 'rb') as f:
        elf = Elf(f.read())
    head, functions = json.loads(tool(f'{tools}/nvdisasm', ['-json', '-ndf', path]))
    arch = 10 * head['SM']['version']['major'] + head['SM']['version']['minor']
    compiler = re.search(r'V([\d.]+)', head['.note.nv.tkinfo']['tki_toolVersion'])[1]
    # what has no section of its own is a division that several places of a kernel share
    return arch, compiler, elf, {f['function-name']: sass.decode(f['sass-instructions'], elf.by_name[text].data)
                                 for f in functions for text in ['.text.' + f['function-name']] if text in elf.by_name}


def facts(tools, path, host):
    """rows of a cubin's kernels and the faults found in each, and the compiler; host: threads of a block and dynamic
    shared memory by kernel, where the host says them"""
    arch, compiler, elf, kernels = read_cubin(tools, path)
    used = re.findall(r'Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)',
                      tool(f'{tools}/cuobjdump', ['-res-usage', path]))
    used = {name: map(int, numbers) for name, *numbers in used}
    rows = []
    for name, code in kernels.items():
        registers, stack, shared = used[name]
        threads, dynamic = host.get(name, (0, 0))
        threads = threads or elf.threads(name)
        if '.nv.shared.reserved.0' in elf.by_name and '.nv.shared.' + name in elf.by_name:
            shared -= RESERVED
        blocks = blocks_held(arch, threads, registers, shared + dynamic)
        local, looped = sass.local_accesses(code)
        of_warp, by, wrong = sass.in_flight(code)
        rows.append((dict(kernel=name, arch=arch, threads=threads, registers=registers, stack=stack, local=local,
                          looped=looped, shared=shared + dynamic, blocks=blocks,
                          in_flight=blocks and of_warp * -(-threads // 32) * blocks, by=by), wrong))
    return rows, compiler


@contextmanager
def cubins(tools, path):
    """of an object file, in a folder that goes"""
    with tempfile.TemporaryDirectory() as folder:
        tool(f'{os.path.abspath(tools)}/cuobjdump', ['-xelf', 'all', os.path.abspath(path)], cwd=folder)
        yield sorted(glob.glob(f'{folder}/*.cubin'))


def read_object(job):
    tools, path = job
    with open(path, 'rb') as f:
        elf = Elf(f.read())
    rows, compilers = [], set()
    if any(s.name.startswith('.nv_fatbin') for s in elf.sections):
        # a static function's name has an L that the GPU's has not
        host = {re.sub(r'L(?=\d+\D)', '', name, count=1): x for name, x in elf.kernel_list().items()}
        with cubins(tools, path) as files:
            for more, compiler in (facts(tools, cubin, host) for cubin in files):
                compilers.add(compiler)
                rows += [(dict(row, file=os.path.basename(path).removesuffix('.o')), wrong) for row, wrong in more]
    return rows, compilers


def plain(names):
    """kernels as they are written: name<arguments>"""
    with open('harness/api/base.h', encoding='utf-8') as f:
        dtypes = re.search('enum ha_dtype {.*', f.read())[0]
    dtypes = {number: name.lower() for name, number in re.findall(r'HA_(\w+) = (\d)', dtypes)}

    def shorten(name):
        name = name.replace('(anonymous namespace)::', '').removeprefix('void ')
        name = re.sub(r'\(ha_dtype\)(\d)', lambda m: dtypes[m[1]], name)
        return re.sub(r'\b(\d+)u\b', r'\1', re.sub(r'\([^()]*\)$', '', name))

    return dict(zip(names, map(shorten, tool('c++filt', names).splitlines())))


def read_all(tools, objects):
    """rows of all kernels in the order of their keys, as text; faults by key; the compilers"""
    with Pool(os.cpu_count()) as pool:
        parts = pool.map(read_object, [(tools, o) for o in objects], chunksize=1)
    names = plain(sorted({row['kernel'] for rows, _ in parts for row, _ in rows}))
    found = {}
    for rows, _ in parts:
        for row, wrong in rows:
            row = {k: '' if v is None else str(v) for k, v in dict(row, kernel=names[row['kernel']]).items()}
            found[key_of(row)] = row, wrong
    return dict(sorted(found.items())), sorted({c for _, compilers in parts for c in compilers})


def key_of(row):
    return row['file'], row['kernel'], int(row['arch'])


def read_table(path):
    """the compiler that it is of, and its rows by key"""
    with open(path, encoding='utf-8', newline='') as f:
        compiler = re.search(r'nvcc ([\d.]+)', f.readline())[1]
        return compiler, {key_of(row): row for row in csv.DictReader(f)}


def write_table(path, compiler, rows, old):
    with open(path, 'w', encoding='utf-8', newline='') as f:
        f.write(f'# by nvcc {compiler}: {COMMAND}\n')
        out = csv.DictWriter(f, COLUMNS, lineterminator='\n')
        out.writeheader()
        for key, (row, _) in rows.items():
            if key[2] in ARCHS:
                out.writerow(dict(row, reason=old.get(key, {}).get('reason', '') if int(row['stack']) else ''))


def of_block(row):
    """bytes that it keeps asked for"""
    return int(row['in_flight']) // int(row['blocks']) if row['blocks'] else 0


def rules(key, row, wrong, table, same):
    """what holds with any compiler: lines that say what does not. Outside loops another one may spill what it likes."""
    said = list(wrong)
    # code for a GPU that the table has not may do what is allowed of any that it has
    like = [table[key]] if key in table else [r for k, r in table.items() if k[:2] == key[:2] and key[2] not in ARCHS]
    allowed = max((int(r['stack']) for r in like if r['reason']), default=0)
    if int(row['stack']) > allowed and (same or int(row['looped'])):
        said.append(f'{row["stack"]} bytes of stack, and {row["local"]} instructions that use local memory, '
                    f'{row["looped"]} of them in loops: {allowed} are allowed, by a reason in the table')
    for r in like:
        if r['by'] == 'copies' and row['by'] != 'copies':
            said.append('keys and values come by loads to registers, and no longer by asynchronous copies')
        elif r['by'] == 'copies' and of_block(row) < of_block(r):
            said.append(f'a block keeps {of_block(row)} bytes asked for, {of_block(r)} in the table')
    return said


def compare(rows, table, same):
    """lines that say what is not as the table and the rules want it; same: as the compiler that the table is of"""
    said = []
    archs = {arch for _, _, arch in rows}
    for key, (row, wrong) in rows.items():
        lines = rules(key, row, wrong, table, same)
        if key[2] in ARCHS and key not in table:
            lines.append('not in the table')
        elif same and key in table:
            lines += [f'{fact} {row[fact] or "-"}, the table has {table[key][fact] or "-"}' for fact in FACTS
                      if row[fact] != table[key][fact]]
        said += [(key, line) for line in lines]
    said += [(key, 'in the table, and not in the plugin') for key in table if key[2] in archs and key not in rows]
    return [f'{file}: {kernel} sm_{arch}: {line}' for (file, kernel, arch), line in said]


def page_differs(page, table):
    """lines that say where the rows of a page, as model.py prints them, are not those of the table"""
    said = []
    for kernel, *cells in re.findall(r'^\| `(\w+<.*>)` \| (.*?) \| (.*?) \| (.*?) \|', page, re.M):
        rows = [r for (_, name, _), r in table.items() if name == kernel]
        facts_ = [(r['registers'], r['blocks'], str(int(r['in_flight']) >> 10)) for r in rows]
        want = [' / '.join(x) for x in zip(*facts_)]
        if cells != want:
            said.append(f'{PAGE}: {kernel}: has {cells}, the table {want or "no such kernel"}')
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--plugin', default='build/plugin/plugin.a', help='archive of the objects beside it')
    parser.add_argument('--tools', default='build/sass/tools', help='names the folder of cuobjdump and nvdisasm')
    parser.add_argument('--table', default=f'{HERE}/table.csv')
    parser.add_argument('--write', action='store_true', help='what is found becomes the table')
    args = parser.parse_args()
    with open(args.tools, encoding='utf-8') as f:
        tools = f.read().strip()
    if not tools:
        print('SKIP: no cuobjdump and nvdisasm here, so no machine code is read: scripts/setup.sh --cuda gets them')
        print('0 passed, 0 failed')
        return 0

    members = tool('ar', ['t', args.plugin]).split()
    rows, compilers = read_all(tools, [f'{os.path.dirname(args.plugin)}/{o}' for o in members if o.endswith('.cu.o')])
    archs = sorted({arch for _, _, arch in rows})
    if not rows or len(compilers) != 1:
        print(f'{len(rows)} kernels, by {len(compilers)} compilers: no plugin of one')
        return 1
    of, table = read_table(args.table) if os.path.exists(args.table) else (compilers[0], {})
    if args.write:
        if not set(ARCHS) <= set(archs):
            print(f'the table has code for {ARCHS}, the plugin for {tuple(archs)}: {COMMAND}')
            return 1
        write_table(args.table, compilers[0], rows, table)
        of, table = read_table(args.table)
    same = compilers[0] == of
    lines = compare(rows, table, same)
    if not same:
        print(f'nvcc {compilers[0]} made this, and {of} what the table has: held to the rules alone')
    others = [f'sm_{arch}' for arch in archs if arch not in ARCHS]
    if others:
        print(f'{", ".join(others)}: not in the table, held to the rules alone')
    with open(PAGE, encoding='utf-8') as f:
        lines += page_differs(f.read(), table)
    for line in lines:
        print(line)
    if lines and same:
        print(f'if that is meant: {COMMAND}')
    wrong = {tuple(line.split(': ')[:2]) for line in lines}
    print(f'{len(rows) - len(wrong)} passed, {len(wrong)} failed')
    return 1 if lines else 0


if __name__ == '__main__':
    sys.exit(main())
