"""Task 4: builds that use a cache. An entry must be used if it is for the same problem and its tactic is offered, and in no other case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.labs.lab03_tuning.judge.cache_builds import Network, Stage, Wrong, called, same_times, signature
from course_lib.labs.lab03_tuning.judge.differing import OF_LAYER, OF_MACHINE, Layer, Machine, other_layers, other_machines
from course_lib.labs.lab03_tuning.judge.words import first_difference

_FIELDS = (*OF_LAYER, *OF_MACHINE)
_BASES = 5  # layers of which each is changed in many ways
_UNCHANGED = 30  # builds without a change, among those with one


def second_build(stage: Stage, drawn: Network) -> None:
    """Builds of one network: with an empty cache, with that of the first build, and with the same cache in another process."""
    build = drawn.build()
    names, cache = build.run(stage, {})
    wanted = [build.answer(layer)[0] for layer in build.layers]
    found, expected = len(build.measured), len(drawn.distinct)
    if found != expected:
        raise Wrong(
            f"The first build called `measure` {found} times, expected {expected}: of its {len(build.layers)} layers, {expected} differ",
            "Equal layers are measured once. When do you add an entry, and where do you look it up?"
            if found > expected
            else "Each layer without a usable entry is measured. Do different layers have different keys?",
        )
    if names != wanted:
        raise Wrong(
            f"The first build has another tactic than `measure` returned: {_wrong_name(names, wanted)}",
            "Which name belongs to which layer?",
        )
    build.run(stage, {})
    if len(build.measured) != expected:
        raise Wrong(
            "A build with an empty cache did not measure again",
            "Keep entries in the cache alone, and not in a global variable.",
        )
    again, _ = build.run(stage, cache)
    if build.measured:
        raise Wrong(
            f"The second build called `measure` {len(build.measured)} times for the same layers",
            "Look a layer up before you measure it.",
        )
    if again != wanted:
        raise Wrong(
            f"The second build has another tactic than the first: {_wrong_name(again, wanted)}",
            "An entry holds the tactic of its own key.",
        )
    stage.restart()
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            f"A build in another process called `measure` {len(build.measured)} times for the same layers",
            "A cache is used by later processes. Is `key` the same text in each of them? `hash` and `id` are not.",
        )


def other_names(stage: Stage, drawn: Network) -> None:
    """Two copies of a layer at a time, so that a key that says too little does not mix it up with other layers."""
    for layer in drawn.distinct:
        build = drawn.build([drawn.disguised_layer(layer) for _ in range(2)], drawn.disguised_machine(drawn.machine))
        _, cache = drawn.build([layer]).run(stage, {})
        for before, most in ((cache, 0), ({}, 1)):
            build.run(stage, before)
            if len(build.measured) > most:
                raise Wrong(
                    "Equal layers with other names, one tactic less and fields in another order, on another host, were measured again",
                    "Which fields of layer and machine have no influence on a time? "
                    "Is their order fixed in your key, also inside of `attributes`?",
                )


def what_a_time_depends_on(stage: Stage, drawn: Network) -> None:
    """Builds with changes, and others without a change, in secret order. Only what a time depends on tells them apart."""
    rng, here = drawn.rng, drawn.machine
    bases = [drawn.drawn_layer(wide=not number) for number in range(_BASES)]
    _, cache = drawn.build(bases).run(stage, {})
    changed: dict[str, tuple[Layer, Layer]] = {}  # a layer and the one that it was, by what its times depend on
    for base in bases:
        for other in other_layers(base, rng):
            if not any(same_times(other, one) for one in bases):
                changed[signature(other)] = other, base
    cases: list[tuple[list[tuple[Layer, Layer]], Machine]] = [([], here)] * _UNCHANGED
    left = [list(changed.values())[place] for place in rng.permutation(len(changed))]
    while left:
        several = int(rng.integers(1, 7))
        cases.append((left[:several], here))
        left = left[several:]
    cases += [([], machine) for machine in other_machines(here, rng)]
    found: dict[tuple[int, ...], Wrong] = {}  # by the fields that differ
    for pairs, machine in (cases[place] for place in rng.permutation(len(cases))):
        same = [(bases[place], bases[place]) for place in rng.permutation(_BASES)[: rng.integers(not pairs, 3)]]
        in_order = [[*pairs, *same][place] for place in rng.permutation(len(pairs) + len(same))]
        build = drawn.build([drawn.disguised_layer(one, base) for one, base in in_order], drawn.disguised_machine(machine))
        names, _ = build.run(stage, cache)
        for (one, base), layer in zip(in_order, build.layers, strict=True):
            now, before = {**one, **machine}, {**base, **here}
            differ = [place for place, name in enumerate(_FIELDS) if now[name] != before[name]]
            if differ and layer not in build.measured:
                found.setdefault((len(differ), *differ), _used(now, before, _FIELDS))
        if len(build.measured) > (len(pairs) if machine is here else len(in_order)):
            again = "Does your key depend on something that does not change a time, or is an entry measured that is usable?"
            found.setdefault((len(_FIELDS),), Wrong("A layer that had not changed was measured again", again))
        if names != [build.answer(one)[0] for one in build.layers]:
            tactic = Wrong(
                f"A build has another tactic than `measure` returned: {_wrong_name(names, [build.answer(one)[0] for one in build.layers])}",
                "An entry holds the tactic of its own key.",
            )
            found.setdefault((len(_FIELDS), 1), tactic)
    if found:
        raise found[min(found)]
    kept = {signature(base): called(stage, "key", base, here) for base in bases}
    asked = [(one, base, machine) for pairs, machine in cases for one, base in pairs or [(bases[0], bases[0])]]
    for one, base, machine in asked:
        answer = called(stage, "key", drawn.disguised_layer(one), drawn.disguised_machine(machine))
        same_key = one is base and machine is here
        if not isinstance(answer, str) or (answer == kept[signature(base)]) != same_key:
            raise Wrong(
                f"key did not return {'the same' if same_key else 'another'} text for {'the same' if same_key else 'other'} times",
                "Use `key` in `tuned`, so that both follow the same rule.",
            )


def _used(found: Mapping[str, Any], kept: Mapping[str, Any], fields: Sequence[str]) -> Wrong:
    names = [name for name in fields if found[name] != kept[name]]
    places = " and ".join(first_difference(name, found[name], kept[name]) for name in names)
    return Wrong(
        f"An entry was used although {places}",
        "Two keys must differ if the times may differ. Which fields are in your key, and which parts of them?",
    )


def tactic_is_gone(stage: Stage, drawn: Network) -> None:
    """A build of a single layer, so that a key that says too little does not mix it up with other layers."""
    layer = drawn.distinct[0]
    _, cache = drawn.build([layer]).run(stage, {})
    best = drawn.fastest(layer)
    fewer = layer | {"tactics": [name for name in layer["tactics"] if name != best]}
    build = drawn.build([fewer])
    names, cache = build.run(stage, cache)
    if names == [best]:
        raise Wrong(
            "An entry's tactic was used although the builder no longer offers it",
            "A smaller workspace excludes tactics. What must hold for the tactic of an entry before you use it?",
        )
    if names != (wanted := [build.answer(fewer)[0]]):
        raise Wrong(
            f"After an entry whose tactic is gone, the result of `measure` was not used: {_wrong_name(names, wanted)}",
            "Which tactic did the new measurement return?",
        )
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            "An entry whose tactic is gone was measured, and the result was not kept",
            "Which entry must the new measurement replace?",
        )


def _wrong_name(names: Sequence[Any], wanted: Sequence[str]) -> str:
    return first_difference("names", list(names), list(wanted))
