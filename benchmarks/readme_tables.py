"""What README.md and docs/benchmarks.md say about each recorded file: a sentence on how it was measured, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from benchmarks.attention_tables import attention, encoders, kernels
from benchmarks.decoder_tables import decoder
from benchmarks.gpt2_tables import gpt2
from benchmarks.grading_tables import labs, labs_alone
from benchmarks.markdown import Data, device, error, page, ratio, ratios, source, table, tensorrt, those, torch, versions
from benchmarks.raw_calls_tables import raw_calls
from benchmarks.separation_tables import separation
from course_lib.benchmark import recorded

HEADLINE = "headline_h200"  # the record of README's results


def first_engine(data: Data) -> str:
    names = {"digits wide": "digits classifier, wide", "ResNet-50": "ResNet-50 (random weights)"}
    rows = {(row["network"], row["batch"], row["precision"]): row for row in data["rows"]}
    lines = []
    for network, title in names.items():
        for batch in (1, 32):
            engines = [rows[network, batch, precision] for precision in ("fp32", "fp16")]
            cells = [cell for row in engines for cell in (ratio(row["speedup"], 1), error(row["relative_error"]))]
            lines.append((title, batch, *cells))
    about = f"""Measured on one {device(data)}, {tensorrt(data)} against torch {torch(data)} eager in FP32
        (TF32 in its convolutions), two interpreters interleaved, device time of one call, {source("first_engine_h200", data)};
        ratio [95 % interval]). Inputs are uniform noise."""
    after = "Eager here is PyTorch as it comes: CUDA graphs and `torch.compile`, which also cut launch overhead, were not part of this run."
    head = ("network", "batch", "engine FP32/TF32", "relative error", "engine FP16", "relative error")
    return page(about, table(head, lines), after)


def runtime(data: Data) -> str:
    rows: dict[str, list[Data]] = {}
    for row in data["rows"]:
        rows.setdefault(row["feature"], []).append(row)
    graphs, streams, refit = rows["CUDA graph"], rows["streams"], rows["refit"][0]
    scratch = rows["scratch memory of 4 contexts"][0]
    megabytes = [scratch[key] / 1e6 for key in ("bytes_shared", "bytes_separate")]
    lines = [
        (f"CUDA graph, batch {those(graphs, 'batch')}", "device time of one run", ratios(graphs, "device_speedup")),
        (
            f"{those(streams, 'streams')} streams, batch 8",
            "requests per second, copies included",
            ratios(streams, "throughput_gain"),
        ),
        ("refit of the last layer", f"{1e3 * refit['refit_s']:.0f} ms instead of a build of {refit['build_s']:.0f} s", ""),
        ("scratch memory shared by 4 contexts", f"{megabytes[0]:.0f} MB instead of {megabytes[1]:.0f} MB", ""),
    ]
    about = f"""What the runtime's features are worth on one {device(data)}, digits classifier (wide) in FP32/TF32,
        {tensorrt(data)}, {source("runtime_h200", data)}; ratio [95 % interval] within one run).
        Inputs are uniform noise."""
    return page(about, table(("feature", "measured", "gain"), lines))


def rope(data: Data) -> str:
    lines = []
    for row in data["rows"]:
        shape, speed = tuple(row["shape"]), row["speed_over"]
        if shape[1] < 4096 and row["dtype"] != "float16":
            continue
        copied = speed.get("copy") or speed["negation"]
        us = row["us"]["ours"]
        time = f"{us:.0f} us" if us >= 100 else f"{us:.1f} us"
        time += f", an empty kernel {row['us']['empty']:.1f}" if shape[1] == 1 else ""
        kind = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}[row["dtype"]]
        of_copy = ratio(copied, 2, unit="")
        lines.append((f"{' x '.join(map(str, shape))}, {kind}", time, of_copy, ratio(speed["compiled"], 2)))
    about = f"""The course's RoPE kernel on one {device(data)}, inputs rotated so that no cache holds them, device time under CUDA graphs
        compared with the faster of two copies and with `torch.compile`, torch {torch(data)}, {source("rope_h200", data)}; ratio of speeds
        [95 % interval] within one run):"""
    return page(about, table(("shape, type", "time", "of a copy's speed", "over torch.compile"), lines))


def timing(data: Data) -> str:
    lines = []
    for row in data["rows"]:
        if "failed" in row:
            lines.append((row["kernel"], f"failed: {row['failed']}", "", ""))
            continue
        lines.append((row["kernel"], f"{row['ours_us']:.4g} us", ratio(row["over_do_bench"], 3), ratio(row["over_graph"], 3)))
    about = f"""How accurate the course's clock is: `measure` compared with `triton.testing.do_bench` and with CUDA graphs replayed
        under the host's clock, {device(data)}, torch {torch(data)}, Triton {data["versions"]["triton"]},
        {source("timing_h200", data)}; ratio ours / theirs [95 % interval]):"""
    return page(
        about, table(("kernel", "one launch", "over do_bench", "many launches, over the graph"), lines), _verdicts(data)
    )


def _verdicts(data: Data) -> str:
    """The same comparison again and again, and work that the events do not see."""
    said = []
    for pair in data.get("verdicts", []):
        tiers = " and ".join(f"{count} times {tier}" for tier, count in pair["tiers"].items())
        said.append(
            f"Work that is {pair['pair']} was compared with its reference {sum(pair['tiers'].values())} times: {tiers}."
        )
    if hidden := data.get("hidden_stream"):
        times = f"{hidden['host_ms']:.2f} ms of the host's time in which its events saw {hidden['events_ms']:.2f} ms"
        said.append(f"A kernel on a hidden stream, {times}, was {'not ' if hidden['said'].startswith('not') else ''}noticed.")
    return " ".join(said)


def _fastest(data: Data, kind: Callable[[Data], str] = lambda row: row["dtype"]) -> dict[tuple[str, str, int], Data]:
    """The faster of each engine's two ways to run, plain and as a CUDA graph, by network, kind (its type) and batch size."""
    best: dict[tuple[str, str, int], Data] = {}
    for row in data["rows"]:
        key = row["network"], kind(row), row["batch"]
        if (
            row["candidate"].startswith("TensorRT")
            and "failed" not in row
            and row["ms"] < best.get(key, {"ms": float("inf")})["ms"]
        ):
            best[key] = row
    return best


