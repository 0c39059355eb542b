"""The tests of the readers of PTX and of machine code: each by its name, a failure with what it said."""

import traceback


def run_tests(tests):
    """(name, function) each; whether one failed"""
    passed = failed = 0
    for name, test in tests:
        try:
            test()
            passed += 1
        except Exception:
            failed += 1
            print(f'FAIL: {name}\n{traceback.format_exc()}')
    print(f'{passed} passed, {failed} failed')
    return failed > 0
