"""Flags of trtexec, Polygraphy, Nsight Systems and names of packages that went away, and what replaces each.

Sources: trtexec's own list of flags in its published source (``sampleOptions.cpp``) of 8.6, 10.0, 10.16 and 11.1, Polygraphy's in
0.33 to 0.53, NVIDIA's notes on Nsight Systems.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.migration.findings import Severity


@dataclass(frozen=True)
class ToolRule:
    """Flags of a tool and what became of them.

    Attributes:
        tool: ``"trtexec"``, ``"polygraphy"``, ``"nsys"`` or ``"pip"``.
        flags: as written on the command line, without a value; ``"--flag=value"`` means that value alone.
        since: the version of TensorRT, or of the tool where it begins with the tool's name.
    """

    tool: str
    flags: tuple[str, ...]
    severity: Severity
    since: str
    use: str
    lecture: int


def _rule(tool: str, flags: str, severity: Severity, since: str, use: str, lecture: int) -> ToolRule:
    return ToolRule(tool, tuple(flags.split()), severity, since, use, lecture)


_TYPED = "cast the ONNX model (modelopt.onnx.autocast): the types are those of the graph"
_QDQ = "quantize the ONNX model (modelopt.onnx.quantization): INT8 comes from Q/DQ nodes"
TRTEXEC = (
    _rule("trtexec", "--workspace", "removed", "10.0", "--memPoolSize=workspace:1024 (in MiB)", 2),
    _rule("trtexec", "--explicitBatch --explicitPrecision", "removed", "10.0", "leave it out: the batch is always explicit", 2),
    _rule("trtexec", "--batch --maxBatch", "removed", "10.0",
          "--shapes=input:8x3x224x224, with --minShapes, --optShapes, --maxShapes", 8),
    _rule("trtexec", "--deploy --model --uff --uffInput --uffNHWC --output", "removed", "10.0", "--onnx=model.onnx", 2),
    _rule("trtexec", "--buildOnly", "removed", "10.0", "--skipInference", 2),
    _rule("trtexec", "--nvtxMode", "removed", "10.0", "--profilingVerbosity=detailed", 12),
    _rule("trtexec", "--minTiming", "removed", "10.0", "--avgTiming", 4),
    _rule("trtexec", "--heuristic", "removed", "10.0", "--builderOptimizationLevel=2", 4),
    _rule("trtexec", "--nativeInstanceNorm --ni", "removed", "10.0",
          "leave it out: it is the default (--pluginInstanceNorm for the other)", 2),
    _rule("trtexec", "--preview=+fasterDynamicShapes0805 --preview=+disableExternalTacticSourcesForCore0805", "removed", "10.0",
          "leave it out: it is how TensorRT works now", 8),
    _rule("trtexec", "--tacticSources=CUDNN --tacticSources=CUBLAS --tacticSources=CUBLAS_LT", "removed", "11.0",
          "leave it out: only EDGE_MASK_CONVOLUTIONS and JIT_CONVOLUTIONS remain", 4),
    _rule("trtexec", "--fp16 --bf16 --fp8 --int4 --best", "removed", "11.0", _TYPED, 5),
    _rule("trtexec", "--int8", "removed", "11.0", _QDQ, 6),
    _rule("trtexec", "--calib --calibProfile --minShapesCalib --optShapesCalib --maxShapesCalib", "removed", "11.0", _QDQ, 6),
    _rule("trtexec", "--precisionConstraints --layerPrecisions --layerPrecision --layerOutputTypes", "removed", "11.0",
          "put Cast nodes into the ONNX model", 5),
    _rule("trtexec", "--weightless", "removed", "11.0", "--stripWeights", 10),
    _rule("trtexec", "--restricted", "removed", "11.0", "leave it out", 14),
    _rule("trtexec", "--stronglyTyped", "deprecated", "11.0", "leave it out: networks are always strongly typed", 5),
    _rule("trtexec", "--useCudaGraph", "deprecated", "11.0",
          "leave it out: it is the default (--noCudaGraph for the other)", 11),
    _rule("trtexec", "--useSpinWait", "deprecated", "11.0", "leave it out: it is the default (--noSpinWait for the other)", 11),
    _rule("trtexec", "--noDataTransfers", "deprecated", "11.0",
          "leave it out: it is the default (--includeDataTransfers for the other)", 11),
    _rule("trtexec", "--separateProfileRun", "deprecated", "11.0", "leave it out: it is the default", 12),
    _rule("trtexec", "--streams", "deprecated", "8.6", "--infStreams", 10),
    _rule("trtexec", "--plugins", "deprecated", "8.6", "--staticPlugins, or --dynamicPlugins", 9),
    _rule("trtexec", "--directIO", "deprecated", "10.7", "--inputIOFormats and --outputIOFormats alone", 3),
)  # fmt: skip

POLYGRAPHY = (
    _rule("polygraphy", "--fp16 --bf16 --fp8", "removed", "11.0", _TYPED, 5),
    _rule("polygraphy", "--int8 --calibration-cache --calib-base-cls --quantile --regression-cutoff",
          "removed", "11.0", _QDQ, 6),
    _rule("polygraphy", "--precision-constraints --strict-types --no-strict-types --explicit-precision", "removed", "11.0",
          "put Cast nodes into the ONNX model", 5),
    _rule("polygraphy", "--save-tactics --load-tactics", "removed", "11.0", "--save-timing-cache and --load-timing-cache", 4),
    _rule("polygraphy", "--tactic-replay", "removed", "Polygraphy 0.35",
          "--save-timing-cache and --load-timing-cache (until TensorRT 10: --save-tactics, --load-tactics)", 4),
    _rule("polygraphy", "--workspace", "removed", "10.0", "--pool-limit workspace:1G", 2),
    _rule("polygraphy", "--timing-cache", "removed", "Polygraphy 0.47", "--load-timing-cache and --save-timing-cache", 4),
    _rule("polygraphy", "--int-min --int-max --float-min --float-max", "removed", "Polygraphy 0.53",
          "--val-range name:[low,high]", 14),
    _rule("polygraphy", "--trt-legacy --uff-order --save-uff --preprocessor", "removed", "10.0", "--trt, on an ONNX model", 2),
    _rule("polygraphy", "--batch-size", "removed", "10.0", "--input-shapes name:[8,3,224,224]", 8),
    _rule("polygraphy", "--strongly-typed", "deprecated", "11.0", "leave it out: networks are always strongly typed", 5),
    _rule("polygraphy", "--validate", "changed", "",
          "it looks for NaN and infinity only: compare with another runner (--onnxrt --trt)", 14),
)  # fmt: skip

NSYS = (
    _rule("nsys", "--stop-on-range-end -x=range", "removed", "nsys 2021.5", "--capture-range-end=stop", 12),
    _rule("nsys", "gpukernsum gpumemtimesum gpumemsizesum gpusum", "removed", "nsys 2023.1",
          "--report cuda_gpu_kern_sum, cuda_gpu_sum", 12),
    _rule("nsys", "cudaapisum osrtsum nvtxsum nvtxppsum", "removed", "nsys 2023.1",
          "--report cuda_api_sum, osrt_sum, nvtx_sum", 12),
)  # fmt: skip
QDREP = _rule("nsys", ".qdrep", "changed", "nsys 2021.4", "reports are called .nsys-rep", 12)

# package: severity, since, what to use, lecture
PACKAGES = {
    "nvidia-tensorrt": _rule("pip", "nvidia-tensorrt", "deprecated", "8.6", "pip install tensorrt", 2),
    "nvidia-pyindex": _rule(
        "pip", "nvidia-pyindex", "deprecated", "8.6", "pip install tensorrt finds NVIDIA's index by itself", 2
    ),
    "pytorch-quantization": _rule("pip", "pytorch-quantization", "deprecated", "", "pip install nvidia-modelopt", 7),
    "trtorch": _rule("pip", "trtorch", "removed", "Torch-TensorRT 1.0", "pip install torch-tensorrt", 13),
    "uff": _rule("pip", "uff", "removed", "10.0", "export the model to ONNX", 2),
    "graphsurgeon": _rule("pip", "graphsurgeon", "removed", "10.0", "pip install onnx-graphsurgeon", 2),
}
