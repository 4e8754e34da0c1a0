"""Code that is written for several versions, objects that are not TensorRT's, and what is only seen by following types."""

import pytest

from course_lib.migration.analysis.verdicts import verdict_on
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable
from tests.migration.test_rules import EVERY
from tests.migration.test_scan import names, of

HEAD = "import tensorrt as trt\n"
TARGETS = (known.RELEASES_IN_ORDER[0], known.RELEASES_IN_ORDER[-1], known.RTX)


# ---- advice that would break code


@pytest.mark.parametrize("target", TARGETS)
def test_a_name_that_the_target_has_is_never_called_removed(target: str) -> None:
    table = ApiTable.load(target)
    said = {name: verdict_on(name, table) for name in EVERY}
    wrong = [(name, one.name) for name, one in said.items() if one and one.severity == "removed" and table.has(one.name)]
    assert wrong == [] and sum(one is not None for one in said.values()) > 40


@pytest.mark.parametrize(
    "layer", ["add_fully_connected(x, 1, w)", "add_rnn_v2(x, 1, 1, 1, o)", "add_convolution(x, 1, (3, 3), w)"]
)
def test_what_a_removed_layer_inherits_is_still_there(layer: str) -> None:
    code = f"{HEAD}layer = network.{layer}\nlayer.get_output(0)\nlayer.name = 'a'\nlayer.num_inputs\n"
    assert [line for line, _, _ in of(code)] == [2]


# ---- guards

OLD, OTHER = "config.max_workspace_size = 1", "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1)"


@pytest.mark.parametrize(
    "code",
    [
        f"from contextlib import suppress\nwith suppress(TypeError, AttributeError), open('x'):\n    {OLD}\n    config.int8_calibrator = c",
        f"with contextlib.suppress(Exception):\n    {OLD}",
        f"try:\n    {OLD}\nexcept Exception:\n    {OTHER}",
        f"try:\n    {OTHER}\nexcept Exception as error:\n    log(error)\n    {OLD}",
        f"try:\n    {OLD}\nexcept Exception:\n    pass",
        f"major, minor = trt.__version__.split('.')[:2]\nif int(major) < 10:\n    {OLD}",
        f"major, minor, *rest = map(int, trt.__version__.split('.'))\nif (major, minor) < (8, 5):\n    {OLD}",
        f"if (v := tuple(int(n) for n in trt.__version__.split('.')[:2])) < (8, 6):\n    {OLD}",
        f"from packaging.version import Version\nif Version(trt.__version__).release[:2] < (10, 0):\n    {OLD}",
        f"import pkg_resources\nV = pkg_resources.get_distribution('tensorrt').version\nif V.startswith('8'):\n    {OLD}",
    ],
)
def test_a_guard_is_understood(code: str) -> None:
    assert "IBuilderConfig.max_workspace_size" not in names(HEAD + code)
    assert names(HEAD + OLD) == ["IBuilderConfig.max_workspace_size"]


@pytest.mark.parametrize(
    "guard",
    [
        "major, minor = trt.__version__.split('.')[:2]\nif int(major) < 10:\n    ",
        "from packaging.version import parse\nif parse(trt.__version__).major < 10:\n    ",
        "import importlib.metadata\nif int(importlib.metadata.version('tensorrt').split('.')[0]) < 10:\n    ",
    ],
)
def test_a_guarded_branch_counts_for_the_version_that_it_is_for(guard: str) -> None:
    assert (names(HEAD + guard + OLD, "8.6"), names(HEAD + guard + OLD, "11.4")) == (["IBuilderConfig.max_workspace_size"], [])


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    engine = builder.build_cuda_engine(n)\nexcept Exception as error:\n    print(error)\n    raise",
        "try:\n    engine = builder.build_cuda_engine(n)\nexcept Exception:\n    pass",  # what follows needs the engine
        "try:\n    builder.build_cuda_engine(n)\nexcept ValueError:\n    pass",
        "with contextlib.suppress(FileNotFoundError):\n    builder.build_cuda_engine(n)",
        "major, minor = trt.__version__.split('.')[:2]\nif int(major) >= 10:\n    builder.build_cuda_engine(n)",
    ],
)
def test_what_only_looks_like_a_guard_hides_nothing(code: str) -> None:
    assert names(HEAD + code) == ["Builder.build_cuda_engine"]


# ---- what was missed


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("trt.infer.ConsoleLogger(trt.infer.LogSeverity.INFO)", ["infer.ConsoleLogger", "infer.LogSeverity.INFO"]),
        ("e = trt.utils.load_engine(log, p)\ne.get_nb_bindings()", ["utils.load_engine", "ICudaEngine.get_nb_bindings"]),
        ("b = trt.infer.create_infer_builder(l)\nb.set_max_workspace_size(1)\nb.destroy()",
         ["infer.create_infer_builder", "Builder.set_max_workspace_size", "Builder.destroy"]),
        ("from tensorrt.parsers import uffparser\np = uffparser.create_uff_parser()\np.register_input('x')",
         ["import tensorrt.parsers", "UffParser.register_input"]),
        ("thing.get_binding_dimensions(0).to_DimsCHW()", ["ICudaEngine.get_binding_dimensions"]),
        ("def f(engine, name):\n    return engine[name]", ["ICudaEngine.__getitem__(str)"]),
        ("for name in ['x', 'y']:\n    engine[name]", ["ICudaEngine.__getitem__(str)"]),
        ("for i, binding in enumerate(engine):\n    engine[binding]", ["ICudaEngine.__getitem__(str)"]),
        ("for name, x in zip(engine, arrays):\n    engine[name]", ["ICudaEngine.__getitem__(str)"]),
        ("def f(e: trt.ICudaEngine, key: str):\n    return e[key]", ["ICudaEngine.__getitem__(str)"]),
        ("def f(engine, i):\n    return engine[i]", []),
        ("for i in range(engine.num_io_tensors):\n    engine[i]", []),
        ("for name, model in models.items():\n    self.engine[name]", []),  # a dictionary of engines
        ("for item in net:\n    item.precision = trt.float16", ["ILayer.precision"]),
        ("item = net.get_layer(0)\nitem.precision = trt.DataType.HALF", ["ILayer.precision"]),
        ("class S(trt.IAlgorithmSelector):\n    def select_algorithms(self, c, all):\n        return [x.timing_msec for x in all]",
         ["IAlgorithmSelector", "IAlgorithm.timing_msec"]),
        ("import torch\nm = torch_tensorrt.compile(n, inputs=x, torch_executed_ops=['aten::add'])",
         ["torch_tensorrt.compile(torch_executed_ops=)"]),
        ("torch_tensorrt.compile(n, {'input_shapes': []})", ["torch_tensorrt.compile(module, {...})"]),  # without its import
    ],
)  # fmt: skip
def test_what_a_reader_sees_is_found(code: str, found: list[str]) -> None:
    assert sorted(names(HEAD + code)) == sorted(found)


