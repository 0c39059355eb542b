#!/usr/bin/env python3
"""graph.py: writes scripts/graph.ninja, the part of a build profile that follows from the folders, and scripts/plugin.ninja, what
nvcc makes of kernels/cuda.

Every .c and .cu file of the folders below becomes an object; the files of a folder become a member of an archive; its
files test_*.c become one test program for each recipe of RECIPES; and each test file becomes one log, under the file's
own path: `ninja build/release/harness/base/test_csv.log` builds and runs harness/base/test_csv.c. Ninja runs this
script when a file comes or goes. scripts/profile.ninja holds the rest of a profile: programs, plugins, tests by script.
"""
import fnmatch
import glob
import os
import re
import sys

# archive: its files
ARCHIVES = {
    "base": "harness/base/*",
    "measure": "harness/measure/*",
    "tune": "harness/tune/*",
    "report": "harness/report/*",
    "fleet": "harness/fleet/*",
    "compare": "harness/compare/*",
    "doctor": "harness/doctor/*",
    "engine": "harness/engine/*",
    "program": "harness/program/*",
    "reference": "reference/*",
    "datasets": "datasets/*",
    "model": "datasets/model/*",
    "kernels": "kernels/c/* kernels/vectors/* kernels/a*/*",
    "host": "kernels/host/* kernels/*",
    "cuda_attend": "kernels/cuda/attend*.cu",
    "cuda_kernels": "kernels/cuda/accuracy.cu kernels/cuda/[b-o]*.cu kernels/cuda/pq.cu kernels/cuda/[r-z]*.cu",
    "cuda_emulated": "kernels/cuda/*.c kernels/cuda/products.cu",
    "cuda_runtime": "kernels/cuda/emulation/[!s]*",
    "cuda_simt": "kernels/cuda/emulation/s*",
    "suites": "suites/parts/* suites/full/* suites/recency_split/* suites/block_sparse/* suites/codebook_keys/* "
    "suites/similarity_cache/* suites/*",
    "variants": "suites/variants/*",
    "cpu": "suites/kernels/*",
    "device": "suites/device/*",
    "defects": "suites/defects/*",
    "cheats": "suites/cheats/*",
    "link": "suites/link/*",
    "merge": "suites/merge/*",
}

# Compiled elsewhere: with another flag each time, by another compiler, for libFuzzer.
ELSEWHERE = "*/fuzz_* harness/fleet/meet_mpi.c kernels/cuda/test_driver.c".split()

# Objects that are no members: scripts/profile.ninja links each by name. test_ and fake_ are none either.
BY_NAME = """harness/program/main.c harness/program/rehearsal.c harness/engine/drive.c suites/kernels/in_turns.c
    suites/defects/plugin.c suites/cheats/plugin.c suites/cheats/results.c suites/cheats/late.c
    suites/cheats/clocks.c suites/cheats/facts.c suites/cheats/sound.c""".split()

# folder: what the compiler is asked for, and what else stands there. kernels/vectors is compiled for each of VECTORS.
X86 = "-mfma -mf16c"
AVX512 = f"-mavx512f -mavx512bw -mavx512dq -mavx512vl {X86}"
ISAS = {
    "avx2": (f"-mavx2 {X86}", "-DHA_FOR_AVX2"),
    "avx512": (AVX512, "-DHA_FOR_AVX512"),
    "avx512_ymm": (AVX512, ""),
    "avx512_bf16": (f"{AVX512} -mavx512bf16", ""),
    "avx512_vpopcntdq": (f"{AVX512} -mavx512vpopcntdq", ""),
    "amx": (f"{AVX512} -mavx512bf16 -mamx-tile -mamx-bf16", ""),
    "neon": ("", "-DHA_FOR_NEON"),
    "sve256": ("-march=armv8.2-a+sve -msve-vector-bits=256", "-DHA_SVE_BITS=256"),
    "sve512": ("-march=armv8.2-a+sve -msve-vector-bits=512", "-DHA_SVE_BITS=512"),
}
VECTORS = "avx2 avx512 neon sve256 sve512".split()

