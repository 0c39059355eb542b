"""The text of PTX as kernels: registers, shared memory, instructions. What an instruction means is in instructions.py."""

import bisect
import re
from dataclasses import dataclass

# A statement begins with a word; a brace at its beginning opens or closes a scope, later ones are vectors.
STATEMENT = re.compile(r'\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[$%\w]+):(?!:)'
                       r'|(?P<text>[^;{}\s][^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)')
OPERAND = re.compile(r'\{[^}]*\}|\[[^\]]*\]|[^,\s]+')
ENTRY = re.compile(r'\.entry\s+(\S+?)\s*\(')
PARAM = re.compile(r'\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^,)]*?)?([$\w]+)(?:\[(\d+)\])?')
VARIABLE = re.compile(r'\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([$\w]+)(?:\[(\d*)\])?')
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/', re.S)


def bits_of(kind):
    """of a type as PTX writes it: 1 for pred, 16 for bf16, 32 for s32"""
    return 1 if kind == 'pred' else int(re.sub(r'\D*(\d+).*', r'\1', kind))


def aligned(at, to):
    return (at + to - 1) // to * to


@dataclass
class Instruction:
    op: str  # ld.global.v4.u32
    operands: list
    guard: tuple  # register and whether it is to be false; or None
    line: int

    def __str__(self):
        guard = f"@{'!' * self.guard[1]}{self.guard[0]} " if self.guard else ''
        return f'line {self.line}: {guard}{self.op} {", ".join(self.operands)}'


class Kernel:
    """One .entry. registers: bits by name. params: offset by name. symbols: offsets in shared or local memory by name;
    `dynamic` of them begin where the static ones end."""

    def __init__(self, name, text, at, line_of):
        self.name, self.line_of = name, line_of
        self.registers, self.prefixes, self.params = {}, {}, {}
        self.shared, self.local, self.dynamic = {}, {}, []
        self.shared_bytes = self.local_bytes = self.param_bytes = 0
        self.param_align = 1
        self.code, self.labels = [], {}
        head, end = text[at:text.index('\n{', at)], text.index('\n{', at) + 1
        for align, kind, param, count in PARAM.findall(head):
            bytes_each = bits_of(kind) // 8
            align = int(align or bytes_each)
            self.param_align = max(self.param_align, align)
            self.param_bytes = aligned(self.param_bytes, align)
            self.params[param] = self.param_bytes
            self.param_bytes += bytes_each * int(count or 1)
        self.body(text, end)

    def body(self, text, at):
        scopes, locals_made = [], 0
        while True:
            found = STATEMENT.match(text, at)
            if not found:
                raise ValueError(f'{self.name}: no PTX: {text[at:at + 60]!r}')
            at = found.end()
            if found['open']:
                scopes.append({})
            elif found['close']:
                scopes.pop()
                if not scopes:
                    return
            elif found['label']:
                self.labels[found['label']] = len(self.code)
            elif found['text'].startswith('.reg'):
                locals_made = self.declare(found['text'], scopes, locals_made)
            elif found['text'].startswith(('.shared', '.local')):
                self.variable(found['text'])
            elif not found['text'].startswith('.'):
                self.instruction(found['text'], scopes, self.line_of(found.start('text')))

    def declare(self, text, scopes, made):
        """Names of inner scopes are made unique."""
        _, kind, names = text.split(None, 2)
        bits = bits_of(kind[1:])
        for name in (n.strip() for n in names.split(',')):
            counted = re.match(r'([%$\w]+)<\d+>', name)
            if counted:
                self.prefixes[counted[1]] = bits
            elif len(scopes) == 1:
                self.registers[name] = bits
            else:
                made += 1
                scopes[-1][name] = f'{name}#{made}'
                self.registers[scopes[-1][name]] = bits
        return made

    def variable(self, text):
        space, align, kind, name, count = VARIABLE.match(text).groups()
        size = bits_of(kind) // 8 * int(count or 1)
        places, total = (self.shared, 'shared_bytes') if space == 'shared' else (self.local, 'local_bytes')
        at = aligned(getattr(self, total), int(align or bits_of(kind) // 8))
        places[name] = at
        setattr(self, total, at + size)

    def instruction(self, text, scopes, line):
        for scope in reversed(scopes[1:]):
            if scope:
                text = re.sub(r'[%$\w]+', lambda word: scope.get(word[0], word[0]), text)
        guard = re.match(r'@(!?)(\S+)\s+', text)
        if guard:
            text = text[guard.end():]
        op, _, rest = text.partition(' ') if ' ' in text.partition('\t')[0] else text.partition('\t')
        self.code.append(Instruction(op.strip(), [o.strip() for o in OPERAND.findall(rest)],
                                     (guard[2], bool(guard[1])) if guard else None, line))

    def bits(self, register):
        """of a register, or None: no register of that name"""
        if register in self.registers:
            return self.registers[register]
        counted = re.match(r'(.*?)\d+$', register)
        return self.prefixes.get(counted[1]) if counted else None


class Module:
    """A file of PTX. Its kernels are read when they are asked for."""

    def __init__(self, text):
        self.text = COMMENT.sub(lambda found: '\n' * found[0].count('\n'), text)
        self.lines = [found.start() for found in re.finditer('\n', self.text)]
        self.entries = {found[1]: found.end() for found in ENTRY.finditer(self.text)}
        self.kernels = {}

    def line_of(self, at):
        return bisect.bisect_left(self.lines, at) + 1

    def kernel(self, name):
        if name not in self.kernels:
            kernel = self.kernels[name] = Kernel(name, self.text, self.entries[name], self.line_of)
            kernel.dynamic = re.findall(r'\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+([$\w]+)\[\]', self.text)
        return self.kernels[name]
