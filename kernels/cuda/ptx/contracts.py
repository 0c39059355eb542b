"""The structs and enums of a C header, read from the header itself, and held against what the compiler makes of them."""

import ctypes
import os
import re
import subprocess
import tempfile

NUMBERS = {'size_t': ctypes.c_uint64, 'uint64_t': ctypes.c_uint64, 'uint32_t': ctypes.c_uint32, 'unsigned': ctypes.c_uint32,
           'int': ctypes.c_int32, 'bool': ctypes.c_bool, '_Bool': ctypes.c_bool, 'float': ctypes.c_float,
           'double': ctypes.c_double, 'char': ctypes.c_char}
STRUCT = re.compile(r'struct (ha_\w+) \{([^{}]*)\};')
ENUM = re.compile(r'enum(?: \w+)? \{([^{}]*)\};')


class Contracts:
    """structs: ctypes structures by name, whose pointers are numbers: addresses of a device, or of this process.
    Attributes are the constants of enums."""

    def __init__(self, header, flags=()):
        self.compiler = os.environ.get('CC', 'cc')
        self.flags = ['-std=c17', '-I.', *flags]
        command = [self.compiler, '-E', '-P', *self.flags, header]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.constants, self.structs = {}, {}
        for found in ENUM.finditer(text):
            self.enum(found[1])
        for name, body in STRUCT.findall(text):
            if '(' not in re.sub(r'\[[^\]]*\]', '', body):  # tables of functions are not for kernels
                self.struct(name, body)
        self.compare(header)

    def __getattr__(self, name):
        try:
            return self.constants[name]
        except KeyError:
            raise AttributeError(name) from None

    def number(self, text):
        return int(eval(text, {'__builtins__': {}}, self.constants))  # noqa: S307, sums of constants in our own headers

    def enum(self, body):
        value = -1
        for item in filter(None, (i.strip() for i in body.split(','))):
            name, _, given = item.partition('=')
            try:
                value = self.number(re.sub(r'(?<=\d)[uU]\b', '', given)) if given else value + 1
            except (NameError, SyntaxError, TypeError):
                return  # of the system's headers
            self.constants[name.strip()] = value

    def struct(self, name, body):
        fields = []
        for line in filter(None, (i.strip() for i in body.split(';'))):
            line = re.sub(r'\bconst\b', ' ', line).strip()
            kind, rest = re.match(r'((?:struct|enum) \w+|\w+)\s*(.*)', line, re.S).groups()
            for declared in rest.split(','):
                stars, field, count = re.match(r'([*\s]*)(\w+)(?:\[(.*)\])?$', declared.strip()).groups()
                one = ctypes.c_uint64 if '*' in stars else self.kind(kind)
                if one is None:
                    return
                fields.append((field, one * self.number(count) if count else one))
        self.structs[name] = type(name, (ctypes.Structure,), {'_fields_': fields})

    def kind(self, name):
        if name.startswith('enum '):
            return ctypes.c_uint32
        return self.structs.get(name[7:]) if name.startswith('struct ') else NUMBERS.get(name)

    def compare(self, header):
        """The compiler's offsets and sizes are those of ctypes."""
        lines = [f'#include "{header}"', '#include <stddef.h>']
        for name, struct in self.structs.items():
            sizes = [f'sizeof(struct {name}) == {ctypes.sizeof(struct)}']
            for field, _ in struct._fields_:
                place = getattr(struct, field)
                sizes.append(f'offsetof(struct {name}, {field}) == {place.offset}')
                sizes.append(f'sizeof(((struct {name} *)0)->{field}) == {place.size}')
            lines += [f'_Static_assert({s}, "{s}");' for s in sizes]
        with tempfile.NamedTemporaryFile('w', suffix='.c') as file:
            file.write('\n'.join(lines) + '\n')
            file.flush()
            subprocess.run([self.compiler, *self.flags, '-fsyntax-only', file.name], check=True)

    def make(self, name, **fields):
        """a struct, zeros but for these fields; lists fill arrays"""
        made = self.structs[name]()
        known = dict(made._fields_)
        for field, value in fields.items():
            if field not in known:
                raise AttributeError(f'struct {name} has no {field}')
            if isinstance(value, (list, tuple)):
                array = getattr(made, field)
                for i, v in enumerate(value):
                    array[i] = v
            else:
                setattr(made, field, value)
        return made
