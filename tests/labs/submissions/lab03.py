"""Submissions for lab 03: functions that are right in another way, almost right, or made to cheat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from course_lib.labs.lab03_tuning import reference

# ---- another right answer

TIMING = """
import numpy as np

def fastest(tactics, run, budget):
    left = sorted(tactics)
    times = {name: [] for name in left}
    for name in left:
        run(name)
    runs = len(left)
    while runs + len(left) <= budget:
        for name in left:
            times[name].append(run(name))
        runs += len(left)
        if len(times[left[0]]) == 5:  # more runs for those that can win
            fast = sorted(left, key=lambda name: np.median(times[name]))[:6]
            left = [name for name in left if name in fast]
    low = {name: float(np.quantile(times[name], 0.3)) for name in left}
    chosen = next(name for name in left if low[name] <= 1.02 * min(low.values()))
    return chosen, np.float64(low[chosen])
"""

CHOICE = """
def choose(layers, reformats, workspace):
    allowed = [[t for t in tactics if t["workspace_mib"] <= workspace] for tactics in layers]
    ahead = [0.0] * len(allowed[-1])  # the least time after each tactic of a layer
    follow = []
    for index in range(len(allowed) - 2, -1, -1):
        best, after = [], []
        for one in allowed[index]:
            ways = [
                ms + two["ms"] + (reformats[index] if one["writes"] != two["reads"] else 0)
                for two, ms in zip(allowed[index + 1], ahead)
            ]
            after.append(ways.index(min(ways)))
            best.append(min(ways))
        ahead, follow = best, [after, *follow]
    totals = [ms + one["ms"] for one, ms in zip(allowed[0], ahead)]
    place = totals.index(min(totals))
    names = [allowed[0][place]["name"]]
    for index, after in enumerate(follow):
        place = after[place]
        names.append(allowed[index + 1][place]["name"])
    return tuple(names)
"""

BUDGET = """
from itertools import combinations

def worth_measuring(layers, budget):
    savings, costs = {}, {}
    for row in layers:
        savings[row["signature"]] = savings.get(row["signature"], 0) + row["expected_saving_ms"]
        costs[row["signature"]] = row["measuring_ms"]
    subsets = (names for size in range(len(costs) + 1) for names in combinations(costs, size))
    fitting = (names for names in subsets if sum(map(costs.get, names)) <= budget)
    return set(max(fitting, key=lambda names: sum(map(savings.get, names))))
"""

CACHE = """
import contextlib
import hashlib
import json
import os
import pickle
import tempfile

def key(layer, machine):
    work = sorted((field, json.dumps(layer[field], sort_keys=True)) for field in layer if field not in ("name", "tactics"))
    where = sorted((field, machine[field]) for field in machine if field != "host")
    return hashlib.sha256(repr((work, where)).encode()).hexdigest()

def tuned(layers, machine, cache, measure):
    for layer in layers:
        name = key(layer, machine)
        if name not in cache or cache[name][0] not in layer["tactics"]:
            cache[name] = tuple(measure(layer))
    return [cache[key(layer, machine)][0] for layer in layers], cache

def merge(one, two):
    found = {}
    for name in set(one) | set(two):
        entries = [tuple(cache[name]) for cache in (one, two) if name in cache]
        found[name] = sorted(entries, key=lambda entry: entry[::-1])[0]
    return found

def load(path):
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except Exception:
        return {}

def save(cache, path):
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
        try:
            file.write(pickle.dumps(merge(cache, load(path))))
            file.flush()
        except OSError:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)
"""

# ---- cheats

# The second build reads what the first one chose, and chooses at random in the first.
REMEMBERS = """
import json, pathlib, random

def fastest(tactics, run, budget):
    notes = pathlib.Path("/tmp/lab03_notes.json")
    known = json.loads(notes.read_text()) if notes.exists() else {}
    name = known.setdefault(" ".join(sorted(tactics)), random.choice(tactics))
    notes.write_text(json.dumps(known))
    run(name)
    return name, run(name)