def headline() -> dict[tuple[str, str, int], Data]:
    """README's results: the faster way to run each engine in FP16 and INT8, by network, type and batch size."""
    best = {key: row for key, row in _fastest({"rows": recorded(HEADLINE).rows}).items() if key[1] != "fp32"}
    networks = list(dict.fromkeys(network for network, *_ in best))
    return dict(sorted(best.items(), key=lambda item: (networks.index(item[0][0]), item[0][1:])))


def networks_sentence(data: Data) -> str:
    """README's results in words: the smallest and the largest ratio, and on which networks each side wins at every batch size."""
    best = headline()
    speeds = {key: rival(row)["median"] for key, row in best.items()}
    low, high = min(speeds, key=speeds.__getitem__), max(speeds, key=speeds.__getitem__)
    networks = dict.fromkeys(network for network, *_ in best)
    slower = [name for name in networks if all(speed < 1 for key, speed in speeds.items() if key[0] == name)]
    fastest, slowest = (f"{title(*key[:2]).replace(', ', ' in ')} at batch {key[2]}" for key in (high, low))
    text = f"""On {data["device"]} GPUs, the engines of {tensorrt(data)} are up to {speeds[high]:.2f} times as fast as the fastest PyTorch
        variant in FP16 ({fastest}). The lowest ratio is {speeds[low]:.2f}, for {slowest}."""
    return page(text + f" PyTorch is faster on {' and '.join(slower)}." * bool(slower))


def title(network: str, dtype: str) -> str:
    """What a row of the results is called."""
    return f"{network}, INT8" if dtype == "int8" else network


