"""Wrong answers to the exercises of lecture 13."""

MISTAKES = {
    "13.1": {
        "no minimum": (" and size >= min_block_size", ""),
        "not joined": ("+= [flag and size >= min_block_size] * size", "+= [(flag and size >= min_block_size, size)]",
            "len(list(run))) for flag, run in groupby(in_tensorrt)", "size) for flag, size in in_tensorrt"),
        "dropped": ("in_tensorrt +=", "in_tensorrt += [] if flag and size < min_block_size else"),
        "more than the minimum": (">= min", "> min"),
        "always 5": (">= min_block_size", ">= 5"),
    },
    "13.2": {
        "the default frontend": ('ir="dynamo", ', ""),
        "not a list": ("[image]", "image"),
        "a shape": ("[image]", "[best]"),
        "one shape": ("min_shape=smallest, opt_shape=best, max_shape=largest", "best"),
        "wrong places": ("opt_shape=best, max_shape=largest", "opt_shape=largest, max_shape=best"),
        "not whole": (", require_full_compilation=True", ""),
        "precisions": ("[image]", '[image], enabled_precisions={"half"}'),
        "the module": ("return torch", "torch", "_compilation=True)", '_compilation=True)\n    return "the module"'),
    },
    "13.3": {
        "against eager": ("engine[name] - right", "engine[name] - eager[name]"),
        "NaN": ("if not np.abs", "if np.abs", "<= factor", "> factor"),
        "both": ("engine[name] - right", "engine[name] - eager[name]", "if not np.abs", "if np.abs", "<= factor", "> factor"),
        "fixed": ("factor * usual", "1e-3"),
        "relative": ("factor * usual", "1e-2 * np.abs(right).max()"),
        "strictly": ("<= factor", "< factor"),
    },
    "13.4": {
        "every keyword": (" if name not in read", ""),
        "only close ones": ("in nearest.items()", "in nearest.items() if matches"),
        "no suggestion": ('matches[0] if matches else ""', '""'),
        "lists": ('matches[0] if matches else ""', "matches"),
        "the catch-all is read": ("parameter.kind != parameter.VAR_KEYWORD", "True"),
        "the name kwargs": ("parameter.kind != parameter.VAR_KEYWORD", 'name != "kwargs"'),
        "accepted": lambda function, keywords: {},
    },
}  # fmt: skip