# file or pattern: flags of its own
FLAGS = {
    # Loops that make nearly all numbers that tests work on: at -O1 a sanitizer spends most of some tests in them.
    "harness/base/numeric.c": "-O3",
    "harness/base/rng.c": "-O3",
    "harness/base/team_openmp.c": "-fopenmp",
    "harness/engine/test_child.c": "-fopenmp",
    "suites/merge/test_plugin_merge.c": "-fopenmp",
    # tests that compute
    "kernels/test_*": "$testmath",
    "kernels/host/test_*": "$testmath",
    "reference/test_*": "$testmath",
    "suites/defects/plugin.c": "-Dha_wrong_host=ha_device_host",
    "suites/cheats/sound.c": "-Dha_sound_host=ha_device_host",
    "kernels/cuda/emulation/simt*.c": "-Ikernels/cuda/emulation -fno-sanitize=thread",
    "kernels/cuda/fake_[!c]*.c": "",
    "kernels/cuda/fake_cupti.c": "",
    "kernels/cuda/*.c": "-Ikernels/cuda/emulation",
}

# Files that hardly compute are compiled without optimisation under a sanitizer; those of these patterns compute.
HOT = """kernels/* reference/* datasets/* harness/base/[!b]* harness/compare/* harness/engine/expand.c harness/engine/point.c
    suites/parts/choose.c suites/block_sparse/features.c suites/parts/kmeans.c suites/block_sparse/labels.c suites/block_sparse/skew.c
    suites/variants/case.c suites/defects/attention.c suites/merge/batch.c suites/merge/defects.c
    suites/merge/fill_planted.c suites/merge/judge.c""".split()
# ... and tests, but for these
HOT_TESTS = "reference/test_fp32.c kernels/test_simd.c suites/parts/test_kmeans.c".split()

# helpers of tests that are plugins
PLUGINS = "kernels/test_packed_device.c harness/engine/test_hostile_device.c harness/engine/test_tool.c suites/merge/test_hostile.c suites/merge/test_guest_device.c suites/defects/test_swapped.c".split()

CUDA = "@$o/cuda"
DRIVE = "$o/harness/engine/drive.o"
REHEARSAL = "$o/harness/program/rehearsal.o"
FAKES = "$o/harness/engine/fake_registry.o"
ENGINE_FAKES = f"{FAKES} $o/harness/engine/fake_suites.o"
# lld gives a wrapped function another's place also where it is defined
SUITES_WRAPPED = "own bfd wrap=ha_suites_all wrap=ha_suites_count"