def networks_summary(data: Data) -> str:
    """Engines in FP16 and INT8 against PyTorch's fastest way in FP16, which is the harder comparison, then against eager."""
    best = headline()
    batches = sorted({batch for _, _, batch in best})
    lines = [
        (
            title(network, dtype),
            *(_fastest_rival(best.get((network, dtype, batch))) for batch in batches),
            _over_eager_fp16(best.get((network, dtype, batches[-1]))),
        )
        for network, dtype in dict.fromkeys(key[:2] for key in best)
    ]
    worst = error(max(row["relative_error"] for (_, dtype, _), row in best.items() if dtype == "int8"))
    about = f"""Speedup of TensorRT over the fastest PyTorch variant (eager, `torch.compile`, CUDA graph, or both) [95 % interval], FP16
        on both sides. Engines in INT8 are also compared with FP16, because eager has no INT8
        convolutions on GPUs; their relative error is at most {worst}.
        The last column is over eager. Below 1, PyTorch is faster. {_measured(data)} Weights are random, except for the detector's."""
    return page(about, table(("network", *(f"batch {batch}" for batch in batches), f"over eager, batch {batches[-1]}"), lines))


def _measured(data: Data) -> str:
    """Where, what and how the results of README were measured."""
    return f"""{device(data)}, {tensorrt(data)} against torch {torch(data)} of 2026, {source(HEADLINE, data)}). Engines
        in CUDA graphs and PyTorch's graphs are timed by replays, other engines by calls in a row, eager and `torch.compile` by the second
        of two calls."""


def networks(data: Data) -> str:
    """Every engine over PyTorch's fastest way: of its two ways to run, plain and as a CUDA graph, the faster one."""
    best = _fastest(data)
    lines = [
        (
            network,
            row["candidate"].removeprefix("TensorRT ").replace("fp", "FP").replace("int", "INT"),
            batch,
            _fastest_rival(row),
            f"{row['ms']:.3f} ms",
            error(row["relative_error"]) + (f", mean AP {row['mean_ap']:.3f}" if "mean_ap" in row else ""),
        )
        for (network, _, batch), row in best.items()
    ]
    layers = {network: row for (network, dtype, _), row in best.items() if dtype == "int8"}
    counts = ", ".join(f"{name} {row['kernel_dtypes'].get('Int8', 0)} of {row['kernels']}" for name, row in layers.items())
    about = f"""Every engine of the table above: its speedup [95 % interval] over PyTorch's fastest variant in the same type, INT8 over
        FP16, and its relative error to eager FP32. FP32 has TF32 on both sides. An engine has three optimization profiles.
        {_measured(data)}
        Int8 layers: {counts}. {" ".join(data["remarks"])} `python benchmarks/networks.py show` prints every row."""
    head = ("network", "engine", "batch", "over PyTorch's fastest", "time", "relative error")
    return page(about, table(head, lines))


def rival(row: Data) -> Data:
    """The speed over PyTorch's fastest variant, with its interval."""
    rivals = [speed for name, speed in row["speedup"].items() if name != "eager fp32" or row["same_dtype"] == name]
    return min(rivals, key=lambda speed: speed["median"])


def _fastest_rival(row: Data | None) -> str:
    return "not measured" if row is None else ratio(rival(row), 2)


def _over_eager_fp16(row: Data | None) -> str:
    return ratio(row["speedup"][row["same_dtype"]], 2) if row else "not measured"


def gpus(data: Data, name: str = "gpus_h200") -> str:
    """Rates by the number of GPUs: the median of the runs with their smallest and largest.

    Args:
        name: of the record.
    """
    lines = []
    for count in sorted({row["gpus"] for row in data["rows"]}):
        rows = [row for row in data["rows"] if row["gpus"] == count]
        done = [row for row in rows if "failed" not in row]
        if not done:
            lines.append((count, rows[0]["submissions"], 0, f"failed: {rows[0]['failed']}", "", "", ""))
            continue
        full, overlapping = (sum(row[name] for row in done) for name in ("full_marks", "overlapping"))
        gains = [row["rate_over_one_gpu"] for row in done if "rate_over_one_gpu" in row]
        rates = [row["submissions_per_minute"] for row in done]
        lines.append(
            (
                count,
                done[0]["submissions"],
                len(done),
                f"{full} of {sum(row['submissions'] for row in done)}",
                _median(rates, 1),
                _median(gains, 2, "x"),
                overlapping,
            )
        )
    about = f"""Grading lab 01's reference with several GPUs of one host, one worker per GPU, {device(data)}, {versions(data)},
        {source(name, data)}; median [smallest-largest] of the runs; from the signed verdicts: timings that overlapped
        another on the same GPU). {" ".join(f"{one[0].upper()}{one[1:]}." for one in data.get("remarks", []))}"""
    heads = ("GPUs", "submissions", "runs", "full marks", "submissions per minute", "over one GPU", "overlapping timings")
    return page(about, table(heads, lines))


