// The fused attentions as IPluginV2DynamicExt, for TensorRT 8.6. `registry.load_library(path)` finds getPluginCreators by its name.

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <initializer_list>

#include "../attention.h"
#include "heads_plugin.h"

using namespace nvinfer1;

namespace course {
namespace {

bool isRowOrder(PluginTensorDesc const& tensor, DataType type) {
  return tensor.format == TensorFormat::kLINEAR && tensor.type == type;
}

// Whole sequences: (batch, sequence, heads * 3 * 64) to (batch, sequence, heads * 64), the input ordered by head and then by query, key,
// value.
class Attention final : public HeadsPlugin<Attention> {
 public:
  static constexpr char const* kName = "CourseAttention";
  static constexpr int32_t kOutputs = 1;
  using HeadsPlugin::HeadsPlugin;

  DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder& expressions) noexcept override {
    DimsExprs output = inputs[0];
    output.d[2] = expressions.constant(heads_ * ATTENTION_HEAD_SIZE);
    return output;
  }

  // FP16 only, row by row: an engine in FP32 is turned away at build time instead of being converted without a word.
  bool supportsFormatCombination(int32_t position, PluginTensorDesc const* tensors, int32_t, int32_t) noexcept override {
    return isRowOrder(tensors[position], DataType::kHALF);
  }

  size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override { return 0; }

  int32_t enqueue(PluginTensorDesc const* described, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                  void*, cudaStream_t stream) noexcept override {
    Dims const& qkv = described[0].dims;
    if (qkv.nbDims != 3 || qkv.d[2] != heads_ * 3 * ATTENTION_HEAD_SIZE) return -1;  // another head size than the kernel's
    return attention_launch(inputs[0], outputs[0], qkv.d[0], qkv.d[1], heads_, stream);
  }
};

// New tokens and a cache, in the words of ../attention.h: inputs qkv (batch, sequence, 3 * heads * 64), keys and values
// (batch, heads, capacity, 64), position (1), cos and sin (capacity, 32); outputs (batch, sequence, heads * 64), keys and values. One token
// is a step, several are a prompt, which begins at position 0.
//
// The caller binds the cache's outputs to the addresses of its inputs, and then only the new tokens are written. With other addresses the
// cache is copied first, and the outputs are the same.
class CachedAttention final : public HeadsPlugin<CachedAttention> {
 public:
  static constexpr char const* kName = "CourseCachedAttention";
  static constexpr int32_t kOutputs = 3;
  using HeadsPlugin::HeadsPlugin;

  DimsExprs getOutputDimensions(int32_t index, DimsExprs const* inputs, int32_t, IExprBuilder& expressions) noexcept override {
    DimsExprs output = inputs[index];  // of a cache those of the input at the same place
    if (index == 0) output.d[2] = expressions.constant(heads_ * ATTENTION_HEAD_SIZE);
    return output;
  }

  bool supportsFormatCombination(int32_t position, PluginTensorDesc const* tensors, int32_t, int32_t) noexcept override {
    DataType const table = position == kCos || position == kSin ? DataType::kFLOAT : DataType::kHALF;
    return isRowOrder(tensors[position], position == kPosition ? DataType::kINT32 : table);
  }

  size_t getWorkspaceSize(PluginTensorDesc const* inputs, int32_t, PluginTensorDesc const*, int32_t) const noexcept override {
    return inputs[kQkv].dims.d[1] > 1 ? bytes(inputs[kQkv].dims) : 0;  // a prompt's rotated queries, keys and values
  }

  int32_t enqueue(PluginTensorDesc const* described, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                  void* workspace, cudaStream_t stream) noexcept override {
    Dims const &qkv = described[kQkv].dims, &cache = described[kKeys].dims;
    bool const right = qkv.nbDims == 3 && qkv.d[2] == 3 * heads_ * ATTENTION_HEAD_SIZE && cache.nbDims == 4 && cache.d[1] == heads_ &&
                       cache.d[3] == ATTENTION_HEAD_SIZE;
    if (!right) return -1;
    for (int32_t const i : {kKeys, kValues}) {
      if (outputs[i] == inputs[i]) continue;
      if (cudaError_t const status = cudaMemcpyAsync(outputs[i], inputs[i], bytes(cache), cudaMemcpyDeviceToDevice, stream)) return status;
    }
    if (qkv.d[1] == 1)
      return attention_step_launch(inputs[kQkv], inputs[kCos], inputs[kSin], inputs[kPosition], outputs[kKeys], outputs[kValues],
                                   outputs[0], qkv.d[0], heads_, cache.d[2], stream);
    return attention_prompt_launch(inputs[kQkv], inputs[kCos], inputs[kSin], outputs[kKeys], outputs[kValues], workspace, outputs[0],
                                   qkv.d[0], qkv.d[1], heads_, cache.d[2], stream);
  }

 private:
  enum Place : int32_t { kQkv, kKeys, kValues, kPosition, kCos, kSin };

  static size_t bytes(Dims const& dims) {
    size_t size = 2;  // of a half
    for (int32_t i = 0; i < dims.nbDims; ++i) size *= dims.d[i];
    return size;
  }
};

}  // namespace
}  // namespace course

extern "C" TENSORRTAPI IPluginCreator* const* getPluginCreators(int32_t& count) {
  static course::HeadsCreator<course::Attention> whole;
  static course::HeadsCreator<course::CachedAttention> cached;
  static IPluginCreator* const creators[] = {&whole, &cached};
  count = 2;
  return creators;
}

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder*) {}  // load_library asks for it; these plugins have nothing to log
