"""mutants.py NVCC PTX_FOLDER PROGRAM RECORDED.so.in PLUGIN.so.in: faults planted in the kernels, each of which the interpreter
has to find in launches of the right ones (run.py); in the host's code of theirs, which it has to find in the launches that
come of it; and in what puts them on streams, which PROGRAM has to find on the emulated device. A kernel's file is compiled
anew with its fault, one entry where that saves time. The .in files name what the devices are linked of."""

import glob
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fault import Fault  # noqa: E402
from records import Device, name_of, read_all, record  # noqa: E402

FOLDER = 'kernels/cuda'


@dataclass
class Mutant:
    what: str
    file: str  # in which the fault is planted
    right: str  # text that stands there once
    wrong: str
    case: str  # the kernel whose launches find it; or what PROGRAM is to check
    says: str  # what is found has this in it
    entry: str = ''  # of what attend_mma.cuh has: the kernel that is compiled
    host: bool = False  # the fault is in the host's code, and the kernels that `case` launches find it

    @property
    def unit(self):
        """the file that is compiled"""
        return 'mutant.cu' if self.entry else self.file


MMA, MMA_MANY = ('template __global__ void attend_mma<HA_F16, 2, %s>(HA_ARGS(struct ha_cuda_call) a);' % many
                 for many in ('false', 'true'))
WRONG = 10  # what PROGRAM exits with where a case is wrong
FLAG, SPLITS = (f'lse_merge:case={case},form=natural,dtype=f32' for case in ('flag_before_data', 'device_splits'))
SPLIT = 'device:op=attend,cases=one,dtype=f16,head_dim=64,kv_heads=1,group=2,batch=1,keys=4200,runs=1'
VALUE = 'those of the emulation'

