"""What PTX computes in registers: for each instruction the types of its result and of its operands, and a function of
arrays, one element for each thread. A register is bits; an operand is seen as the type that the instruction says."""

import numpy as np

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
F16, F32, F64 = np.float16, np.float32, np.float64
NUMPY = {'pred': np.bool_, 'f16': F16, 'f32': F32, 'f64': F64, 'bf16': U16, 'f16x2': U32, 'bf16x2': U32, 'tf32': U32,
         **{f'{sign}{bits}': kind for sign, kinds in (('u', (U8, U16, U32, U64)), ('b', (U8, U16, U32, U64)),
                                                      ('s', (np.int8, np.int16, np.int32, np.int64)))
            for bits, kind in zip((8, 16, 32, 64), kinds)}}

FORMS = {}  # word of an instruction: function of its other words, which gives (result, operands, function of arrays)


def form(*names):
    def add(function):
        FORMS.update(dict.fromkeys(names, function))
        return function
    return add


def bits(kind):
    return 1 if kind == 'pred' else NUMPY[kind]().itemsize * 8


def wide(kind):
    return kind[0] + str(2 * bits(kind))


# ---- two operands of one type


def fma32(a, b, c):
    """One rounding: the product is exact in binary64. Where the sum there lies in the middle between two binary32
    numbers, what it lost decides."""
    p, c = a.astype(F64) * b, c.astype(F64)
    s = p + c
    middle = (s.view(U64) & U64(0x1fffffff)) == U64(0x10000000)
    if middle.any():
        t = s - p
        lost = np.where(middle & np.isfinite(s), (p - (s - t)) + (c - t), 0)
        s = np.where(lost == 0, s, np.nextafter(s, np.copysign(np.inf, lost)))
    return s.astype(F32)


def fma64(a, b, c):
    """nearly: the product keeps 64 bits"""
    return (a.astype(np.longdouble) * b + c).astype(F64)


def divide(x, y):
    """towards 0; by 0, all ones"""
    if x.dtype.kind == 'f':
        return x / y
    q = np.abs(x) // np.where(y == 0, 1, np.abs(y)).astype(x.dtype)
    q = np.where((x < 0) != (y < 0), -q, q) if x.dtype.kind == 'i' else q
    return np.where(y == 0, np.array(-1).astype(x.dtype), q)


def high(x, y):
    """the upper half of a product"""
    if x.dtype.itemsize < 8:
        double = np.dtype(f'{x.dtype.kind}{2 * x.dtype.itemsize}')
        return (x.astype(double) * y >> double.type(8 * x.dtype.itemsize)).astype(x.dtype)
    half, low = U64(32), U64(0xffffffff)
    a, b, c, d = x.view(U64) >> half, x.view(U64) & low, y.view(U64) >> half, y.view(U64) & low
    middle = a * d + (b * d >> half)
    carried = (middle & low) + b * c
    r = a * c + (middle >> half) + (carried >> half)
    if x.dtype.kind == 'i':
        r = r - np.where(x < 0, y.view(U64), U64(0)) - np.where(y < 0, x.view(U64), U64(0))
    return r.view(x.dtype)


def smaller(x, y):
    return np.fmin(x, y) if x.dtype.kind == 'f' else np.minimum(x, y)


def larger(x, y):
    return np.fmax(x, y) if x.dtype.kind == 'f' else np.maximum(x, y)


TWO = {'add': np.add, 'sub': np.subtract, 'and': np.bitwise_and, 'or': np.bitwise_or, 'xor': np.bitwise_xor, 'div': divide,
       'rem': lambda x, y: x - divide(x, y) * y, 'min': smaller, 'max': larger}
ONE = {'neg': np.negative, 'abs': np.abs, 'not': np.invert, 'sqrt': np.sqrt, 'rcp': lambda x: (1 / x).astype(x.dtype),
       'ex2': np.exp2, 'lg2': np.log2, 'cnot': lambda x: (x == 0).astype(x.dtype), 'mov': lambda x: x,
       'rsqrt': lambda x: (1 / np.sqrt(x)).astype(x.dtype), 'brev': None}


@form(*TWO)
def two(name, words):
    return words[-1], [words[-1]] * 2, TWO[name]


@form(*(set(ONE) - {'brev'}))
def one(name, words):
    return words[-1], [words[-1]], ONE[name]


@form('mul')
def multiply(name, words):
    kind = words[-1]
    if words[0] == 'wide':
        to = NUMPY[wide(kind)]
        return wide(kind), [kind] * 2, lambda x, y: x.astype(to) * y.astype(to)
    return kind, [kind] * 2, high if words[0] == 'hi' else np.multiply


