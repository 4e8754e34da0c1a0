"""A recipe survives its TOML, and whatever is wrong with one is said in one line that names the key."""

import copy
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError, RecipeError
from course_lib.recipe import Profile, Recipe, ShapeRange

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

dimensions = st.integers(0, 2**31 - 1)


@st.composite
def ranges(draw: st.DrawFn) -> ShapeRange:
    axes = [sorted(draw(st.tuples(dimensions, dimensions, dimensions))) for _ in range(draw(st.integers(0, 5)))]
    low, best, high = ([axis[bound] for axis in axes] for bound in range(3))
    return ShapeRange(min=low, opt=best, max=high)


recipes = st.builds(
    Recipe,
    precision=st.sampled_from(["fp32", "fp16", "bf16", "int8", "fp8"]),
    workspace_mib=st.integers(0, 1 << 20),
    optimization_level=st.integers(0, 5),
    flags=st.lists(st.sampled_from(["tf32", "sparse_weights", "strict_nans"]), unique=True).map(tuple),
    targets=st.lists(st.sampled_from(["sm75", "sm89", "sm120"]), unique=True).map(tuple),
    profiles=st.lists(st.dictionaries(st.text(), ranges(), max_size=3).map(Profile), max_size=3).map(tuple),
)


@given(recipes)
def test_toml_gives_the_recipe_back(recipe: Recipe) -> None:
    assert Recipe.loads(recipe.dumps()) == recipe


def test_save_and_load_a_file(tmp_path: Path, service_recipe: Recipe) -> None:
    service_recipe.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == service_recipe == Recipe.load(str(tmp_path / "recipe.toml"))


def test_defaults() -> None:
    recipe = Recipe.loads("")
    assert recipe == Recipe()
    assert (recipe.precision, recipe.workspace_mib, recipe.optimization_level) == ("fp32", 1024, 3)
    assert (recipe.flags, recipe.targets, recipe.profiles) == (("tf32",), (), ())
    assert tomllib.loads(recipe.dumps()) == {}, "a default was written"


def test_the_design_example_is_read() -> None:
    recipe = Recipe.loads(
        """
        precision = "fp16"
        workspace_mib = 512
        optimization_level = 5
        flags = []
        targets = ["sm89", "sm120"]
        [[profile]]
        pixels = { min = [1, 3, 32, 32], opt = [8, 3, 32, 32], max = [32, 3, 32, 32] }
        """
    )
    assert (recipe.precision, recipe.workspace_mib, recipe.optimization_level) == ("fp16", 512, 5)
    assert (recipe.flags, recipe.targets) == ((), ("sm89", "sm120"))
    assert recipe.profiles[0]["pixels"].opt == (8, 3, 32, 32)


PROFILE = "[[profile]]\nimage = {{ {} }}"
WRONG = {
    "unknown key": ("batch = 8", ["unknown key 'batch'", "workspace_mib", "profile"]),
    "unknown key in a range": (
        PROFILE.format("min = [1], opt = [1], max = [2], best = [1]"),
        ["image", "unknown key 'best'", "opt"],
    ),
    "a typo in a range": (
        PROFILE.format("min = [1], optt = [1], max = [2]"),
        ["image", "unknown key 'optt': did you mean opt?", "max, min, opt"],
    ),
    "a typo at the top": ("precison = 'fp16'", ["unknown key 'precison': did you mean precision?"]),
    "text for a number": ('workspace_mib = "1024"', ["workspace_mib", "integer", "'1024'"]),
    "a bool for a number": ("workspace_mib = true", ["workspace_mib", "integer", "True"]),
    "a level too high": ("optimization_level = 6", ["optimization_level", "6"]),
    "a dimension beyond 32 bits": (
        PROFILE.format("min = [1], opt = [1], max = [2147483648]"),
        ["image", "max", "2147483647", "2147483648"],
    ),
    "min above max": (PROFILE.format("min = [9, 4], opt = [9, 4], max = [8, 4]"), ["image", "dimension 0", "9, 9, 8"]),
    "ranks differ": (PROFILE.format("min = [1], opt = [1, 1], max = [1]"), ["image", "rank", "1, 2 and 1"]),
    "a precision nobody has": ('precision = "fp12"', ["precision", "'fp12'", "'bf16'"]),
    "precision as a flag": ('flags = ["fp16"]', ["flags", 'precision = "fp16"']),
    "a target by its product name": ('targets = ["h100"]', ["targets", "'h100'"]),
    "profile as one table": ("[profile]\nimage = 1", ["profile"]),
    "not TOML": ("precision = fp16", ["TOML", "line 1"]),
    "a table in a thousand tables": ("precision" + ".a" * 3000 + " = 1", ["TOML", "recursion"]),
    "a number of thousands of digits": ("workspace_mib = 0x" + "f" * 4000, ["TOML", "digits"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_one_line_with_the_key(what: str) -> None:
    text, words = WRONG[what]
    with pytest.raises(RecipeError) as raised:
        Recipe.loads(text)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == []


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    cases = {b"precision = 'fp12'": "precision", b"\xff\xfe\x00": "cannot be read as text", b"=": "TOML"}
    for content, word in cases.items():
        path.write_bytes(content)
        with pytest.raises(RecipeError, match=word) as raised:
            Recipe.load(path)
        assert str(path) in str(raised.value) and len(str(raised.value).splitlines()) == 1
    with pytest.raises(RecipeError, match="no such recipe"):
        Recipe.load(tmp_path / "absent.toml")
    with pytest.raises(RecipeError, match="cannot be read"):
        Recipe.load(tmp_path)


def test_python_callers_get_the_same_errors() -> None:
    with pytest.raises(RecipeError, match="workspace_mib"):
        Recipe(workspace_mib=-5)
    with pytest.raises(RecipeError, match="min <= opt <= max"):
        Profile(image={"min": (2,), "opt": (1,), "max": (3,)})
    with pytest.raises(RecipeError, match="same rank"):
        ShapeRange(min=(1,), opt=(1, 1), max=(1,))
    assert issubclass(RecipeError, CourseError) and issubclass(RecipeError, ValueError)


def test_a_copy_is_equal(service_recipe: Recipe) -> None:
    for copied in (copy.deepcopy(service_recipe), pickle.loads(pickle.dumps(service_recipe))):
        assert copied == service_recipe
