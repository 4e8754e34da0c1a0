"""Wrong answers to the exercises of lecture 12."""

MISTAKES = {
    "12.1": {
        "busy": ("return (", "return 1 - (", "min(ends, end)", "ends", "min(begins, end)", "begins"),
        "durations": lambda work, start, end: 1 - sum(min(b, end) - max(a, start) for a, b in work) / (end - start),
        "the one before": ("max(busy_until, min(ends, end))", "min(ends, end)"),
        "not to the end": ("(idle + end - busy_until)", "idle"),
        "microseconds": (" / (end - start)", ""),
        "ends after the window": ("min(ends, end)", "ends", "min(begins, end)", "begins"),
    },
    "12.2": {
        "longest event": ("max(0, min(end, ends) - max(start, begins))", "ends - begins"),
        "running at the start": ("overlap.most_common(1)[0][0]", "next(name for name, begins, ends in host if begins <= start < ends)"),
        "first gap": ("max(gaps, key=lambda gap: gap[1] - gap[0])", "gaps[0]"),
        "shortest gap": ("max(gaps", "min(gaps"),
        "single events": ("+= max(0,", "= max(overlap[name],"),
    },
    "12.3": {
        "total": ("-= end - start", "-= 0"),
        "everything below": ("if callers:", "for caller in callers:", "callers[-1][0]]", "caller[0]]"),
        "not closed": ("<= start", "< start"),
        "overwritten": ("found.get(name, 0) + end", "end"),
        "one child": ("callers: list[Span] = []", "callers, served = [], []", "if callers:", "if callers and callers[-1] not in served:",
            "-= end - start", "-= end - start\n            served.append(callers[-1])"),
    },
    "12.4": {
        "mean": ("SUM(bytes), SUM(end - start)", "AVG(1.0 * bytes / (end - start)), 1"),
        "from first to last": ("SUM(end - start)", "MAX(end) - MIN(start)"),
        "GiB": ("moved / nanoseconds", "moved / nanoseconds * 1e9 / 2**30"),
        "all kinds": ("= ?", "IN (1, 2, ?)"),
        "bytes per second": ("moved / nanoseconds", "moved / nanoseconds * 1e9"),
        "seconds": ("moved / nanoseconds", "moved / nanoseconds / 1e9"),
        "always to the device": ("(kind,)", "(1,)"),
    },
    "12.5": {
        "arithmetic peak": ("max(arithmetic, memory)", "arithmetic"),
        "inverse": ('"arithmetic"), share', '"arithmetic"), 1 / share'),
        "sum": ("max(arithmetic, memory)", "(arithmetic + memory)"),
        "always memory": ('("memory" if memory > arithmetic else "arithmetic")', '"memory"'),
        "always arithmetic": ('("memory" if memory > arithmetic else "arithmetic")', '"arithmetic"'),
        "never latency": ("share < 0.6", "False"),
    },
    "12.6": {
        "share": lambda parts, name, factor: parts[name] / sum(parts.values()),
        "inverse": lambda parts, name, factor: 1 - (parts[name] - parts[name] / factor) / sum(parts.values()),
        "of the part": lambda parts, name, factor: factor,
        "removed": lambda parts, name, factor: sum(parts.values()) / (sum(parts.values()) - parts[name]),
        "what remains": lambda parts, name, factor: sum(parts.values()) - parts[name],
    },
}  # fmt: skip
