"""mutants.py NVCC HOST.so PTX_FOLDER WHOLE... -- LIBRARY... -- PROGRAM PLUGIN.in: faults planted in the kernels, or in
the host's code of theirs, each of which the interpreter has to find with the case beside it; and in what puts them on
streams, which PROGRAM has to find on the emulated device. A kernel's file is compiled anew with its fault, one entry
where that saves time. Of the host's code HOST.so is linked anew, of WHOLE and as much of each LIBRARY as that needs;
the device of the files that PLUGIN.in names."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases_attend import attend, far, last_of_16  # noqa: E402
from cases_codes import topp  # noqa: E402
from cases_merge import merge  # noqa: E402
from cases_move import last_of_16 as moved, wait  # noqa: E402
from cases_select import rotate, topk  # noqa: E402
from device import Device  # noqa: E402
from fault import Fault  # noqa: E402

FOLDER = 'kernels/cuda'


@dataclass
class Mutant:
    what: str
    file: str  # in which the fault is planted
    right: str  # text that stands there once
    wrong: str
    case: tuple  # function and its arguments, or what PROGRAM is to check
    says: str  # what is found has this in it
    entry: str = ''  # of what attend_mma.cuh has: the kernel that is compiled
    others: tuple = ()  # files whose kernels the case runs besides
    host: bool = False  # the fault is in the host's code

    @property
    def on_streams(self):
        return isinstance(self.case, str)

    @property
    def unit(self):
        """the file that is compiled"""
        return 'mutant.cu' if self.entry else self.file


MMA, MMA_MANY = ('template __global__ void attend_mma<HA_F16, 2, %s>(HA_ARGS(struct ha_cuda_call) a);' % many
                 for many in ('false', 'true'))
ONE, MANY = dict(kv_heads=1, runs=(90,), splits=1), dict(kv_heads=1, q_len=8, runs=(90,), splits=1)
WRONG = 10  # what PROGRAM exits with where a case is wrong
FLAG, SPLITS = (f'lse_merge:case={case},form=natural,dtype=f32' for case in ('flag_before_data', 'device_splits'))
F32 = dict(dtype='f32', group=1, kv_heads=1, runs=(90,), splits=1)
SPLIT = dict(kv_heads=1, runs=(90, 7), splits=2)

MUTANTS = [
    Mutant('V is read where K is', 'attend_ring.cuh', 'run.k + head', 'run.v + head', (attend, ONE), 'o[', MMA),
    Mutant('K is read where V is', 'attend_ring.cuh', 'run.v + head', 'run.k + head', (attend, ONE), 'o[', MMA),
    Mutant('K is waited for one group short', 'attend_mma.cuh', 'ha_copy_wait<2 * S::STAGES - 1>();\n        score',
           'ha_copy_wait<2 * S::STAGES>();\n        score', (attend, ONE), 'before a copy to it has landed', MMA),
    Mutant('V is waited for one group short', 'attend_mma.cuh', 'ha_copy_wait<2 * S::STAGES - 1>();\n        if (__any',
           'ha_copy_wait<2 * S::STAGES>();\n        if (__any', (attend, ONE), 'before a copy to it has landed', MMA),
    Mutant('K of binary32 is waited for one group short', 'attend_fma.cu',
           'ha_copy_wait<2 * S::STAGES - 1>();\n        score', 'ha_copy_wait<2 * S::STAGES>();\n        score',
           (attend, F32), 'before a copy to it has landed'),
    Mutant('V of binary32 is waited for one group short', 'attend_fma.cu',
           'ha_copy_wait<2 * S::STAGES - 1>();\n        weigh', 'ha_copy_wait<2 * S::STAGES>();\n        weigh',
           (attend, F32), 'before a copy to it has landed'),
    Mutant('two elements of the fragment of K are swapped', 'attend_mma.cuh', 'b[2] = { key.x, key.y }',
           'b[2] = { key.y, key.x }', (attend, ONE), 'o[', MMA),
    Mutant('two keys of the fragment of V are swapped', 'attend_mma.cuh', 'low[2] = { v0.x, v1.x }',
           'low[2] = { v1.x, v0.x }', (attend, ONE), 'o[', MMA),
    Mutant('no __syncwarp before the result', 'attend_mma.cuh', '__syncwarp();\n        finish<NV>', 'finish<NV>',
           (attend, MANY), 'with no barrier between', MMA_MANY),
    Mutant('no __syncthreads before the result', 'attend_mma.cuh', '__syncthreads();\n        finish<NV>', 'finish<NV>',
           (attend, ONE), 'with no barrier between', MMA),
    Mutant('offsets of rows of K are of 32 bits', 'attend_ring.cuh', 'ahead[i] * run.k_stride',
           'unsigned(ahead[i] * run.k_stride)', (far, dict(splits=1)), 'in no allocation', MMA),
    Mutant('offsets of rows of V are of 32 bits', 'attend_ring.cuh', 'ahead[i] * run.v_stride',
           'unsigned(ahead[i] * run.v_stride)', (far, dict(splits=1)), 'in no allocation', MMA),
    Mutant('offsets of rows of K are of 32 bits at 128K x 16', 'attend_ring.cuh', 'ahead[i] * run.k_stride',
           '(unsigned long long)int(ahead[i] * run.k_stride)', (last_of_16, dict(splits=1)), 'in no allocation', MMA),
    Mutant('offsets of rows of V are of 32 bits at 128K x 16', 'attend_ring.cuh', 'ahead[i] * run.v_stride',
           '(unsigned long long)int(ahead[i] * run.v_stride)', (last_of_16, dict(splits=1)), 'in no allocation', MMA),
    Mutant('offsets of keys whose weights are wanted are of 32 bits at 128K x 16', 'attend_weights.cu',
           'row * at.run->k_stride', 'int(row * at.run->k_stride)', (last_of_16, dict(splits=1, weights=True)),
           'in no allocation', others=('attend_mma_f16',)),
    Mutant('rows are moved by offsets of 32 bits at 128K x 16', 'move.cu', 'to[i] = to[i] * m.dst_stride_bytes',
           'to[i] = uint32_t(to[i] * m.dst_stride_bytes)', (moved, {}), 'in no allocation'),
    Mutant('rows are gathered by offsets of 32 bits at 128K x 16', 'move.cu', 'from[i] = from[i] * m.src_stride_bytes',
           'from[i] = uint32_t(from[i] * m.src_stride_bytes)', (moved, {}), 'in no allocation'),
    Mutant('rows of states are merged by offsets of 32 bits', 'merge.cu', '(r.t * s.o_token_stride + r.h',
           '(uint32_t(r.t * s.o_token_stride) + r.h', (merge, dict(pad=(5 << 30) + 8)), 'in no allocation'),
    Mutant('counters of digits are not reset', 'topk.cu', 's.count[i] = 0;', 's.count[i] = mask ? s.count[i] : 0;',
           (topk, {}), 'index'),
    Mutant('sums of digits are not reset', 'topp.cu', 's.sum[i] = 0;', 's.sum[i] = found ? s.sum[i] : 0;', (topp, {}),
           'count'),
    Mutant('a flag is not reset', 'measure.cu', 'ha_store_system(a.to, a.value);',
           'if (a.value) ha_store_system(a.to, a.value);', (wait, {}), 'flag that is reset'),
    Mutant('a step too many', 'attend_ring.cuh', 'there[i] = step < end &&', 'there[i] = step <= end &&',
           (attend, dict(kv_heads=1, runs=(128,), splits=2)), 'o[', MMA, ('attend_combine',)),
    Mutant('a split too many is joined', 'attend_combine.cu', 's = threadIdx.x; s < seq.splits; s += THREADS) sh.state',
           's = threadIdx.x; s <= seq.splits; s += THREADS) sh.state', (attend, SPLIT), 'nothing was written to: the workspace',
           others=('attend_mma_f16',)),
    Mutant('a split too many is counted', 'attend_combine.cu', 'for (unsigned s = lane; s < seq.splits; s += LANES) m =',
           'for (unsigned s = lane; s <= seq.splits; s += LANES) m =', (attend, SPLIT), 'shared memory is read that nothing',
           others=('attend_mma_f16',)),
    Mutant('a split too many is launched', 'attend.cu', 'seq[b].splits = unsigned(splits);',
           'seq[b].splits = unsigned(splits) + 1;', (attend, SPLIT), 'nothing was written to: the workspace',
           others=('attend_mma_f16', 'attend_combine'), host=True),
    Mutant('no barrier between states and weights of splits', 'attend_combine.cu',
           'ha_cuda_shift(sh.state[s].x, m);\n    __syncthreads();', 'ha_cuda_shift(sh.state[s].x, m);', (attend, SPLIT),
           'with no barrier between', others=('attend_mma_f16',)),
    Mutant('no __syncwarp before a state is overwritten', 'merge.cu', '__syncwarp(); /* the levels', '; /* the levels',
           (merge, dict(states=3, alias=1)), 'is written that another thread read'),
    Mutant('no __syncwarp before queries are turned in place', 'rotate.cu', '__syncwarp(); /* all', '; /* all', (rotate, {}),
           'is written that another thread read'),
    Mutant('a shuffle that lanes do not reach', 'merge.cu', 'float level = -INFINITY;\n    if (live',
           'if (!live) return;\n    float level = -INFINITY;\n    if (live', (merge, dict(states=3, tokens=3, heads=1)),
           'divergent'),
    Mutant('a graph does not reset a flag', 'flag.c', 'return ha_cuda_flag_write(s->cuda, word, value);',
           'return value ? ha_cuda_flag_write(s->cuda, word, value) : cudaSuccess;', FLAG,
           'that it resets, second launch'),
    Mutant('a graph does not wait for a flag', 'flag.c', 'ha_cuda_flag_wait(s->cuda, flag, at_least,',
           'ha_cuda_flag_wait(s->cuda, flag, 0,', FLAG, 'graph behind a flag, first launch'),
    Mutant('a flag is read early', 'flag.c', 'awaited(flag, at_least)', 'awaited(flag, 0)', FLAG, 'data before flag'),
    Mutant('a merge on another stream', 'launch.c', 'ha_cuda_merge(s->cuda, m)', 'ha_cuda_merge(NULL, m)', SPLITS,
           'runs merged'),
    Mutant('a stream does not wait for another', 'event.c', 'cudaStreamWaitEvent(s->cuda, e->cuda, 0)', 'cudaSuccess',
           SPLITS, 'runs merged'),
    Mutant('a split is left out', 'launch.c', 'HA_CUDA_ENQUEUE(s, &span, ha_cuda_merge(s->cuda, m));',
           'struct ha_merge few = *m; few.states_count--; HA_CUDA_ENQUEUE(s, &span, ha_cuda_merge(s->cuda, &few));',
           SPLITS, 'runs merged'),
    Mutant('a split is merged twice', 'merge.cu', 'a->state[i] = m->states[i];',
           'a->state[i] = m->states[i ? i - 1 : 0];', SPLITS, 'runs merged'),
]


class Workshop:
    """Compiles mutants in a folder that shadows the tree's."""

    def __init__(self, nvcc, host, ptx_folder, whole, libraries, program, plugin, root):
        self.nvcc, self.host, self.ptx_folder, self.root = nvcc, host, ptx_folder, root
        self.whole, self.libraries, self.program, self.plugin = whole, libraries, program, plugin
        os.makedirs(os.path.join(root, FOLDER), exist_ok=True)

    def plant(self, mutant):
        with open(os.path.join(FOLDER, mutant.file), encoding='utf-8') as file:
            text = file.read()
        if text.count(mutant.right) != 1:
            raise ValueError(f'{mutant.what}: {mutant.file} has this {text.count(mutant.right)} times: {mutant.right!r}')
        self.write(mutant.file, text.replace(mutant.right, mutant.wrong))
        if mutant.entry:
            self.write('mutant.cu', f'#include "{FOLDER}/attend_mma.cuh"\nnamespace {{\n{mutant.entry}\n}}\n')

    def write(self, name, text):
        with open(os.path.join(self.root, FOLDER, name), 'w', encoding='utf-8') as file:
            file.write(text)

    def ptx(self, mutant):
        nvcc, arch = self.nvcc.split()
        out = os.path.join(self.root, 'mutant.ptx')
        subprocess.run([nvcc, '-std=c++17', '-O3', '-fmad=false', f'-arch=compute_{arch}', '-ptx', f'-I{self.root}', '-I.',
                        os.path.join(self.root, FOLDER, mutant.unit), '-o', out], check=True)
        return out

    def library(self, mutant):
        """the host's code with the fault, before what it was without"""
        return self.link('host.so', [self.compiled(mutant), *self.whole], self.libraries)

    def compiled(self, mutant):
        unit = os.path.join(self.root, FOLDER, mutant.unit)
        flags = '-O1 -fPIC -fvisibility=hidden -ffp-contract=off -D_DEFAULT_SOURCE -Ikernels/cuda/emulation'.split()
        cxx = '-x c++ -std=c++17 -fno-exceptions -fno-rtti'.split()
        compiler = ['gcc', '-std=c17'] if unit.endswith('.c') else ['g++', *cxx]
        subprocess.run([*compiler, *flags, f'-I{self.root}', '-I.', '-c', unit, '-o', unit + '.o'], check=True)
        return unit + '.o'

    def link(self, name, whole, libraries):
        out = os.path.join(self.root, name)
        subprocess.run(['gcc', '-shared', '-o', out, '-Wl,--no-undefined,--allow-multiple-definition',
                        '-Wl,--whole-archive', *whole, '-Wl,--no-whole-archive', *libraries, '-ldl', '-lm', '-lpthread'],
                       check=True)
        return out

    def check(self, mutant):
        """what PROGRAM says of the device with the fault"""
        self.plant(mutant)
        device = self.link('device.so', [self.compiled(mutant)], self.plugin)
        ran = subprocess.run([self.program, 'check', '-q', mutant.case, '--device', device], capture_output=True,
                             text=True, check=False)
        said = ' '.join((ran.stdout if ran.returncode == WRONG else ran.stderr).split())
        return said if ran.returncode == WRONG else f'nothing: it exits with {ran.returncode}: {said}'

    def device(self, mutant):
        self.plant(mutant)
        others = [os.path.join(self.ptx_folder, f'{name}.ptx') for name in mutant.others]
        if mutant.host:
            return Device(self.library(mutant), others)
        return Device(self.host, [*others, self.ptx(mutant)])