def _median(values: Sequence[float], places: int, unit: str = "") -> str:
    """The median with the smallest and largest value; alone if there is one value, empty without any."""
    if not values:
        return ""
    middle, *ends = (f"{value:.{places}f}" for value in (median(values), min(values), max(values)))
    return f"{middle}{unit} [{'-'.join(ends)}]" if len(values) > 1 else middle + unit


def spread(data: Data) -> str:
    """Requests for one, two and four processes, each with an engine on its own GPU."""
    rows = {(row["network"], row["batch"], row["run"], row["gpus"]): row for row in data["rows"]}
    lines = []
    for network, batch in dict.fromkeys((network, batch) for network, batch, *_ in rows):
        mine = {(run, gpus): row for (name, size, run, gpus), row in rows.items() if (name, size) == (network, batch)}
        one = f"{mine[1, 1]['requests_per_second']:.0f}"
        lines.append((network, batch, one, *(ratio(mine[key]["gain"], 2) for key in ((0, 2), (1, 2), (1, 4)))))
    about = f"""Requests spread over GPUs of one host, in FP16. Each GPU has one process with an engine. For each process, a thread sends
        the next request when the last is answered. A request is one batch, and its time includes pipes and copies. {device(data)},
        {tensorrt(data)}, {source("spread_h200", data)}; ratio of rates [95 % interval] over one GPU in the same run, round by round).
        {" ".join(f"{one[0].upper()}{one[1:]}." for one in data["remarks"])}"""
    head = (
        "network",
        "batch",
        "one GPU (run 1), requests per second",
        "two GPUs (run 0)",
        "two GPUs (run 1)",
        "four GPUs (run 1)",
    )
    return page(about, table(head, lines))


def networks_cpu(data: Data) -> str:
    """Speedups over eager, and what they cost."""
    return _on_a_cpu(data, "networks_cpu")


def litert_cpu(data: Data) -> str:
    """The same with LiteRT in the same run."""
    how = f"""LiteRT's files have a signature for each batch size. litert-torch {data["versions"]["litert-torch"]} converted them
        from PyTorch."""
    return _on_a_cpu(data, "litert_cpu", how)


def _on_a_cpu(data: Data, name: str, how: str = "") -> str:
    rows = {(row["network"], row["batch"], row["candidate"]): row for row in data["rows"]}
    candidates = [name for name in dict.fromkeys(row["candidate"] for row in data["rows"]) if name != "eager"]
    lines = []
    for network, batch in dict.fromkeys((row["network"], row["batch"]) for row in data["rows"]):
        eager = rows[network, batch, "eager"]
        cells = [_over_eager(rows.get((network, batch, name), {"failed": "not measured"})) for name in candidates]
        lines.append((network, batch, f"{eager['ms']:.2f} ms" if "ms" in eager else "failed", *cells))
    notes = "; ".join(filter(None, (_cost(data["rows"], name) for name in candidates)))
    about = f"""Without a GPU: {data["device"]}, {versions(data)}, {source(name, data)}; speedup over eager [95 % interval],
        interleaved, one thread each, the machine's load {data["load_at_start"]:.1f} at the start):"""
    worst = f"On held-out digits, the worst of all rows. {notes}."
    return page(about, table(("network", "batch", "eager", *candidates), lines), worst, how)


def _over_eager(row: Data) -> str:
    return "failed" if "failed" in row else ratio(row["speedup"], 2)


def _cost(rows: Sequence[Data], candidate: str) -> str:
    """The worst that a candidate did to the outputs and to the accuracy."""
    mine = [row for row in rows if row["candidate"] == candidate and "failed" not in row]
    if not mine:
        return ""
    lost = max(0.0, *(row["eager_accuracy"] - row["accuracy"] for row in mine))
    signal = min((row["sqnr_db"] for row in mine if "sqnr_db" in row), default=None)
    worst = error(max(row["relative_error"] for row in mine)) + ("" if signal is None else f" (SQNR at least {signal:.0f} dB)")
    return f"{candidate}: relative error at most {worst}, accuracy lost {100 * lost:.1f} points"