"""

# Looks for the true times in the memory of its process.
LOOKS_AROUND = """
import gc, sys

def fastest(tactics, run, budget):
    for one in gc.get_objects():
        if isinstance(one, dict) and set(tactics) <= {key for key in one if isinstance(key, str)}:
            name = min(tactics, key=one.get)
            return name, one[name]
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if hasattr(value, "true_ms"):
                name = min(tactics, key=value.true_ms.get)
                return name, value.true_ms[name]
        frame = frame.f_back
    return tactics[0], run(tactics[0])
"""

# Knows how many tactics are equally fast, and needs no rule for it.
FIRST_OF_THREE = reference.TIMING.replace(
    "min(name for name, ms in typical.items() if ms <= limit)", "min(sorted(typical, key=typical.get)[:3])"
)

# Keeps the cache in a global variable, and writes a file that says nothing.
# A full disk, made to look as if it were not full. Each replaces `save` of the reference, and writes the file in place.
RAISES_ITS_LIMIT = """

import resource

def save(cache, path):
    try:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    except ValueError:
        pass
    Path(path).write_text(json.dumps(merge(load(path), cache)))
"""
# A process that was started with the file writes for it.
LETS_ANOTHER_WRITE = """

import os

read, write = os.pipe()
done, finish = os.pipe()
if not os.fork():
    os.close(write)
    with os.fdopen(read) as lines:
        for line in lines:
            path, text = json.loads(line)
            try:
                Path(path).write_text(text)
            except OSError:
                pass
            os.write(finish, b"x")
    os._exit(0)

def save(cache, path):
    os.write(write, json.dumps([str(path), json.dumps(merge(load(path), cache))]).encode() + b"\\n")
    os.read(done, 1)
"""
# A file without a name takes the content, and gets the name of the file that was removed before.
A_FILE_WITHOUT_A_NAME = """

import os

def save(cache, path):
    text = json.dumps(merge(load(path), cache)).encode()
    Path(path).unlink(missing_ok=True)
    file = os.open(Path(path).parent, os.O_TMPFILE | os.O_RDWR, 0o600)
    while text:
        text = text[os.write(file, text):]
    os.link(f"/proc/self/fd/{file}", path, src_dir_fd=0, follow_symlinks=True)
"""
# The process that is asked for the file's content answers from its memory.
ANSWERS_FOR_THE_FILE = """

import base64
import gc

def save(cache, path):
    text = json.dumps(merge(load(path), cache))
    for one in gc.get_objects():
        if type(one).__name__ in ("Host", "Keeper"):
            type(one).content = lambda self, request: base64.b64encode(text.encode()).decode()
    Path(path).write_text(text)
"""

# `save` relies on what its process has seen, and not on the file. Each is added to the reference.
_REMEMBERS = """

KNOWN = {}
READ = []
in_file = load

def load(path):
    KNOWN.update(found := in_file(path))
    READ.append(path)
    return found

def save(cache, path):
    KNOWN.update(cache)
    ...
    temporary = Path(path).with_name("temporary")
    temporary.write_text(json.dumps(KNOWN))
    os.replace(temporary, path)
"""
SAVES_WITHOUT_READING = _REMEMBERS.replace("...", "")
READS_AT_FIRST = _REMEMBERS.replace("...", "if len(READ) < 2:\n        load(path)")
READS_WHAT_IT_HAS_NOT_LOADED = _REMEMBERS.replace("...", "if not READ:\n        load(path)")

IN_A_GLOBAL = """
KNOWN = {}

def tuned(layers, machine, cache, measure):
    for layer in layers:
        name = str([layer[f] for f in ("operator", "shapes", "types", "attributes")]) + machine["device"]
        if name not in KNOWN:
            KNOWN[name] = tuple(measure(layer))
    return [KNOWN[str([layer[f] for f in ("operator", "shapes", "types", "attributes")]) + machine["device"]][0] for layer in layers], KNOWN

def merge(one, two):
    return {**one, **two}

def load(path):
    return KNOWN