MUTANTS = [
    Mutant('V is read where K is', 'attend_ring.cuh', 'run.k + head', 'run.v + head', 'attend_mma', VALUE, MMA),
    Mutant('K is read where V is', 'attend_ring.cuh', 'run.v + head', 'run.k + head', 'attend_mma', VALUE, MMA),
    Mutant('K is waited for one group short', 'attend_mma.cuh', 'ha_copy_wait<2 * S::STAGES - 1>();\n        score',
           'ha_copy_wait<2 * S::STAGES>();\n        score', 'attend_mma', 'before a copy to it has landed', MMA),
    Mutant('V is waited for one group short', 'attend_mma.cuh', 'ha_copy_wait<2 * S::STAGES - 1>();\n        if (__any',
           'ha_copy_wait<2 * S::STAGES>();\n        if (__any', 'attend_mma', 'before a copy to it has landed', MMA),
    Mutant('K of binary32 is waited for one group short', 'attend_fma.cu',
           'ha_copy_wait<2 * S::STAGES - 1>();\n        score', 'ha_copy_wait<2 * S::STAGES>();\n        score',
           'attend_fma', 'before a copy to it has landed'),
    Mutant('V of binary32 is waited for one group short', 'attend_fma.cu',
           'ha_copy_wait<2 * S::STAGES - 1>();\n        weigh', 'ha_copy_wait<2 * S::STAGES>();\n        weigh',
           'attend_fma', 'before a copy to it has landed'),
    Mutant('two elements of the fragment of K are swapped', 'attend_mma.cuh', 'b[2] = { key.x, key.y }',
           'b[2] = { key.y, key.x }', 'attend_mma', VALUE, MMA),
    Mutant('two keys of the fragment of V are swapped', 'attend_mma.cuh', 'low[2] = { v0.x, v1.x }',
           'low[2] = { v1.x, v0.x }', 'attend_mma', VALUE, MMA),
    Mutant('no __syncwarp before the result', 'attend_mma.cuh', '__syncwarp();\n        finish<NV>', 'finish<NV>',
           'attend_mma', 'with no barrier between', MMA_MANY),
    Mutant('no __syncthreads before the result', 'attend_mma.cuh', '__syncthreads();\n        finish<NV>', 'finish<NV>',
           'attend_mma', 'with no barrier between', MMA),
    Mutant('counters of digits are not reset', 'topk.cu', 's.count[i] = 0;', 's.count[i] = mask ? s.count[i] : 0;',
           'topk_list', VALUE),
    Mutant('sums of digits are not reset', 'topp.cu', 's.sum[i] = 0;', 's.sum[i] = found ? s.sum[i] : 0;', 'topp_list',
           VALUE),
    Mutant('a flag is not reset', 'measure.cu', 'ha_store_system(a.to, a.value);',
           'if (a.value) ha_store_system(a.to, a.value);', FLAG, 'that it resets, second launch'),
    Mutant('words before a row are read', 'rotate.cu', 'float x = q[d];', 'float x = q[d] + 0 * q[d - 1];', 'rotate_heads',
           'in no allocation'),
    Mutant('a step too many', 'attend_ring.cuh', 'there[i] = step < end &&', 'there[i] = step <= end &&', SPLIT, 'LSE, element',
           MMA),
    Mutant('a split too many is joined', 'attend_combine.cu', 's = threadIdx.x; s < seq.splits; s += THREADS) sh.state',
           's = threadIdx.x; s <= seq.splits; s += THREADS) sh.state', 'attend_combine', 'nothing was written to'),
    Mutant('a split too many is counted', 'attend_combine.cu', 'for (unsigned s = lane; s < seq.splits; s += LANES) m =',
           'for (unsigned s = lane; s <= seq.splits; s += LANES) m =', 'attend_combine', 'shared memory is read that nothing'),
    Mutant('a split too many is launched', 'attend.cu', 'seq[b].splits = unsigned(splits);',
           'seq[b].splits = unsigned(splits) + 1;', SPLIT, 'nothing was written to', host=True),
    Mutant('no barrier between states and weights of splits', 'attend_combine.cu',
           'ha_cuda_shift(sh.state[s].x, m);\n    __syncthreads();', 'ha_cuda_shift(sh.state[s].x, m);', 'attend_combine',
           'with no barrier between'),
    Mutant('no __syncwarp before a state is overwritten', 'merge.cu', '__syncwarp(); /* the levels', '; /* the levels',
           'merge_few', 'is written that another thread read'),
    Mutant('no __syncwarp before queries are turned in place', 'rotate.cu', '__syncwarp(); /* all', '; /* all', 'rotate_heads',
           'is written that another thread read'),
    Mutant('a shuffle that lanes do not reach', 'merge.cu', 'float level = -INFINITY;\n    if (live',
           'if (!live) return;\n    float level = -INFINITY;\n    if (live', 'merge_few', 'divergent'),
    Mutant('a graph does not reset a flag', 'flag.c', 'return ha_cuda_flag_write(s->cuda, word, value);',
           'return value ? ha_cuda_flag_write(s->cuda, word, value) : cudaSuccess;', FLAG,
           'that it resets, second launch'),
    Mutant('a graph does not wait for a flag', 'flag.c', 'ha_cuda_flag_wait(s->cuda, flag, at_least,',
           'ha_cuda_flag_wait(s->cuda, flag, 0,', FLAG, 'graph behind a flag, first launch'),
    Mutant('a flag is read early', 'flag.c', 'awaited(flag, at_least)', 'awaited(flag, 0)', FLAG, 'data before flag'),
    Mutant('a merge on another stream', 'merge.cu', 'if (args->tokens == 0 || args->heads == 0)',
           'stream = NULL;\n    if (args->tokens == 0 || args->heads == 0)', SPLITS, 'runs merged'),
    Mutant('a stream does not wait for another', 'event.c', 'cudaStreamWaitEvent(s->cuda, e->cuda, 0)', 'cudaSuccess',
           SPLITS, 'runs merged'),
    Mutant('a split is left out', 'merge.cu', '(unsigned)m->states_count, 0, m->out', '(unsigned)m->states_count - 1, 0, m->out',
           SPLITS, 'runs merged'),
    Mutant('a split is merged twice', 'merge.cu', 'a->state[i] = m->states[i];',
           'a->state[i] = m->states[i ? i - 1 : 0];', SPLITS, 'runs merged'),
]


