"""Wrong answers to the exercises of lecture 14."""

MISTAKES = {
    "14.1": {
        "hash": lambda facts: hash(str(facts)),
        "unsorted": ('for name in ("recipe", "backend", "version", "device")', 'for name in facts if name not in ("model", "driver")',
            "sort_keys=True", ""),
        "the length of the model": ('hashlib.sha256(facts["model"]).hexdigest()', 'len(facts["model"])'),
        "without the recipe": ('"recipe", ', ""),
        "without the version": ('"version", ', ""),
        "without the device": (', "device"', ""),
        "joined": ("json.dumps(inputs, sort_keys=True)",
            '"".join(json.dumps(value, sort_keys=True).strip(\'"\') for value in inputs.values())'),
        "with the driver": ('"device")', '"device", "driver")'),
    },
    "14.2": {
        "never reads": ("stored = path.read_bytes()", "raise OSError"),
        "not verified": ("label.read_text() == hashlib.sha256(stored).hexdigest()", "label.exists()"),
        "no digest": (", (label, hashlib.sha256(plan).hexdigest().encode())", ","),
        "written in place": ('target.with_name(f"{target.name}.{os.getpid()}")', "target", "os.replace(incomplete, target)", "pass"),
        "not stored again": ("    plan = build()\n", "    plan = build()\n    if path.exists():\n        return plan\n"),
        "a digest is optional": ("if label.read_text()", "if not label.exists() or label.read_text()"),
        "stops without a disk": ("with contextlib.suppress(OSError):\n        for", "if True:\n        for"),
    },
    "14.3": {
        "opening is not guarded": ("        with", "        infer = open_way()\n        with", "open_way()(request)", "infer(request)"),
        "answering is not guarded": ("with contextlib.suppress(Exception):", "infer = None\n        with contextlib.suppress(Exception):\n"
            "            infer = open_way()\n        if infer:", "open_way()(request)", "infer(request)"),
        "not compared": ("found.shape == expected.shape and np.allclose(found, expected, atol=1e-3)", "True"),
        "NaN": ("found.shape == expected.shape and np.allclose(found, expected, atol=1e-3)", "not np.abs(found - expected).max() > 1e-3"),
        "broadcast": ("found.shape == expected.shape and ", ""),
        "exactly": ("found.shape == expected.shape and np.allclose(found, expected, atol=1e-3)", "np.array_equal(found, expected)"),
        "no error": ('raise RuntimeError(f"none of {list(ways)} answers the known request")', 'return "PyTorch"'),
    },
    "14.4": {
        "one at a time": ("[:most]", "[:1]"),
        "full batches": ("max(free, waiting[0])", "max(free, waiting[:most][-1])"),
        "no limit": ("[:most]", "[:4]"),
        "linear": ("run_ms[len(taken)]", "len(taken) * run_ms[1]"),
        "absolute": ("free - arrival for", "free for"),
        "before a request": ("max(free, waiting[0])", "free", "[:most]", "[:most] or waiting[:1]"),
        "strictly before": ("arrival <= start", "arrival < start", "[:most]", "[:most] or waiting[:1]"),
    },
}  # fmt: skip
