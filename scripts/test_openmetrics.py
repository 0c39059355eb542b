#!/usr/bin/env python3
"""test_openmetrics.py PROGRAM: what `habench report --format openmetrics` writes is text that OpenMetrics and Prometheus take, with the
values of figures.csv. Where promtool, prometheus and prometheus-node-exporter are, they read it for real: the alerts of
scripts/fleet/prometheus fire as they should, and every query of scripts/fleet/grafana.json has an answer. Everything listens on the loopback."""

import csv
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLEET = os.path.join(ROOT, "scripts", "fleet")
count = {True: 0, False: 0}
SCALES = {"ns": 1e-9, "us": 1e-6, "bytes": 1, "GB/s": 1e9, "10^9 bytes/s": 1e9, "GFLOP/s": 1e9, "tokens": 1, "tokens/s": 1, "": 1}
ENDINGS = {"ns": "_seconds", "us": "_seconds", "bytes": "_bytes", "GB/s": "_bytes_per_second", "10^9 bytes/s": "_bytes_per_second",
           "GFLOP/s": "_operations_per_second", "tokens": "_tokens", "tokens/s": "_tokens_per_second", "": "_ratio"}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:600]}")


def end():
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


def report(folder, *more):
    done = subprocess.run([PROGRAM, "report", folder, "--format", "openmetrics", *more], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


# ---- the format ------------------------------------------------------------------------------------------------------

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? (-?[0-9.]+(?:e[-+]?[0-9]+)?)")


def samples_of(text):
    """{name: {labels: value}}; what the grammar does not allow fails."""
    families, name = {}, None
    lines = text.split("\n")
    expect("it ends with # EOF", lines[-2:] == ["# EOF", ""], lines[-2:])
    for line in lines[:-2]:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            expect(f"{name} stands together", name not in families)
            families[name] = {}
        elif line.startswith("# TYPE "):
            expect("a type", line == f"# TYPE {name} gauge", line)
        elif line.startswith("# UNIT "):
            unit = line.split(" ")[3]
            expect("a name ends with its unit", line.split(" ")[2] == name and name.endswith("_" + unit), line)
        else:
            m = SAMPLE.fullmatch(line)
            if not m or m[1] != name:
                expect("a sample of its family", False, line)
                continue
            expect("a series is there once", m[2] not in families[name], line)
            families[name][m[2] or ""] = float(m[5])
    return families


def labels(case, mode):
    return '{case="%s",mode="%s"}' % (case.replace("\\", "\\\\").replace('"', '\\"'), mode)


def check_values(families, record, mode):
    """Against medians of figures.csv, computed here; no process of it was disturbed."""
    values = {}
    with open(os.path.join(record, "figures.csv"), newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            if row["better"] in ("less", "more") and row["value"]:
                if row["unit"] in SCALES:
                    values.setdefault((row["case_id"], row["figure"], row["unit"]), []).append(float(row["value"]))
    expect("figures were read", len(values) > 0)
    seen = 0
    for (case, figure, unit), x in values.items():
        want = statistics.median(x) * SCALES[unit]
        stem = re.sub("_(ns|us|bytes|GBps|GFLOPps|tokens|tokens_per_s)$", "", "_" + figure) or "_run"
        found = [families[n][labels(case, mode)] for n in families
                 if n == "habench" + stem + ENDINGS[unit] and labels(case, mode) in families[n]]
        good = len(found) == 1 and abs(found[0] - want) <= 1e-8 * abs(want)
        seen += good
        if not good:
            expect(f"{case} {figure}", False, (found, want))
    expect("each figure is told once, in its base unit", seen == len(values), (seen, len(values)))


def write_record(folder, rows, build="b1", verdict="pass"):
    os.makedirs(folder)
    with open(os.path.join(folder, "env.json"), "w", encoding="utf-8") as f:
        json.dump({"schema_version": 2, "mode": "run", "build": build, "cpu": 'A "cpu" \\ of\n two lines', "cores": 2, "devices": [],
                   "memory_bytes": 1 << 30, "runs": [{"run_id": "2026-01-02T03:04:05Z.1", "command": "habench"}]}, f)
    columns = ["schema_version", "run_id", "case_id", "process", "suite", "figure", "value", "lo", "hi", "samples", "unit", "better", "verdict"]
    with open(os.path.join(folder, "figures.csv"), "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f, quoting=csv.QUOTE_ALL)
        w.writerow(columns)
        for case, process, figure, value, unit, better in rows:
            w.writerow(["2", "2026-01-02T03:04:05Z.1", case, process, "s", figure, value, "", "", 1, unit, better, verdict])


def check_format(tmp):
    rows = [(case, p, figure, value * (p + 1), unit, better)
            for case in ("a:x=1", 'b:y="q\\"', "machine:z=1") for p in range(3)
            for figure, value, unit, better in (("step_ns", 1000.0, "ns", "less"), ("ns", 7.0, "ns", "less"), ("GBps", 2.5, "GB/s", "more"),
                                                ("gpu_idle", 0.25, "", "less"), ("peak_GFLOPps", 3.5, "GFLOP/s", "more"),
                                                ("kv_cpu_bytes", 4096.0, "bytes", "less"), ("h2d_link_GBps", 9.5, "10^9 bytes/s", "more"),
                                                ("tokens_per_s", 11.0, "tokens/s", "more"), ("keys_tokens", 5.0, "tokens", "less"), ("odd_parsecs", 3.0, "parsec", "less"),
                                                ("mass_min", 0.5, "", "neither"))]
    folder = os.path.join(tmp, "hostile")
    write_record(folder, rows)
    code, text, said = report(folder)
    expect("a record is told", code == 0, said)
    families = samples_of(text)
    expect("a step is seconds, the median of three processes", families.get("habench_step_seconds", {}).get(labels("a:x=1", "run")) == 2e-6, text)
    expect("a figure that is all unit has a name", labels("a:x=1", "run") in families.get("habench_run_seconds", {}), text)
    check_values({name: x for name, x in families.items() if name not in ("habench_cases", "habench_build_info")}, folder, "run")
    expect("quotes and backslashes are escaped", labels('b:y="q\\"', "run") in families.get("habench_step_seconds", {}), text)
    expect("what is neither good nor bad is left out", "mass_min" not in text)
    expect("an unknown unit is left out", "parsec" not in text)
    expect("the machine's text stays one line", len(families.get("habench_build_info", {})) == 1, text)
    shutil.copytree(folder, folder + "-2")
    for words, what in (((folder, folder + "-2"), "two folders"), ((os.path.join(tmp, "none"),), "a folder that is not there")):
        code, text, said = report(*words)
        expect(f"{what}: usage, in one line", code == 64 and not text and said.count("\n") == 1, said)
    out = os.path.join(tmp, "habench.prom")
    code, text, said = report(folder, "-o", out)
    expect("-o writes it whole", code == 0 and open(out, encoding="utf-8").read().endswith("# EOF\n"), said)


# ---- for real --------------------------------------------------------------------------------------------------------

def promtool(tmp, text):
    if not shutil.which("promtool"):
        print("SKIP: promtool is not here, and reads no metrics and no rules: apt install prometheus")
        return
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    expect("promtool has nothing to say", done.returncode == 0 and not done.stderr, done.stderr + done.stdout)
    rules = os.path.join(FLEET, "prometheus")
    for words in (["check", "rules", "habench.rules.yml"], ["test", "rules", "habench.rules_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=rules, capture_output=True, text=True, check=False)
        expect("promtool " + " ".join(words), done.returncode == 0, done.stdout + done.stderr)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def queries(dashboard):
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$instance", ".*")


def wait_for(ready, seconds=60):
    for _ in range(seconds * 4):
        try:
            if ready():
                return True
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.25)
    return False


def check_real(tmp, texts):
    """One node_exporter for each text, and a Prometheus that asks them."""
    exporter, server = shutil.which("prometheus-node-exporter"), shutil.which("prometheus")
    if not exporter or not server:
        print("SKIP: no Prometheus here that reads it for real: apt install prometheus prometheus-node-exporter")
        return
    started, targets = [], []
    try:
        for i, text in enumerate(texts):
            folder, port = os.path.join(tmp, f"textfile{i}"), free_port()
            os.makedirs(folder)
            with open(os.path.join(folder, "habench.prom"), "w", encoding="utf-8") as f:
                f.write(text)
            started.append(subprocess.Popen([exporter, "--collector.disable-defaults", "--collector.textfile",
                                             f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            targets.append(f"127.0.0.1:{port}")
        port = free_port()
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [os.path.join(FLEET, "prometheus", "habench.rules.yml")],
                  "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": targets}]}]}
        with open(os.path.join(tmp, "prometheus.yml"), "w", encoding="utf-8") as f:
            json.dump(config, f)  # JSON is YAML
        started.append(subprocess.Popen([server, f"--config.file={tmp}/prometheus.yml", f"--storage.tsdb.path={tmp}/tsdb",
                                         f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        expect("Prometheus has read every machine", wait_for(lambda: len(ask(port, "query", query="habench_build_info")["result"]) == len(texts)))
        fault = ask(port, "query", query="node_textfile_scrape_error")["result"]
        expect("node_exporter could read the files", len(fault) == len(texts) and all(s["value"][1] == "0" for s in fault), fault)
        with open(os.path.join(FLEET, "grafana.json"), encoding="utf-8") as f:
            dashboard = json.load(f)
        for title, query in queries(dashboard):
            expect(f"dashboard, {title}", ask(port, "query", query=query)["result"], query)
        slow = set()

        def fired():
            slow.update(a["labels"]["instance"] for a in ask(port, "alerts")["alerts"] if a["labels"]["alertname"] == "HabenchMemoryBelowItsKind")
            return len(slow) > 0
        expect("the alert for slow memory fires, of that machine alone", wait_for(fired) and slow == {targets[-1]}, slow)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def slower_memory(text):
    return re.sub(r'(habench_beside_read_bytes_per_second\{case="machine"[^}]*\}) (\S+)', lambda m: f"{m[1]} {float(m[2]) * 0.9:.9g}", text)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    night = os.path.join(ROOT, "results", "2026-11-27-epyc-2core-nights", "01")
    with tempfile.TemporaryDirectory() as folder:
        check_format(folder)
        code, text, said = report(night)
        expect("a night is told", code == 0 and "habench_exit_code" in text, said)
        samples_of(text)
        promtool(folder, text)
        check_real(folder, [text, text, slower_memory(text)])
    end()