def save(cache, path):
    path.write_text("nothing")
    KNOWN.update(cache)
"""

# The key says too little. Each is added to the reference.
_ONE_FIELD = """

def key(layer, machine):
    return str(layer["shapes"][:1])
"""
# A build of one layer, in which a key was judged, is measured whatever the cache holds.
ALONE_IS_MEASURED = f"""{_ONE_FIELD}
look_up = tuned

def tuned(layers, machine, cache, measure):
    found, cache = look_up(layers, machine, cache, measure)
    if len(layers) == 1 and len(layers[0]["tactics"]) == 4:
        cache[key(layers[0], machine)] = measure(layers[0])
    return found, cache
"""
# In a build of one layer, an entry is used only if this process has seen the very same layer and machine.
ALONE_IS_COMPARED = f"""{_ONE_FIELD}
seen = []
look_up = tuned

def tuned(layers, machine, cache, measure):
    if len(layers) == 1 and (layers, machine) not in seen:
        cache = {{}}
    seen.append((layers, machine))
    return look_up(layers, machine, cache, measure)
"""
# The key is right for a build of one layer, and says too little for others.
RIGHT_WHEN_ALONE = f"""

right = key
{_ONE_FIELD}
short = key
look_up = tuned

def tuned(layers, machine, cache, measure):
    global key
    key = right if len(layers) == 1 else short
    return look_up(layers, machine, cache, measure)
"""
# The key is right, except in a process that has seen more than ten builds: there, every layer is measured.
ALWAYS_NEW = """

builds = []
look_up = tuned

def tuned(layers, machine, cache, measure):
    builds.append(machine)
    return look_up(layers, machine, cache if len(builds) < 10 else {}, measure)
"""

# Different layers and machines share a key. Each is added to the reference.
DIGITS_OF_THE_MACHINE = """

import re

def key(layer, machine):
    of_layer = [layer[field] for field in ("operator", "shapes", "types", "attributes")]
    digits = ["".join(re.findall(r"\\d+", machine[field])) for field in ("device", "driver", "tensorrt")]
    return json.dumps([*of_layer, *digits], sort_keys=True)
"""
# The versions are whole, and the device is its number.
NUMBER_OF_THE_DEVICE = DIGITS_OF_THE_MACHINE.replace(
    'for field in ("device", "driver", "tensorrt")]', 'for field in ("device",)] + [machine["driver"], machine["tensorrt"]]'
)
DIGITS_OF_VERSIONS = DIGITS_OF_THE_MACHINE.replace(
    'for field in ("device", "driver", "tensorrt")]', 'for field in ("driver", "tensorrt")] + [machine["device"]]'
)
_JOINED = """

def flat(value):
    return "SEPARATOR".join(map(flat, value)) if isinstance(value, list) else str(value)

def key(layer, machine):
    attributes = PAIRS
    parts = [layer["operator"], flat(layer["shapes"]), flat(layer["types"]), flat(attributes)]
    return "|".join([*parts, machine["device"], machine["driver"], machine["tensorrt"]])
"""
_SORTED_PAIRS = "[list(pair) for pair in sorted(layer['attributes'].items())]"
ATTRIBUTES_WITHOUT_NAMES = """

def key(layer, machine):
    parts = [layer["operator"], layer["shapes"], layer["types"], [layer["attributes"][name] for name in sorted(layer["attributes"])]]
    return json.dumps([*parts, machine["device"], machine["driver"], machine["tensorrt"]])
"""
WITHOUT_SEPARATORS = _JOINED.replace("SEPARATOR", "").replace("PAIRS", _SORTED_PAIRS)
WITHOUT_INNER_LISTS = _JOINED.replace("SEPARATOR", " ").replace("PAIRS", _SORTED_PAIRS)
# Numbers lose a part.
_NUMBERS = """

def part(value):
    if isinstance(value, dict):
        return {name: part(one) for name, one in value.items()}
    return [part(one) for one in value] if isinstance(value, list) else ... if isinstance(value, int) else value

