# Python 2, as TensorRT 5 was often used with
import tensorrt as trt
import uff  # removed import uff

def build(path):
    print "building", path
    try:
        builder = trt.Builder(trt.Logger())
    except RuntimeError, error:
        print error
        raise ValueError, "no builder"
    builder.max_workspace_size = 1 << 20  # removed Builder.max_workspace_size
    print "mode:", builder.fp16_mode  # removed Builder.fp16_mode
    exec "x = 1"
    size = `builder.max_batch_size`
    return builder.build_cuda_engine(None)  # removed Builder.build_cuda_engine
