"""Wrong answers to the exercises of lecture 2."""

MISTAKES = {
    "2.1": {
        "a truth value": ("    parser.parse", "    return parser.parse"),
        "the first error": ("in errors]", "in errors[:1]]"),
        "the text": ("error.node_name()", "error.desc()"),
        "the other order": ("(error.node_operator(), error.node_name())", "(error.node_name(), error.node_operator())"),
        "a number": ("return [(error.node_operator(), error.node_name()) for error in errors]", "return len(errors)"),
    },
    "2.2": {
        "tuples compared": ("tuple(map(min, sizes))", "min(shapes)", "tuple(map(max, sizes))", "max(shapes)"),
        "opt is max": ("Counter(shapes).most_common(1)[0][0]", "tuple(map(max, sizes))"),
        "opt is the first": ("Counter(shapes).most_common(1)[0][0]", "shapes[0]"),
        "opt by dimension": ("Counter(shapes).most_common(1)[0][0]", "tuple(Counter(one).most_common(1)[0][0] for one in sizes)"),
    },
    "2.3": {
        "no profile": ("    config.add_optimization_profile(profile)\n", "", "    if plan is None:\n", "    if False:\n"),
        "no target": ("config.num_compute_capabilities = 1", "", "config.set_compute_capability(trt.ComputeCapability.SM89, 0)", ""),
        "the builder's memory": ("bytes(plan)", "plan"),
        "max is opt": ("set_shape(name, smallest, best, largest)", "set_shape(name, smallest, best, best)"),
        "min is opt": ("set_shape(name, smallest, best, largest)", "set_shape(name, best, best, largest)"),
        "fixed numbers": ("set_shape(name, smallest, best, largest)", "set_shape(name, (1, 4), (8, 4), (32, 4))"),
        "the model itself": lambda data, name, low, best, high: data,
    },
}  # fmt: skip
