"""test_counts.py PTX_FOLDER PAGE: the page says how many kernels and cases the interpreter runs, and how many faults are planted."""

import importlib
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mutants import MUTANTS  # noqa: E402
from run import FAMILIES, family_files  # noqa: E402


def main():
    folder, page = sys.argv[1:]
    with open(page, encoding='utf-8') as file:
        text = file.read()
    cases = [importlib.import_module(f'cases_{family}') for family in FAMILIES]
    small = sum(len(each.CASES) for each in cases)
    expected = [f'{small} cases; a kernel without a case fails', f'the whole set: {small + sum(len(each.MORE) for each in cases)} cases',
                f'{len(MUTANTS)} faults planted']
    files = [name for names in FAMILIES.values() for name in family_files(folder, names)]
    if all(os.path.getsize(name) for name in files):  # there is an nvcc
        kernels = sum(len(re.findall(r'^(?:\.visible )?\.entry ', open(name, encoding='utf-8').read(), re.M)) for name in files)
        expected.append(f'{kernels} kernels, {small} cases')
    missing = [words for words in expected if not re.search(rf'(?<!\d){re.escape(words)}', text)]
    for words in missing:
        print(f"FAILED: {page} does not say '{words}'")
    print(f'{len(expected) - len(missing)} passed, {len(missing)} failed')
    return bool(missing)


if __name__ == '__main__':
    sys.exit(main())