# ---- severities of Torch-TensorRT's keywords


@pytest.mark.parametrize(
    ("code", "to", "found"),
    [
        ("t.compile(m, truncate_long_and_double=True)", "11.4", "deprecated torch_tensorrt.compile(truncate_long_and_double=)"),
        ("torch.compile(m, backend='tensorrt', options={'truncate_long_and_double': True})", "11.4",
         'deprecated torch.compile(options={"truncate_long_and_double"})'),
        ("t.compile(m, ir='torch_compile', pass_through_build_failures=True)", "11.4", ""),
        ("t.compile(m, pass_through_build_failures=True)", "11.4", "ignored torch_tensorrt.compile(pass_through_build_failures=)"),
        ("t.compile(m, refit=True)", "11.4", "removed torch_tensorrt.compile(refit=)"),
        ("t.compile(m, refit=True, immutable_weights=False)", "11.4", "deprecated torch_tensorrt.compile(refit=)"),
        ("t.Input(shape=(1,), profiles=[])", "11.0", "ignored torch_tensorrt.Input(profiles=)"),
        ("t.Input(shape=(1,), profiles=[])", "11.4", ""),
    ],
)  # fmt: skip
def test_a_keyword_is_called_what_it_is(code: str, to: str, found: str) -> None:
    said = [f"{severity} {name}" for _, severity, name in of(f"import torch\nimport torch_tensorrt as t\n{code}\n", to)]
    assert said == ([found] if found else [])


# ---- names that no version has

CONTEXT = "c = trt.Runtime(log).deserialize_cuda_engine(data).create_execution_context()\n"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (f"{CONTEXT}c.execute_async_v4(s)", "IExecutionContext.execute_async_v4"),
        ("trt.BuilderFlag.FP32", "BuilderFlag.FP32"),
        ("trt.load_engine('x')", "load_engine"),
        ("from tensorrt import Builder\nb = Builder(log)\nb.optimize()", "Builder.optimize"),
        ("def f(config: trt.IBuilderConfig):\n    config.set_workspace(1)", "IBuilderConfig.set_workspace"),
        ("class A:\n    def __init__(self):\n        self.net = trt.Builder(log).create_network()\n"
         "    def g(self):\n        self.net.add_batch_norm()", "INetworkDefinition.add_batch_norm"),
        ("config = trt.Builder(log).create_builder_config()\nconfig.workspace = 1", "IBuilderConfig.workspace"),
    ],
)  # fmt: skip
def test_a_name_that_no_version_has_is_called_unknown(code: str, found: str) -> None:
    for target in ("8.6", "11.4"):
        assert [(severity, name) for _, severity, name in of(HEAD + code, target)] == [("unknown", found)]


@pytest.mark.parametrize(
    "code",
    [
        f"{CONTEXT}c = wrap(c)\nc.run()",
        f"{CONTEXT}if hasattr(c, 'run'):\n    c.run()",
        f"{CONTEXT}try:\n    c.run()\nexcept AttributeError:\n    pass",
        f"{CONTEXT}c.profiler.totals()",  # a profiler is the program's own class
        "from helpers import *\nb = trt.Builder(log)\nb.optimize()",
        "def f():\n    global b\n    b = None\nb = trt.Builder(log)\nb.optimize()",
        "class Own(trt.Builder):\n    def optimize(self): ...\nb = Own(log)\nb.optimize()",
        "for b in things:\n    b.optimize()\nb = trt.Builder(log)",
        "def f(log: trt.Logger):\n    log.debug('x')",
        "builder.optimize(); engine.save('x'); network.foo",
        "import contextlib\n@contextlib.contextmanager\ndef make():\n    yield trt.Builder(log)\nmake().optimize()",
        "async def make():\n    return trt.Builder(log)\nmake().optimize()",
        "trt.my_patch = 1\ntrt.my_patch",
        "layer = trt.Builder(log).create_network().get_layer(0)\nlayer.kernel",  # a layer of any kind
        "trt.os.path, trt.plugin.register",
        "b = trt.Builder(log)\nb._private",
        "import numpy as np\ndef f(kind: trt.DataType | np.dtype):\n    return kind.to(1)",
        "from typing import Optional, Union\ndef f(t: Optional[Union[trt.ITensor, Node]]):\n    return t.meta",
    ],
)
def test_what_is_not_certain_is_not_called_unknown(code: str) -> None:
    assert [name for _, severity, name in of(HEAD + code) if severity == "unknown"] == []