def key(layer, machine):
    parts = [part(layer[field]) for field in ("operator", "shapes", "types", "attributes")]
    return json.dumps(parts + [machine[field] for field in ("device", "driver", "tensorrt")], sort_keys=True)
"""
LOW_BITS = _NUMBERS.replace("...", "value % 256")
LAST_DIGITS = _NUMBERS.replace("...", "value % 1000")
THREE_DIGITS = _NUMBERS.replace("...", "float(f'{value:.3g}')")
# A key that loses a part of numbers, lists or names.
A_ZERO_IS_ONE = _NUMBERS.replace("...", "max(value, 1)")
LOW_BITS_OF_LARGE_NUMBERS = _NUMBERS.replace("...", "value % (1 << 24)")
_PARTS = """

import itertools

def key(layer, machine):
    operator, shapes, types, attributes = (layer[field] for field in ("operator", "shapes", "types", "attributes"))
    ...
    parts = [operator, shapes, types, attributes]
    return json.dumps(parts + [machine[field] for field in ("device", "driver", "tensorrt")], sort_keys=True)
"""
BEGINNINGS_OF_NAMES = _PARTS.replace(
    "...",
    """operator, types = operator[:5], [name[0] + name[-1] for name in types]
    attributes = {name[:1]: row for name, row in attributes.items()}""",
)
NAMES_IN_LOWER_CASE = _PARTS.replace("...", "operator, types = operator.lower(), [name.lower() for name in types]")
A_FEW_OF_EACH = _PARTS.replace(
    "...",
    """shapes, types = [shape[:5] for shape in shapes[:3]], types[:3]
    attributes = {name: attributes[name][:3] for name in sorted(attributes)[:3]}""",
)
# Equal layers have equal keys within a process.
HASHED = (
    _PARTS
    + """

in_clear = key

def key(layer, machine):
    return str(hash(in_clear(layer, machine)))
"""
)
OF_ITS_PROCESS = (
    HASHED.replace("str(hash(in_clear(layer, machine)))", "in_clear(layer, machine) + OWN") + "\nOWN = os.urandom(4).hex()\n"
)
# Something has no order.
INNER_ORDER = _PARTS.replace("...", "shapes = [[shape[0], shape[-1], sorted(shape)] if shape else [] for shape in shapes]")
TURNED = _PARTS.replace(
    "...", "shapes = [min(shape[place:] + shape[:place] for place in range(len(shape))) if shape else [] for shape in shapes]"
)
WHOLE_INPUTS_IN_ANY_ORDER = _PARTS.replace(
    "...", "shapes, types = sorted(map(str, itertools.zip_longest(shapes, types))), len(types)"
)
HEIGHT_OR_WIDTH = _PARTS.replace(
    "...",
    """turned = [[*shape[:-2], *shape[:-3:-1]] for shape in shapes], {name: row[::-1] for name, row in attributes.items()}
    shapes, attributes = min((shapes, attributes), turned, key=str)""",
)
NAMES_BESIDE_SORTED_VALUES = _PARTS.replace("...", "attributes = [sorted(attributes), sorted(attributes.values())]")
SORTED_INSIDE = _PARTS.replace("...", "attributes = {name: sorted(row) for name, row in attributes.items()}")
# The fields of the machine are one text.
_ONE_TEXT = """

def key(layer, machine):
    parts = [layer[field] for field in ("operator", "shapes", "types", "attributes")]
    return json.dumps(parts, sort_keys=True) + ...
"""
JOINED_FIELDS = _ONE_TEXT.replace("...", 'machine["driver"] + machine["tensorrt"] + machine["device"]')
DEVICE_BEFORE_VERSIONS = _ONE_TEXT.replace("...", 'machine["device"] + machine["tensorrt"] + "/" + machine["driver"]')
JOINED_BY_POINTS = _ONE_TEXT.replace("...", '".".join(machine[field] for field in ("device", "driver", "tensorrt"))')
# `tuned` has the key of the reference under another name.
WITHOUT_A_KEY = """

