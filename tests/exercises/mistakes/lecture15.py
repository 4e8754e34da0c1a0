"""Wrong answers to the exercises of lecture 15."""


def _batches(answers, slots):
    return sum(max(answers[start : start + slots]) for start in range(0, len(answers), slots))


MISTAKES = {
    "15.1": {
        "query heads": lambda size, tokens, each=2: 2 * size.layers * size.heads * size.head_size * tokens * each,
        "keys only": lambda size, tokens, each=2: size.layers * size.kv_heads * size.head_size * tokens * each,
        "always FP16": lambda size, tokens, each=2: 4 * size.layers * size.kv_heads * size.head_size * tokens,
        "one layer": lambda size, tokens, each=2: 2 * size.kv_heads * size.head_size * tokens * each,
        "an attribute that does not exist": lambda size, tokens, each=2: 2 * size.n_layers * tokens * each,
    },
    "15.2": {
        "static": _batches,
        "ideal": lambda answers, slots: -(-sum(answers) // slots),
        "in turn": lambda answers, slots: max(sum(answers[slot::slots]) for slot in range(slots)),
        "longest first": ("for answer in answers", "for answer in sorted(answers, reverse=True)"),
    },
    "15.3": {
        "not rescaled": (" / kept.sum()", ""),
        "drops the one that reaches p": (" - chance[order]", ""),
        "one too many at exactly p": ("order[before < p]] = chance[order[before < p]]", "order[before <= p]] = chance[order[before <= p]]"),
        "in place": lambda chance, p: chance.sort() or chance,
    },
    "15.4": {
        "no cost": ("draft_cost * k", "0 * k"),
        "no token of the large model": ("range(k + 1)", "range(1, k + 1)", "range(longest + 1)", "range(1, longest + 1)"),
        "always drafts": ("range(longest + 1)", "range(1, longest + 1)"),
        "one too short": ("range(longest + 1)", "range(longest)"),
    },
}  # fmt: skip
