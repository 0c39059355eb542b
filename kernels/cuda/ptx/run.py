"""run.py PROGRAM RECORDED.so PTX...: the kernels of the CUDA device as nvcc compiles them, run by an interpreter of PTX for
launches that the emulated device makes in cases of the device suite. A kernel without a launch is a failure, too."""

import argparse
import os
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from records import Device, read_all, record  # noqa: E402


def passes(device, record, number, verbose):
    started, before = time.process_time(), device.machine.instructions
    name = f'{record.key} {record.grid} {record.block}'
    try:
        device.run(record, number % 2 == 1)
    except Exception as error:
        print(f'FAIL: {name}: {error}')
        if verbose:
            traceback.print_exc()
        return False
    if verbose:
        print(f'{name}: {device.machine.instructions - before} instructions, {time.process_time() - started:.2f} s', flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('program')
    parser.add_argument('plugin')
    parser.add_argument('ptx', nargs='+')
    parser.add_argument('-v', '--verbose', action='store_true')
    parser.add_argument('-k', default='', metavar='WORDS', help='only kernels whose name has these')
    args = parser.parse_args()
    if not all(os.path.getsize(f) for f in args.ptx):
        print('SKIP: no nvcc here when this was built, so no PTX is run: scripts/setup.sh --cuda\n0 passed, 0 failed')
        return 0
    device = Device(args.ptx)
    with tempfile.TemporaryDirectory() as folder:
        record(folder, args.program, args.plugin)
        records = [r for r in read_all(folder, args.plugin) if args.k in r.key]
    good = [passes(device, r, i, args.verbose) for i, r in enumerate(records)]
    missed = sorted(k for k in device.entries if args.k in k and k not in {r.key for r in records})
    for kernel in missed:
        print(f'FAIL: no launch of the kernel {kernel}')
    print(f'{len(device.entries)} kernels, {device.machine.instructions} instructions, {time.process_time():.0f} s')
    print(f'{sum(good)} passed, {len(good) - sum(good) + len(missed)} failed')
    return not all(good) or len(missed) > 0


if __name__ == '__main__':
    sys.exit(main())
