"""A file that a user names by -o: written whole, where a link leads; what is no regular file (a pipe, a device) is written directly."""
import contextlib
import os


@contextlib.contextmanager
def whole_file(path):
    direct = os.path.exists(path) and not os.path.isfile(path)
    path = path if direct else os.path.realpath(path)
    part = path if direct else path + ".new"
    with open(part, "wb") as file:
        yield file
    if not direct:
        os.replace(part, path)