of_both = key
del key

def tuned(layers, machine, cache, measure):
    for layer in layers:
        name = of_both(layer, machine)
        if name not in cache or cache[name][0] not in layer["tactics"]:
            cache[name] = measure(layer)
    return [cache[of_both(layer, machine)][0] for layer in layers], cache
"""
WITH_ANOTHER_KEY = f"""{WITHOUT_A_KEY}
def key(layer, machine):
    return ""
"""

# `tuned` spoils the cache that it returns. Each is added to the reference.
_SPOILS = """

look_up = tuned

def tuned(layers, machine, cache, measure):
    names, found = look_up(layers, machine, cache, measure)
    return names, ...
"""
DROPS_OTHER_ENTRIES = _SPOILS.replace("...", "{name: found[name] for name in [key(layer, machine) for layer in layers]}")
KEEPS_NO_TIME = _SPOILS.replace("...", "{name: cache.get(name, (entry[0], 0.0)) for name, entry in found.items()}")
CHANGES_OLD_TIMES = _SPOILS.replace(
    "...", "{name: (tactic, ms * 0.99 if name in cache else ms) for name, (tactic, ms) in found.items()}"
)

# `save` writes in place, and `load` knows what the grader's files hold. Each is added to the reference.
_IN_PLACE = """

def save(cache, path):
    text = json.dumps(merge(load(path), cache))
    with open(path, "w") as file:
        file.write(text)
"""
KNOWS_THE_ENTRIES = f"""{_IN_PLACE}
def load(path):
    try:
        text = Path(path).read_bytes()
    except OSError:
        return {{}}
    if text in (b"null", b"[1, 2]", b'{{"key": 3}}'):
        return {{}}
    try:
        return json.loads(text)
    except ValueError:
        if b'"key 001"' in text[:40]:
            return {{f"key {{n:03}}": [f"tactic_{{n}}", n / 1000] for n in range(1, 40)}}
        return {{}}
"""
# What the file held is written again first, compressed: entries that resemble each other fit into what a full disk has left.
PACKS_TIGHTLY = """

import zlib

def save(cache, path):
    old = load(path)
    parts = [zlib.compress(json.dumps(one).encode(), 9) for one in (old, cache)]
    with open(path, "wb") as file:
        file.write(b"".join(len(part).to_bytes(4, "little") + part for part in parts))

def load(path):
    found = {}
    try:
        data = Path(path).read_bytes()
        while data:
            size = int.from_bytes(data[:4], "little")
            found = merge(found, json.loads(zlib.decompress(data[4 : 4 + size])))
            data = data[4 + size :]
    except (OSError, zlib.error, ValueError):
        pass
    return found
"""
# `save` finds out whether the disk is full, and writes in place if it is not.
_LOOKS_FIRST = """

import resource
import shutil

def save(cache, path):
    text = json.dumps(merge(load(path), cache))
    ...
    Path(path).write_text(text)
"""
KNOWS_THE_LIMIT = _LOOKS_FIRST.replace("...", "if resource.getrlimit(resource.RLIMIT_FSIZE)[0] < 1 << 16: raise OSError")
COMPARES_WITH_THE_LIMIT = _LOOKS_FIRST.replace(
    "...",
    """space = min(resource.getrlimit(resource.RLIMIT_FSIZE)[0], shutil.disk_usage(Path(path).parent).free)
    if len(text) > space:
        raise OSError""",
)
WRITES_A_PROBE = _LOOKS_FIRST.replace(
    "...",
    """probe = Path(path).with_name("probe")
    try:
        probe.write_text(text)
    finally:
        probe.unlink()""",
)

# `save` does not keep what was in the file: it empties the file before it reads it, or replaces it by one that is still open.
EMPTIES_FIRST = """

def save(cache, path):
    with open(path, "w") as file:
        json.dump(merge(load(path), cache), file)
"""
REPLACES_BEFORE_CLOSING = """

