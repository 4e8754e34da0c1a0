"""Wrong answers to the exercises of lecture 8."""

import numpy as np


def _one_more(counts, ms, profiles):
    limits = [len(counts) - 1]
    while len(limits) < profiles:
        options = [sorted({*limits, size}) for size in range(1, len(counts) - 1) if size not in limits]

        def cost(limits):
            return (counts * ms[np.array(limits)[np.searchsorted(limits, np.arange(len(counts)))]]).sum()

        limits = min(options, key=cost)
    return limits


MISTAKES = {
    "8.1": {
        "max before opt": ("smallest, best, largest)\n", "smallest, largest, best)\n", "index < 0", "False"),
        "the first input only": ("smallest, best, largest)\n", "smallest, best, largest)\n        break\n"),
        "not added": ("index: int = config.add_optimization_profile(profile)", "index = 0"),
        "the profile": ("return index", "return 99"),
        "one profile for each input": ("profile.set_shape", "profile = builder.create_optimization_profile()\n        profile.set_shape"),
        "-1 is returned": ("index < 0", "False"),
    },
    "8.2": {
        "smallest": ("longest in profiles", "longest in sorted(profiles, key=lambda one: one[0] * one[1])"),
        "mean of shares": ("sent = computed = 0", "shares = []", "sent, computed = sent + batch * sequence, computed + most * longest",
            "shares.append(1 - batch * sequence / (most * longest))", "1 - sent / computed", "np.mean(shares)"),
        "of what was sent": ("1 - sent / computed", "computed / sent - 1"),
        "either dimension": ("<= most and", "<= most or"),
        "rejected in the last": ("break\n",
            "break\n        else:\n            sent, computed = sent + batch * sequence, computed + most * longest\n"),
    },
    "8.3": {
        "next": lambda ms: {
            size: min(one, other) for (size, one), other in zip(ms.items(), [*list(ms.values())[1:], 99], strict=True)
        },
        "smaller sizes": lambda ms: {size: min(v for k, v in ms.items() if k <= size) for size in ms},
        "running maximum": lambda ms: {size: max(v for k, v in ms.items() if k <= size) for size in ms},
        "unchanged": dict,
        "by position": lambda ms: dict(zip(ms, np.minimum.accumulate(list(ms.values())[::-1])[::-1].tolist(), strict=True)),
    },
    "8.4": {
        "most frequent": lambda counts, ms, profiles: sorted(
            [*np.argsort(counts[:-1])[1 - profiles :].tolist(), len(counts) - 1]
        ),
        "rows": ("ms[ends]", "ends"),
        "own size": ("ms[ends]", "1"),
        "without the last": ("min(choices, key=cost)", "min(choices, key=cost)[:-1]"),
        "one more": _one_more,
    },
    "8.5": {
        "compiled again": ("ready.setdefault(shape, start + compile_ms)", "ready[shape] = start + compile_ms"),
        "one kernel for all": ("for start, shape in calls:", "for start, shape in ((start, 0) for start, _ in calls):"),
        "lazy waits": ('strategy == "eager"', "True"),
        "ready at once": ("start >= ready[shape]", "not new"),
        "strictly later": ("start >= ready", "start > ready"),
        "the first call only": ("new * compile_ms", "(not times) * compile_ms"),
        "without the kernel": ("special_ms + new * compile_ms", "compile_ms if new else special_ms"),
        "none compiles": ('strategy == "lazy" and ', ""),
    },
}  # fmt: skip