# How tests are linked. Patterns of tests: objects and libraries beside their own objects, the helpers of their folder and
# the whole program; `wrap=NAME` replaces a function; `alone` links without the folder's helpers; `own` is for a test that defines what others of its folder need. The first pattern that
# fits holds, and tests with one recipe in one folder are one program.
RECIPES = [
    ("harness/base/test_registry", FAKES),
    ("harness/base/test_pool", "own"),
    ("datasets/test_flashinfer", "$o/datasets/test_workload.o alone"),
    ("datasets/model/*", "$o/datasets/model/fake_gguf.o"),
    ("datasets/*", "$o/datasets/test_file.o alone"),
    ("harness/measure/test_beside", REHEARSAL),
    ("harness/measure/test_ceilings", REHEARSAL),
    ("harness/report/test_env", "own alone"),
    ("harness/report/*", "$o/harness/report/fake_suite.o"),
    ("harness/fleet/test_attempt", "wrap=ha_move_copy wrap=link wrap=rename"),
    ("harness/fleet/test_meet", "wrap=lstat wrap=fstat"),
    ("harness/engine/test_child", "-fopenmp"),
    # takes its own program for a plugin: one that could be anywhere, and looks like a shared object
    ("harness/engine/test_plugin", "-pie"),
    ("harness/engine/test_machine", "alone"),
    ("harness/engine/test_random", f"{FAKES} alone"),
    ("harness/engine/test_hostile", SUITES_WRAPPED),
    ("harness/engine/test_loop", SUITES_WRAPPED),
    ("harness/engine/test_at_once", f"{REHEARSAL} {SUITES_WRAPPED} alone"),
    ("harness/engine/test_kill", f"{SUITES_WRAPPED} wrap=ha_machine_beside wrap=ha_paired_memory_create"),
    ("harness/engine/test_serve", "wrap=ha_child_say"),
    ("harness/engine/test_p*", ENGINE_FAKES),
    ("harness/engine/test_covering", ENGINE_FAKES),
    ("harness/engine/test_group", REHEARSAL),
    ("harness/engine/*", "$o/harness/report/fake_suite.o"),
    ("harness/tune/test_worlds", "own alone wrap=ha_cpu_bits"),
    ("harness/program/test_night_step", "wrap=ha_now_ns wrap=waitpid"),
    ("kernels/test_attend_all", "wrap=malloc wrap=calloc wrap=realloc"),
    ("kernels/test_simd", " ".join(f"$o/kernels/{isa}/test_simd.o" for isa in VECTORS)),
    ("kernels/cuda/emulation/test_simt*", f"{CUDA} $o/kernels/cuda/test_launch.o alone"),
    ("kernels/cuda/emulation/*", CUDA),
    ("kernels/cuda/test_cupti", f"{CUDA} alone own"),
    ("kernels/cuda/test_gdr", f"{CUDA} alone own"),
    ("kernels/cuda/test_trace", f"{CUDA} alone own"),
    ("kernels/cuda/test_perturb", f"{CUDA} wrap=ha_now_ns wrap=ha_speed_least alone"),
    ("kernels/cuda/test_kernels", f"{CUDA} $o/kernels/cuda/test_launch.o alone"),
    ("kernels/cuda/test_accuracy", f"{CUDA} $o/kernels/cuda/test_launch.o alone"),
    ("kernels/cuda/*", f"{CUDA} $o/kernels/cuda/test_support.o $o/kernels/test_device.o $o/kernels/test_data.o alone"),
    ("kernels/host/*", "$o/kernels/test_device.o $o/kernels/test_data.o"),
    ("reference/*", "-lmpfr -lgmp"),
    ("suites/block_sparse/test_fluxion", "wrap=ha_pool_run"),
    ("suites/block_sparse/test_options", "wrap=ha_pool_start_groups wrap=ha_pool_run"),
    ("suites/test_steps", "wrap=ha_alloc wrap=ha_grow wrap=ha_device_alloc"),
    ("suites/parts/test_ahead", "$o/datasets/test_file.o"),
    ("suites/variants/test_bench_passes", "wrap=ha_now_ns wrap=ha_speed_least wrap=ha_disturbed_judge wrap=ha_timeline_dropped wrap=getrusage"),
    ("suites/variants/test_states", "wrap=ha_memory_available"),
    ("suites/variants/test_pass", "wrap=ha_now_ns wrap=ha_ticks wrap=ha_had_cores_alone"),
    ("suites/variants/test_session", "wrap=ha_alloc"),
    ("suites/variants/test_run", f"{DRIVE} {REHEARSAL} wrap=statvfs"),
    ("suites/variants/test_follow", f"{DRIVE} $o/datasets/model/fake_gguf.o"),
    ("suites/variants/test_case", f"$o/suites/variants/fake_suites.o {FAKES}"),
    ("suites/variants/test_fit", f"$o/suites/variants/fake_learner.o {DRIVE}"),
    ("suites/variants/*", DRIVE),
    ("suites/kernels/test_limit", f"{REHEARSAL} wrap=ha_now_ns wrap=getrusage"),
    ("suites/kernels/test_chance", DRIVE),
    ("suites/kernels/*", f"{DRIVE} {REHEARSAL}"),
    ("suites/device/*", DRIVE),
    ("suites/defects/*", f"{DRIVE} wrap=ha_program_folder"),
    ("suites/link/test_link", f"{DRIVE} wrap=ha_disturbed_judge"),
    ("suites/merge/*", DRIVE),
    ("*", ""),
]