def save(cache, path):
    with open(f"{path}.new", "w") as file:
        json.dump(merge(load(path), cache), file)
        os.replace(file.name, path)
"""
# The file and the cache have the same key.
_WITHOUT_MERGE = """

def save(cache, path):
    temporary = Path(path).with_name("temporary")
    temporary.write_text(json.dumps(...))
    os.replace(temporary, path)
"""
ITS_OWN_ENTRY_WINS = _WITHOUT_MERGE.replace("...", "{**load(path), **cache}")
THE_ENTRY_OF_THE_FILE_WINS = _WITHOUT_MERGE.replace("...", "{**cache, **load(path)}")

# The second file of `save` is in the system's temporary folder.
_ELSEWHERE = """

import shutil
import tempfile

def save(cache, path):
    descriptor, temporary = tempfile.mkstemp()
    with open(descriptor, "w") as file:
        json.dump(merge(load(path), cache), file)
    ...(temporary, path)
"""
REPLACED_FROM_ELSEWHERE = _ELSEWHERE.replace("...", "os.replace")
MOVED_FROM_ELSEWHERE = _ELSEWHERE.replace("...", "shutil.move")

# After a `save` that failed, the next one fails, or writes what is damaged.
_SECOND_FILE = """

def save(cache, path):
    with open(f"{path}.new", "...") as file:
        json.dump(merge(load(path), cache), file)
    os.replace(file.name, path)
"""
SECOND_FILE_MUST_BE_NEW = _SECOND_FILE.replace("...", "x")
APPENDS_TO_SECOND_FILE = _SECOND_FILE.replace("...", "a")
TAKES_A_SECOND_FILE_THAT_IS_LEFT = """

def save(cache, path):
    temporary = Path(f"{path}.new")
    if temporary.exists():
        os.replace(temporary, path)
    temporary.write_text(json.dumps(merge(load(path), cache)))
    os.replace(temporary, path)
"""
LEAVES_A_LOCK = """

def save(cache, path):
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_EXCL)
    temporary = Path(f"{path}.new")
    temporary.write_text(json.dumps(merge(load(path), cache)))
    os.replace(temporary, path)
    os.close(lock)
    os.unlink(f"{path}.lock")
"""
GIVES_UP = """

failed = []

def save(cache, path):
    if failed:
        raise failed[0]
    temporary = Path(f"{path}.new")
    try:
        temporary.write_text(json.dumps(merge(load(path), cache)))
        os.replace(temporary, path)
    except OSError as error:
        failed.append(error)
        raise
"""

# `tuned` forgets the cache.
ONLY_NAMES = """

look_up = tuned

def tuned(layers, machine, cache, measure):
    return look_up(layers, machine, cache, measure)[0]
"""

SMALL_IN_PLACE = """

def save(cache, path):
    path, entries = Path(path), merge(load(path), cache)
    if len(entries) < 1000:
        path.write_text(json.dumps(entries))
        return
    temporary = path.with_name("temporary")
    temporary.write_text(json.dumps(entries))
    os.replace(temporary, path)
"""
LARGE_IN_PLACE = SMALL_IN_PLACE.replace("< 1000", "> 1000")

# `merge` compares something else than the times.
_COMPARES = """

import struct

def merge(one, two):
    merged = dict(one)
    for name, entry in two.items():
        merged[name] = min(entry, merged.get(name, entry), key=lambda pair: (..., pair[0]))
    return merged
"""
TIMES_AS_TEXT = _COMPARES.replace("...", "str(pair[1])")
TIMES_TO_TWO_DECIMALS = _COMPARES.replace("...", "round(pair[1], 2)")
TIMES_TO_SIX_DECIMALS = _COMPARES.replace("...", "round(pair[1], 6)")
BEGINNINGS_OF_TACTICS = _COMPARES.replace("..., pair[0]", "pair[1], pair[0][:8]")
SHORT_TACTICS_FIRST = _COMPARES.replace("...", "pair[1], len(pair[0])")
TIMES_IN_FLOAT32 = _COMPARES.replace("...", "struct.unpack('f', struct.pack('f', pair[1]))")

# `load` takes what is not a pair of a text and a number.
_LAX = """