def found(shop, mutant):
    """what the case says"""
    if mutant.on_streams:
        return shop.check(mutant)
    function, arguments = mutant.case
    device = shop.device(mutant)
    try:
        function(device, **arguments)
    except (Fault, AssertionError) as fault:
        return str(fault)
    return 'nothing'


def line_of(text, says):
    """a line of it: its beginning, or that and what is looked for"""
    at = text.index(says)
    return text[:110] if at < 110 else '.. ' + text[at:at + 110]


def main():
    named, host, ptx_folder, *linked = sys.argv[1:]
    at = linked.index('--')
    end = linked.index('--', at + 1)
    program, of_plugin = linked[end + 1:]
    with open(of_plugin, encoding='utf-8') as file:
        plugin = file.read().split()
    with open(named, encoding='utf-8') as file:
        nvcc = file.read().strip()
    mutants = [m for m in MUTANTS if nvcc or m.on_streams]
    if not nvcc:
        print('SKIP: no nvcc here when this was built, so none is planted in what it compiles: scripts/setup.sh --cuda')
    caught = 0
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as root:
            shop = Workshop(nvcc, host, ptx_folder, linked[:at], linked[at + 1:end], program, plugin, root)
            says = found(shop, mutant)
        right = mutant.says in says
        caught += right
        said = f'{mutant.what}: {line_of(says, mutant.says) if right else says}'
        print(said if right else f'FAIL: {said}', flush=True)
    print(f'{caught} passed, {len(mutants) - caught} failed')
    return caught < len(mutants)


if __name__ == '__main__':
    sys.exit(main())