@form('mad', 'fma')
def multiply_add(name, words):
    kind = words[-1]
    if name == 'fma':
        return kind, [kind] * 3, {'f32': fma32, 'f64': fma64}[kind]
    _, _, product = multiply('mul', words)
    sum_kind = wide(kind) if words[0] == 'wide' else kind
    return sum_kind, [kind, kind, sum_kind], lambda x, y, z: product(x, y) + z


# ---- bits


@form('shl', 'shr')
def shift(name, words):
    kind, width = words[-1], bits(words[-1])
    move = np.left_shift if name == 'shl' else np.right_shift

    def by(x, n):
        inside = move(x, np.minimum(n, width - 1).astype(x.dtype))
        return inside if kind[0] == 's' else np.where(n < width, inside, x.dtype.type(0))
    return kind, [kind, 'u32'], by


@form('shf')
def funnel(name, words):
    left, wrap = words[0] == 'l', words[1] == 'wrap'

    def by(low, up, n):
        n = (n & U32(31) if wrap else np.minimum(n, U32(32))).astype(U64)
        both = up.astype(U64) << U64(32) | low
        return ((both << n >> U64(32)) if left else both >> n).astype(U32)
    return 'b32', ['b32', 'b32', 'u32'], by


@form('popc', 'clz')
def count_bits(name, words):
    def count(x):
        each = np.unpackbits(x.astype(x.dtype.newbyteorder('>')).view(U8).reshape(len(x), -1), axis=1)
        if name == 'clz':
            each = np.cumsum(each, axis=1) == 0
        return each.sum(axis=1).astype(U32)
    return 'u32', [words[-1]], count


@form('bfind')
def find_highest(name, words):
    count, shiftamt = count_bits('clz', words)[2], 'shiftamt' in words

    def find(x):
        leading = count(x.view(NUMPY['u' + words[-1][1:]]))
        width = U32(bits(words[-1]))
        return np.where(leading == width, U32(0xffffffff), leading if shiftamt else width - U32(1) - leading)
    return 'u32', [words[-1]], find


@form('brev')
def reverse(name, words):
    def turn(x):
        each = np.unpackbits(x.view(U8).reshape(len(x), -1), axis=1, bitorder='little')
        return np.packbits(each, axis=1).reshape(-1).view(x.dtype).byteswap()
    return words[-1], [words[-1]], turn


def ones(n, kind):
    """the lowest n bits"""
    full = kind((1 << (8 * kind().itemsize)) - 1)
    return np.where(n >= 8 * kind().itemsize, full, ~(full << np.minimum(n, 8 * kind().itemsize - 1).astype(kind)))


@form('bfi')
def insert(name, words):
    kind = NUMPY[words[-1]]

    def into(x, y, at, count):
        at, count = at & U32(0xff), count & U32(0xff)
        moved = np.minimum(at, 8 * kind().itemsize - 1).astype(kind)
        mask = np.where(at < 8 * kind().itemsize, ones(count, kind) << moved, kind(0))
        return y & ~mask | x << moved & mask
    return words[-1], [words[-1]] * 2 + ['u32'] * 2, into


@form('bfe')
def extract(name, words):
    kind, width = NUMPY[words[-1]], bits(words[-1])
    unsigned = NUMPY[f'u{width}']

    def out_of(x, at, count):
        at, count = np.minimum(at & U32(0xff), U32(width)), np.minimum(count & U32(0xff), U32(width))
        mask = ones(count, unsigned)
        low = np.where(at < width, x.view(unsigned) >> np.minimum(at, width - 1).astype(unsigned), unsigned(0))
        if kind is not unsigned:
            top = np.minimum(at + count - U32(1), U32(width - 1)).astype(unsigned)
            sign = (x.view(unsigned) >> top & unsigned(1)).astype(bool) & (count > 0)
            low = np.where(sign, low | ~mask, low & mask)
        return np.where(count > 0, low & mask if kind is unsigned else low, unsigned(0)).view(kind)
    return words[-1], [words[-1], 'u32', 'u32'], out_of


@form('prmt')
def permute(name, words):
    if words != ['b32']:
        raise KeyError(words)

    def pick(x, y, how):
        both = y.astype(U64) << U64(32) | x
        result = np.zeros_like(x)
        for i in range(4):
            code = (how >> U32(4 * i) & U32(15)).astype(U64)
            byte = (both >> (code & U64(7)) * U64(8) & U64(255)).astype(U32)
            byte = np.where(code & U64(8), np.where(byte & U32(128), U32(255), U32(0)), byte)
            result |= byte << U32(8 * i)
        return result
    return 'b32', ['b32'] * 3, pick


