"""Wrong answers to the exercises of lecture 11."""

MISTAKES = {
    "11.1": {
        "cold": ("range(warmup)", "()"),
        "warm-up recorded": ("    for _ in range(warmup):\n        call()\n", "", "range(calls)", "range(warmup + calls)"),
        "mean": ("np.median", "np.mean"),
        "seconds": ("1e3 * ", ""),
        "minimum": ("np.median", "np.min"),
        "one call more": ("    return", "    call()\n    return"),
    },
    "11.2": {
        "one after the other": ("[time_a() / time_b() for _ in range(rounds)]",
            "np.divide([time_a() for _ in range(rounds)], [time_b() for _ in range(rounds)])"),
        "ratio of the medians": ("np.median([time_a() / time_b() for _ in range(rounds)])",
            "np.divide(*np.median([(time_a(), time_b()) for _ in range(rounds)], axis=0))"),
        "mean": ("np.median", "np.mean"),
        "inverse": ("time_a() / time_b()", "1 / (time_a() / time_b())"),
        "sums": ("np.median([time_a() / time_b() for _ in range(rounds)])",
            "np.divide(*np.sum([(time_a(), time_b()) for _ in range(rounds)], axis=0))"),
        "one round": lambda a, b, rounds: a() / b(),
    },
    "11.3": {
        "single rounds": ("ratios[picked.reshape(len(starts), -1)[:, : len(ratios)]]", "ratios[starts]"),
        "not cut": ("[:, : len(ratios)]", ""),
        "mean": ("np.median", "np.mean"),
        "90 %": ("[2.5, 97.5]", "[5, 95]"),
        "all": ("[2.5, 97.5]", "[0, 100]"),
        "no wrap": (" % len(ratios)", "", "    resamples", "    picked = np.minimum(picked, len(ratios) - 1)\n    resamples"),
        "shares": ("[2.5, 97.5]", "[0.025, 0.975]"),
    },
    "11.4": {
        "middle": lambda low, high, threshold: "reached" if (low + high) / 2 >= threshold else "missed",
        "always undecided": lambda low, high, threshold: "undecided",
        "against 1": lambda low, high, threshold: "undecided" if low <= 1 <= high or low < threshold < high else "reached",
        "lower end": lambda low, high, threshold: "reached" if low >= threshold else "missed",
        "greater": lambda low, high, threshold: "reached" if low > threshold else "missed" if high < threshold else "undecided",
    },
    "11.5": {
        "below 0": ("max(0.0, found[-1] - gap)", "found[-1] - gap"),
        "waiting times": ("found.append(waits + call)", "found.append(waits)", "found[-1] - gap", "found[-1] + before - gap",
            "    return", "        before = call\n    return"),
        "no queue": ("max(0.0, found[-1] - gap) if found else 0.0", "0.0"),
        "absolute": ("found: list[float] = []", "found, now = [], []", "found.append(waits + call)",
            "found.append(waits + call)\n        now.append(gap)",
            "return found", "return np.add(found, np.cumsum(now)).tolist()"),
        "its own call": ("found[-1] - gap", "waits + call - gap"),
    },
}  # fmt: skip