def engines(data: Data) -> str:
    """Two tables: latency over batch by profile, and everything else that has a gain."""
    rows = [row for row in data["rows"] if "failed" not in row]
    about = f"""What profiles, settings, fusion and caches are worth on one {device(data)}, {tensorrt(data)},
        {data["network"]}; {source("engines_h200", data)}; device time unless it says host; ratio [95 % interval] within one run).
        Inputs are uniform noise. {_built(rows)}"""
    return page(about, _profiles(rows), _gains(rows))


def _built(rows: Sequence[Data]) -> str:
    """How many builds shared the machine where their times are shown."""
    settings = ("workspace", "level")
    jobs = max(
        (row.get("jobs", 1) for row in rows if row["table"] == "build" and row["engine"].startswith(settings)), default=1
    )
    if jobs == 1:
        return "The engines whose build times are shown were built one at a time."
    return f"The default was built alone, the other settings {jobs} at a time: their build times are too long rather than too short."


def _profiles(rows: Sequence[Data]) -> str:
    found = {(row["batch"], row["engine"]): row for row in rows if row.get("group") == "profiles"}
    names = list(dict.fromkeys(engine for _, engine in found))
    lines = []
    for batch in sorted({batch for batch, _ in found}):
        cells = [f"{1e3 * found[batch, names[0]]['ms']:.0f} us"]
        lines.append((batch, *cells, *(ratio(found[batch, name]["speedup"], 2) for name in names[1:])))
    return table(("batch", *names[:1], *(f"{name}, over it" for name in names[1:])), lines)


def _gains(rows: Sequence[Data]) -> str:
    builds = {row["engine"]: row for row in rows if row["table"] == "build"}
    lines = []
    for group, engine in dict.fromkeys((row["group"], row["engine"]) for row in rows if "speedup" in row and "group" in row):
        if group == "profiles":
            continue
        mine = [row for row in rows if row.get("group") == group and row["engine"] == engine]
        new, old = builds[engine], builds[mine[0]["over"]]
        if group.startswith("fusion"):
            what, how = f"{engine} over {mine[0]['over']}", f"{new['kernels']} kernels instead of {old['kernels']}"
        else:
            what = f"{engine} instead of {'1024 MiB' if group == 'workspace' else 'level 3'}"
            how = f"build {new['compiler_s']:.1f} s instead of {old['compiler_s']:.1f} s"
        lines.append((what, f"batch {those(mine, 'batch')}; {how}", ratios(mine, "speedup")))
    cached = {row["from"]: row["build_s"] for row in rows if row["table"] == "cache"}
    if cached:
        lines.append(
            ("a plan from nothing, " + ", ".join(list(cached)[1:]), ", ".join(f"{s:.3g} s" for s in cached.values()), "")
        )
    for row in rows:
        if row["table"] == "switch":
            ways = row["ms"]
            measured = f"host, {ways['a context a profile']:.3g} ms instead of {ways['one context']:.3g} ms per run"
            lines.append((f"one context for each profile, {row['engine']}", measured, ratio(row["speedup"], 2)))
    return table(("what", "measured", "gain"), lines)


TABLES: Mapping[str, Callable[[Data], str]] = {
    f"{HEADLINE}: sentence": networks_sentence,
    f"{HEADLINE}: summary": networks_summary,
    HEADLINE: networks,
    "attention_h200": attention,
    "encoders_h200": encoders,
    "kernels_h200": kernels,
    "separation_h200": separation,
    "first_engine_h200": first_engine,
    "runtime_h200": runtime,
    "rope_h200": rope,
    "timing_h200": timing,
    "engines_h200": engines,
    "gpus_h200": gpus,
    "spread_h200": spread,
    "gpus_h100": partial(gpus, name="gpus_h100"),
    "labs_h200": labs,
    "labs_alone_h200": labs_alone,
    "labs_h100": partial(labs_alone, name="labs_h100"),
    "raw_calls_h100": raw_calls,
    "networks_cpu": networks_cpu,
    "litert_cpu": litert_cpu,
    "decoder_cpu": decoder,
    "gpt2_h200": gpt2,
}
