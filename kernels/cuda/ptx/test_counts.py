"""test_counts.py PAGE PTX...: the page says how many kernels and cases the interpreter runs, and how many faults are planted."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases import CASES  # noqa: E402
from mutants import MUTANTS  # noqa: E402


def main():
    page, *files = sys.argv[1:]
    with open(page, encoding='utf-8') as file:
        text = file.read()
    kernels = sum(len(re.findall(r'^(?:\.visible )?\.entry ', open(name, encoding='utf-8').read(), re.M)) for name in files)
    expected = [f'{len(CASES)} cases', f'{len(MUTANTS)} faults planted'] + [f'{kernels} kernels'] * (kernels > 0)
    missing = [words for words in expected if not re.search(rf'(?<!\d){re.escape(words)}', text)]
    for words in missing:
        print(f"FAILED: {page} does not say '{words}'")
    print(f'{len(expected) - len(missing)} passed, {len(missing)} failed')
    return bool(missing)


if __name__ == '__main__':
    sys.exit(main())