# Files that a test opens besides those of its program, and what it is told besides how much to run ($scope).
NEEDS = {
    "harness/compare/test_compare": "results/schema/compare.schema.json",
    "harness/compare/test_side_by_side": "results/schema/compare.schema.json",
    "harness/compare/test_fleet_read": "results/schema/fleet.schema.json",
    "harness/engine/test_hostile": "$o/t/hostile.so",
    "harness/engine/test_plugin": "$o/t/plugins",
    "harness/fleet/test_attempt": "results/schema/rank.schema.json",
    "harness/report/test_env": "results/schema/env.schema.json",
    "harness/report/test_schema": "results/schema/night.schema.json results/schema/compare.schema.json "
    "results/schema/rank.schema.json docs/nightly.md docs/compare.md docs/fleet.md",
    "harness/tune/test_file": "kernels/plans/amd-epyc-zen4-2core.csv kernels/plans/intel-xeon-amx-2core.csv",
    "kernels/cuda/test_blas": "$o/t/fakes",
    "kernels/cuda/test_cupti": "$o/t/fakes",
    "kernels/cuda/test_gdr": "$o/t/fakes",
    "kernels/cuda/test_library": "$o/t/fakes",
    "kernels/cuda/test_meters": "$o/t/fakes",
    "kernels/cuda/test_perturb": "$o/t/fakes",
    "kernels/cuda/test_trace": "$o/t/fakes",
    "suites/defects/test_defects": "$o/t/defects.so",
    "suites/defects/test_drawn": "$o/t/defects.so",
    "suites/device/test_device": "$o/defects.so",
    "suites/merge/test_cases": "docs/merging.md",
    "suites/merge/test_exec": "docs/merge_exec.py",
    "suites/merge/test_planted": "$o/defects.so",
    "suites/merge/test_plugin_merge": "$o/t/merge_template.so $o/t/merge_hostile.so $o/t/merge_device.so $o/ha_null.so",
    "suites/merge/test_suite": "$o/t/merge_template.so $o/t/merge_hostile.so $o/t/hostile.so $o/ha_null.so",
    "suites/kernels/test_cpu": "suites/kernels/cpu_kernels.suite",
    "suites/test_coverage": "suites/check.suite suites/kernels/cpu_kernels.suite",
    "suites/variants/test_check": "$o/t/plugins",
    "suites/variants/test_listed": "$o/ha_null.so",
    "suites/variants/test_repeat": "$o/defects.so",
    "suites/variants/test_run": "$o/t/wrong_scale.so",
    "suites/variants/test_session": "$o/ha_null.so",
}
ARGS = {
    "harness/compare/test_fleet": "few",
    "harness/compare/test_nights": "few",
    "harness/engine/test_hostile": "$o/t/hostile.so",
    "suites/device/test_device": "$o/defects.so",
    "suites/variants/test_repeat": "$o/defects.so",
}
# with the polling of a run that is timed, which passive leaves out
ENV = {
    "kernels/host/test_stress": "OMP_WAIT_POLICY=active",
    "kernels/host/test_streams": "OMP_WAIT_POLICY=active",
}

# Profiles of a test. Release runs all tests. clang runs ARITHMETIC. The address and undefined-behaviour sanitizer leaves TIMED
# out, as it bends clocks, and COUNTED, which go through long lists and touch little memory. The thread sanitizer leaves out TIMED, and ARITHMETIC and ONE_THREAD, which have no second thread.
TIMED = """harness/measure/test_calibrate harness/measure/test_ceilings harness/measure/test_meter harness/measure/test_paired
    suites/kernels/test_measure""".split()
COUNTED = ["suites/test_coverage"]
ARITHMETIC = """kernels/test_[!a]* reference/* harness/base/test_numeric harness/base/test_fastest_read
    harness/base/test_fingerprint harness/base/test_rng harness/base/test_stats""".split()
ONE_THREAD = """datasets/test_[!d]* harness/compare/* harness/doctor/*
    harness/base/test_array harness/base/test_c* harness/base/test_device_arena harness/base/test_placement
    harness/base/test_registry harness/base/test_sa* harness/base/test_storage harness/base/test_text harness/base/test_why
    harness/engine/test_p* harness/engine/test_covering harness/engine/test_serve harness/engine/test_at_once harness/fleet/test_rank
    harness/fleet/test_attempt harness/measure/test_[!be]* harness/report/test_[!f]* harness/report/test_fi*
    harness/report/test_folder harness/report/test_folder_reports harness/tune/test_[!mw]*
    kernels/cuda/test_cupti kernels/cuda/test_gdr kernels/cuda/test_library kernels/cuda/test_match kernels/cuda/test_meters
    kernels/cuda/test_perturb suites/test_coverage suites/defects/* suites/device/* suites/link/test_claims
    suites/merge/test_[bcdejr]* suites/merge/test_point suites/merge/test_shrink suites/variants/test_bench
    suites/variants/test_c[al]* suites/variants/test_re*""".split()

# `ninja check` runs all tests in release but these, which cost more than they tell a newcomer, and of those that read files
# of strangers QUICK_ASAN under the address sanitizer: one program with as little of the rest as it needs (`few` in
# scripts/profile.ninja). `ninja check-all` runs everything.
SLOW = """harness/compare/test_fleet harness/engine/test_hostile harness/engine/test_random harness/report/test_folder_kill
    reference/test_bound reference/test_mpfr suites/device/test_device suites/device/test_chance suites/kernels/test_chance
    suites/merge/test_attention suites/merge/test_cases suites/merge/test_defects suites/merge/test_point
    suites/block_sparse/test_failures suites/merge/test_suite suites/test_coverage suites/variants/test_order""".split()