class Workshop:
    """Compiles mutants in a folder that shadows the tree's. records: of the right kernels."""

    def __init__(self, nvcc, files, program, recorded, plugin, records, root):
        self.nvcc, self.files, self.program, self.root, self.records = nvcc, files, program, root, records
        self.recorded, self.plugin = recorded, plugin
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

    def device(self, mutant, linked):
        """the emulated device with the fault; of what attend_mma.cuh has, in all of its kernels of half precision"""
        unit = 'attend_mma_f16.cu' if mutant.entry else mutant.file
        source = os.path.join(self.root, FOLDER, unit)
        if not os.path.exists(source):
            source = os.path.join(FOLDER, unit)
        flags = '-O1 -fPIC -fvisibility=hidden -ffp-contract=off -D_DEFAULT_SOURCE -Ikernels/cuda/emulation'.split()
        cxx = '-x c++ -std=c++17 -fno-exceptions -fno-rtti'.split()
        compiler = ['gcc', '-std=c17'] if unit.endswith('.c') else ['g++', *cxx]
        out, fault = os.path.join(self.root, 'device.so'), os.path.join(self.root, 'fault.o')
        subprocess.run([*compiler, *flags, f'-I{self.root}', '-I.', '-c', source, '-o', fault], check=True)
        subprocess.run(['gcc', '-shared', '-o', out, '-Wl,--no-undefined,--allow-multiple-definition', fault, *linked, '-ldl',
                        '-lm', '-lpthread'], check=True)
        return out

    def check(self, mutant):
        """what PROGRAM says of the device with the fault"""
        ran = subprocess.run([self.program, 'check', '-q', mutant.case, '--device', self.device(mutant, self.plugin)],
                             capture_output=True, text=True, check=False)
        said = ' '.join((ran.stdout if ran.returncode == WRONG else ran.stderr).split())
        return said if ran.returncode == WRONG else f'nothing: it exits with {ran.returncode}: {said}'

    def found(self, mutant):
        self.plant(mutant)
        if ':' in mutant.case and not mutant.host:
            return self.check(mutant)
        if mutant.host:
            folder = os.path.join(self.root, 'records')
            os.mkdir(folder)
            library = self.device(mutant, self.recorded)
            record(folder, self.program, library, [mutant.case])
            device, records = Device(self.files), read_all(folder, library)
        else:
            device = Device([self.ptx(mutant)])
            records = [r for r in self.records if r.key in device.entries and name_of(r.key) == mutant.case]
        for each in records:
            try:
                device.run(each)
            except Fault as fault:
                if mutant.says in str(fault):
                    return str(fault)
        return f'nothing, in {len(records)} launches'


def line_of(text, says):
    """a line of it: its beginning, or that and what is looked for"""
    at = text.index(says)
    return text[:110] if at < 110 else '.. ' + text[at:at + 110]


def words_of(path):
    with open(path, encoding='utf-8') as file:
        return file.read().split()


def main():
    named, folder, program, recorded, plugin = sys.argv[1:]
    nvcc = ' '.join(words_of(named))
    mutants = [m for m in MUTANTS if nvcc or ':' in m.case and not m.host]
    if not nvcc:
        print('SKIP: no nvcc here when this was built, so none is planted in what it compiles: scripts/setup.sh --cuda')
    caught = 0
    with tempfile.TemporaryDirectory() as records:
        if nvcc:
            record(records, program, recorded[:-len('.in')])
        right = read_all(records, recorded[:-len('.in')]) if nvcc else []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as root:
            shop = Workshop(nvcc, glob.glob(os.path.join(folder, '*.ptx')), program, words_of(recorded), words_of(plugin), right,
                            root)
            says = shop.found(mutant)
        good = mutant.says in says
        caught += good
        said = f'{mutant.what}: {line_of(says, mutant.says) if good else says}'
        print(said if good else f'FAIL: {said}', flush=True)
    print(f'{caught} passed, {len(mutants) - caught} failed')
    return caught < len(mutants)


if __name__ == '__main__':
    sys.exit(main())