@form('lop3')
def three_bits(name, words):
    def by_table(a, b, c, table):
        result = np.zeros_like(a)
        for i in range(8):
            term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            result |= np.where(table >> U32(i) & U32(1), term, U32(0))
        return result
    return 'b32', ['b32'] * 3 + ['u32'], by_table


# ---- comparisons and choices

COMPARE = {'eq': np.equal, 'ne': np.not_equal, 'lt': np.less, 'le': np.less_equal, 'gt': np.greater, 'ge': np.greater_equal,
           'lo': np.less, 'ls': np.less_equal, 'hi': np.greater, 'hs': np.greater_equal}


def comparison(word, kind):
    if kind[0] != 'f':
        return COMPARE[word]

    def unordered(x, y):
        return np.isnan(x) | np.isnan(y)
    if word in ('num', 'nan'):
        return unordered if word == 'nan' else lambda x, y: ~unordered(x, y)
    compare = COMPARE[word[:2]]
    if word.endswith('u'):
        return lambda x, y: compare(x, y) | unordered(x, y)
    return (lambda x, y: (x != y) & ~unordered(x, y)) if word == 'ne' else compare


@form('setp')
def set_predicate(name, words):
    kind, compare = words[-1], comparison(words[0], words[-1])
    joint = next((w for w in words[1:-1] if w in ('and', 'or', 'xor')), None)
    if not joint:
        return 'pred', [kind] * 2, compare
    return 'pred', [kind, kind, 'pred'], lambda x, y, z: TWO[joint](compare(x, y), z)


@form('set')
def set_number(name, words):
    compare = comparison(words[0], words[-1])
    ones_ = {'f32': F32(1), 'u32': U32(0xffffffff), 's32': np.int32(-1)}[words[-2]]
    return words[-2], [words[-1]] * 2, lambda x, y: np.where(compare(x, y), ones_, type(ones_)(0))


@form('selp')
def select(name, words):
    return words[-1], [words[-1]] * 2 + ['pred'], lambda x, y, p: np.where(p, x, y)


# ---- conversions

ROUND = {'rni': np.rint, 'rzi': np.trunc, 'rmi': np.floor, 'rpi': np.ceil}


def to_bf16(x):
    u = x.view(U32)
    return np.where(np.isnan(x), U16(0x7fff), ((u + U32(0x7fff) + (u >> U32(16) & U32(1))) >> U32(16)).astype(U16))


def float_to_integer(rounding, to):
    """NaN is 0, and what is out of range the nearest in it"""
    info = np.iinfo(to)

    def convert(x):
        whole = ROUND[rounding](np.nan_to_num(x.astype(F64), nan=0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(whole, float(info.min), float(info.max))
        top = inside >= float(info.max)
        return np.where(top, info.max, np.where(top, 0, inside).astype(to)).astype(to)
    return convert


@form('cvt')
def convert(name, words):
    to, source = words[-2:]
    rounding = next((w for w in words[:-2] if w in ROUND), None)
    if set(words[:-2]) - set(ROUND) - {'rn', 'ftz'} or to.endswith('x2') and 'rn' not in words:
        if not (to == 'tf32' and words[:-2] == ['rna']):
            raise KeyError(words)
    if to == 'tf32':
        return 'b32', ['f32'], lambda x: (x.view(U32) + U32(0x1000)) & U32(0xffffe000)
    if to == 'bf16':
        return 'b16', [source], to_bf16
    if to == 'bf16x2':
        return 'b32', ['f32'] * 2, lambda x, y: to_bf16(x).astype(U32) << U32(16) | to_bf16(y)
    if to == 'f16x2':
        return 'b32', ['f32'] * 2, lambda x, y: x.astype(F16).view(U16).astype(U32) << U32(16) | y.astype(F16).view(U16)
    if source == 'bf16':
        return to, ['b16'], lambda x: (x.astype(U32) << U32(16)).view(F32)
    kind = NUMPY[to]
    if source[0] == 'f' and to[0] == 'f':
        return to, [source], (lambda x: ROUND[rounding](x).astype(kind)) if rounding else lambda x: x.astype(kind)
    if source[0] == 'f':
        return to, [source], float_to_integer(rounding, kind)
    return to, [source], lambda x: x.astype(kind)