QUICK_ASAN = """harness/base/* harness/compare/test_read harness/report/test_folder harness/report/test_field
    datasets/test_[!f]*""".split()


def fits(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def sources(pattern):
    found = [p for p in glob.glob(pattern) if re.search(r"/[a-z][a-z0-9_]*\.(c|cu)$", p)]
    return sorted(p for p in found if not fits(p, ELSEWHERE))


def stem(path):
    return os.path.splitext(path)[0]


def is_test(path):
    """Whether a file test_* has tests; the others help them."""
    return re.search(r"^(DEVICE_TEST|TEST|TEST_WITH|TEST_MAIN|    TEST)\b", open(path, encoding="utf-8").read(), re.M) is not None


def kind(path):
    """The rule that compiles a file: build.ninja."""
    if path.endswith(".cu"):
        return "cxx"
    if os.path.basename(path).startswith("test_") and path not in HOT_TESTS and path != "harness/base/test_main.c":
        return "cc_test"
    return "cc" if fits(path, HOT) or path.endswith("test_main.c") or path in HOT_TESTS else "cc_cold"


def flags(path):
    return next((f for pattern, f in FLAGS.items() if fnmatch.fnmatchcase(path, pattern)), "")


class Graph:
    def __init__(self):
        self.lines = []
        self.logs = {}  # test: log
        self.recipe = {}

    def build(self, out, rule, inputs, implicit=(), **variables):
        self.lines.append(f"build {out}: {rule} {' '.join(inputs)}" + (f" | {' '.join(implicit)}" if implicit else ""))
        self.lines += [f"  {name} = {value}" for name, value in variables.items() if value]

    def object(self, path, out, isa):
        """The object of a file; `isa`: compiled for that instruction set."""
        probe = [f"$o/probe/{isa}.rsp"] if isa and ISAS[isa][0] else []
        words = [f"@{p}" for p in probe] + [ISAS[isa][1] if isa else "", flags(path)]
        if path == "harness/base/team_openmp.c":
            probe = ["$o/openmp"]
        self.build(out, "cc" if isa else kind(path), [path], probe, isa=" ".join(w for w in words if w))
        return out

    def archive(self, name, patterns):
        members = []
        for path in [p for pattern in patterns.split() for p in sources(pattern)]:
            folder, base = os.path.split(path)
            isas = VECTORS if folder == "kernels/vectors" else [os.path.basename(folder)]
            for isa in isas:
                place = f"kernels/{isa}" if len(isas) > 1 else folder
                out = self.object(path, f"$o/{place}/{stem(base)}.o", isa if isa in ISAS else "")
                if not base.startswith(("test_", "fake_")) and not fits(path, BY_NAME):
                    members.append(out)
        self.build(f"$o/{name}.a", "ar", members)

    def tests(self, folder):
        tests, helpers = [], []
        for path in sources(f"{folder}/*"):
            if os.path.basename(path).startswith("test_") and path != "harness/base/test_main.c":
                (tests if is_test(path) else helpers).append(path)
        programs = {}
        for path in tests:
            recipe = next(r for p, r in RECIPES if fnmatch.fnmatchcase(stem(path), p))
            programs.setdefault(f"{recipe} {path}" if "own" in recipe.split() else recipe, []).append(path)
        most = max(programs, key=lambda r: len(programs[r]), default=None)
        for recipe, paths in programs.items():
            name = folder if recipe == most and len(paths) > 1 else stem(paths[0])
            self.program(f"$o/t/{name.replace('/', '_')}", paths, recipe.split(), helpers)

    def program(self, program, paths, words, helpers):
        libs = [f"-Wl,--wrap={w[5:]}" for w in words if w.startswith("wrap=")] + [w for w in words if w.startswith(("-", "@"))]
        bfd = "bfd" in words
        objects = [f"$o/{stem(p)}.o" for p in paths]
        objects += [f"$o/{stem(h)}.o" for h in helpers if "alone" not in words and not fits(h, PLUGINS)]
        objects += [w for w in words if w.startswith("$o/")]
        self.build(program, "test", ["$main", *objects], ["$o/all"] + [w[1:] for w in words if w.startswith("@")], libs=" ".join((["-fuse-ld=bfd"] if bfd else []) + libs), lld=" " if bfd else "")
        for path in paths:
            name = stem(path)
            self.logs[name] = f"$o/{name}.log"
            self.recipe[name] = " ".join(words)
            args = f"{os.path.basename(name)} $scope {ARGS.get(name, '')}".strip()
            env = f"$env {ENV[name]}" if name in ENV else ""
            pool = "clocked" if fits(name, TIMED) else ""
            self.build(f"$o/{name}.log", "run", [program], ["scripts/run.sh", *NEEDS.get(name, "").split()], args=args, env=env, pool=pool)

    def tiers(self):
        """What each profile runs, and each tier."""
        def which(*conditions):
            return [log for name, log in sorted(self.logs.items()) if all(c(name) for c in conditions)]
        timed = lambda name: not fits(name, TIMED)
        arithmetic = lambda name: fits(name, ARITHMETIC)
        self.build("$o/tests_release.sum", "tally", which())
        self.build("$o/tests_clang.sum", "tally", which(arithmetic))
        self.build("$o/tests_asan.sum", "tally", which(timed, lambda n: not fits(n, COUNTED)))
        self.build("$o/tests_tsan.sum", "tally", which(timed, lambda n: not fits(n, ARITHMETIC + ONE_THREAD)))
        self.build("$o/quick_release.sum", "tally", which(lambda n: not fits(n, SLOW)))
        few = [n for n in sorted(self.logs) if fits(n, QUICK_ASAN) and ("own" not in self.recipe[n] and "fake_registry" not in self.recipe[n])]
        objects = sorted({f"$o/{n}.o" for n in few} | {"$o/datasets/test_file.o", "$o/harness/report/test_folder_open.o", "$o/harness/report/fake_suite.o", "$o/harness/engine/fake_registry.o"})
        self.build("$o/t/few", "test_few", ["$main", *objects], ["$o/few"])
        for name in few:
            self.build(f"$o/quick/{name}.log", "run", ["$o/t/few"], ["scripts/run.sh", *NEEDS.get(name, "").split()], args=f"{os.path.basename(name)} small")
        self.build("$o/few.sum", "tally", [f"$o/quick/{n}.log" for n in few])


def plugin():
    """The device for GPUs: the C files of kernels/cuda against the toolkit, the .cu files by nvcc, and their PTX."""
    g = Graph()
    c = ["kernels/regions.c", *(p for p in sources("kernels/cuda/*.c") if not os.path.basename(p).startswith(("test_", "fake_")))]
    cu = [p for p in sources("kernels/cuda/*.cu") if not os.path.basename(p).startswith("test_")]
    members = []
    for path in c + cu:
        by_nvcc = path.endswith(".cu")
        out = f"$cuda_o/{stem(os.path.basename(path))}{'.cu' if by_nvcc else ''}.o"
        g.build(out, "nvcc" if by_nvcc else "cuda_cc", [path], ["$cuda_o/root"] + ["$cuda_o/arch.rsp"] * by_nvcc)
        if path != "kernels/cuda/device.c":
            members.append(out)
    g.build("$cuda_o/plugin.a", "ar", members)
    ptx = [f"$ptx_o/{stem(os.path.basename(p))}.ptx" for p in cu]
    for path, out in zip(cu, ptx):
        g.build(out, "ptx", [path], ["$ptx_o/nvcc", "kernels/cuda/ptx/compile.sh"])
    kernels = [out for path, out in zip(cu, ptx) if "__global__" in open(path, encoding="utf-8").read() or "attend_mma" in path]
    return [f"ptx_files = {' '.join(kernels)}", *g.lines, f"build $ptx_o/files: phony {' '.join(kernels)}"]


def write(path, lines):
    text = "# Written by scripts/graph.py from the folders of sources; do not edit.\n" + "\n".join(lines) + "\n"
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        if sys.argv[1:] == ["--check"]:
            sys.exit(f"{path} is older than the folders: run scripts/graph.py")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.utime("build.ninja")  # ninja reads all of it again


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    g = Graph()
    for isa, (probe, _) in ISAS.items():
        if probe:
            g.build(f"$o/probe/{isa}.rsp", "probe", ["|", "scripts/probe-cc.sh"], want=probe)
    for name, patterns in ARCHIVES.items():
        g.archive(name, patterns)
    for folder in sorted({os.path.dirname(test) for test in glob.glob("*/**/test_*.c", recursive=True)}):
        g.tests(folder)
    g.tiers()
    write("scripts/graph.ninja", g.lines)
    write("scripts/plugin.ninja", plugin())


if __name__ == "__main__":
    main()
