"""run.py HOST.so PTX_FOLDER FAMILY... [--all] [-v]: the kernels of the CUDA device as nvcc compiles them, run by an
interpreter of PTX over small shapes, against numpy. A kernel that no case of its family runs is a failure, too."""

import argparse
import importlib
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from device import Device  # noqa: E402

# files of kernels/cuda; the cases are in cases_<family>.py
FAMILIES = {
    'attend': 'attend attend_mma_f16 attend_mma_bf16 attend_fma attend_combine attend_weights',
    'merge': 'merge',
    'move': 'move blend measure accuracy scores products',
    'select': 'digest topk split columns rotate features net',
    'codes': 'hash hamming similarity pq softmax topp weighted_sum',
}


def describe(function, arguments):
    return ' '.join([function.__name__.rstrip('_'), *(f'{k}={v}' for k, v in arguments.items())]).replace("'", '')


def run_case(device, function, arguments, verbose):
    """whether it passes"""
    started, before = time.process_time(), device.machine.instructions
    name = describe(function, arguments)
    try:
        function(device, **arguments)
    except Exception as error:
        print(f'FAIL: {name}: {error}')
        if verbose:
            traceback.print_exc()
        return False
    if verbose:
        print(f'{name}: {device.machine.instructions - before} instructions, {time.process_time() - started:.2f} s',
              flush=True)
    return True


def family_files(folder, names):
    return [os.path.join(folder, name + '.ptx') for name in names.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('host')
    parser.add_argument('folder')
    parser.add_argument('families', nargs='+', choices=list(FAMILIES))
    parser.add_argument('--all', action='store_true', help='the whole set, which takes minutes')
    parser.add_argument('-v', '--verbose', action='store_true')
    parser.add_argument('-k', default='', metavar='WORDS', help='only cases whose name has these')
    args = parser.parse_args()
    files = [f for family in args.families for f in family_files(args.folder, FAMILIES[family])]
    if not all(os.path.getsize(f) for f in files):
        print('SKIP: no nvcc here when this was built, so no PTX is run: scripts/setup.sh --cuda\n0 passed, 0 failed')
        return 0
    device = Device(args.host, files)
    passed = failed = 0
    for family in args.families:
        module = importlib.import_module(f'cases_{family}')
        for function, arguments in module.CASES + (module.MORE if args.all else []):
            if args.k in describe(function, arguments):
                if run_case(device, function, arguments, args.verbose):
                    passed += 1
                else:
                    failed += 1
    missed = sorted(set(device.entries) - set(device.met)) if not args.k else []
    for kernel in missed:
        print(f'FAIL: no case runs the kernel {kernel}')
    print(f'{len(device.met)} kernels, {device.machine.instructions} instructions, {time.process_time():.0f} s')
    print(f'{passed} passed, {failed + len(missed)} failed')
    return failed + len(missed) > 0


if __name__ == '__main__':
    sys.exit(main())