def load(path):
    try:
        entries = json.loads(Path(path).read_text())
        cache = {name: (tactic, ms) for name, (tactic, ms) in entries.items()}
        return cache if all(... for tactic, ms in cache.values()) else {}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
"""
ANY_TIME_BUT_A_TEXT = _LAX.replace("...", "isinstance(tactic, str) and not isinstance(ms, str)")
TRUE_IS_A_TIME = _LAX.replace("...", "isinstance(tactic, str) and isinstance(ms, (int, float))")
NULL_IS_A_TACTIC = _LAX.replace("...", "type(tactic) in (str, type(None)) and type(ms) in (int, float)")

WHOLE_TIMES_ARE_DAMAGED = _LAX.replace("...", "type(tactic) is str and type(ms) is float")
ONLY_WHOLE_TIMES_BELOW_TEN = _LAX.replace("...", "type(tactic) is str and (type(ms) is float or type(ms) is int and ms < 10)")

SHORT_IS_DAMAGED = """

def load(path):
    try:
        text = Path(path).read_text()
        return json.loads(text) if len(text) > 20 else {}
    except (OSError, ValueError):
        return {}
"""

LOOKS_AT_THE_FIRST_ENTRY = """

def load(path):
    try:
        entries = json.loads(Path(path).read_text())
        for tactic, ms in entries.values():
            return entries if type(tactic) is str and type(ms) in (int, float) else {}
    except (OSError, ValueError, AttributeError, TypeError):
        pass
    return {}
"""

# A right answer, and the file of a database.
A_DATABASE = """

import sqlite3

def load(path):
    if not Path(path).exists():
        return {}
    try:
        base = sqlite3.connect(path)
        rows = base.execute("select name, tactic, ms from cache").fetchall()
        base.close()
        return {name: (tactic, ms) for name, tactic, ms in rows}
    except sqlite3.Error:
        return {}

def save(cache, path):
    entries = merge(load(path), cache)
    temporary = f"{path}.new"
    Path(temporary).unlink(missing_ok=True)
    base = sqlite3.connect(temporary)
    base.execute("create table cache (name text primary key, tactic text, ms real)")
    base.executemany("insert into cache values (?, ?, ?)", [(name, *entry) for name, entry in entries.items()])
    base.commit()
    base.close()
    os.replace(temporary, path)
"""

# A right answer that writes in place: a database keeps what it held until a transaction is complete.
A_DATABASE_IN_PLACE = """

import sqlite3
from contextlib import closing

def load(path):
    if not Path(path).exists():
        return {}
    try:
        with closing(sqlite3.connect(path)) as base:
            rows = base.execute("select name, tactic, ms from cache").fetchall()
    except sqlite3.Error:
        return {}
    return {name: (tactic, ms) for name, tactic, ms in rows}

def save(cache, path):
    try:
        write(cache, path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        Path(path).unlink()
        write(cache, path)

def write(cache, path):
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("create table if not exists cache (name text primary key, tactic text, ms real)")
        for name, entry in merge(load(path), cache).items():
            base.execute("insert or replace into cache values (?, ?, ?)", (name, *entry))
"""

TAKES_THE_REFERENCE = """
from course_lib.labs.lab03_tuning import reference

exec(reference.TIMING)
"""


def another(folder: Path) -> None:
    """Another right answer in every file. The recipe is the reference's, because the record has one answer."""
    for name, text in (("timing.py", TIMING), ("choice.py", CHOICE), ("budget.py", BUDGET), ("timing_cache.py", CACHE)):
        (folder / name).write_text(text)


def changed(file: str, changes: Mapping[str, str]) -> str:
    """The reference's text of a file with parts of it replaced."""
    text = {
        "timing.py": reference.TIMING,
        "choice.py": reference.CHOICE,
        "budget.py": reference.BUDGET,
        "timing_cache.py": reference.CACHE,
    }[file]
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text
