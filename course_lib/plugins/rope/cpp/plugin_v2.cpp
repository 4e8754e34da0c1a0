// RoPE as IPluginV2DynamicExt and its creator, for TensorRT 8.6. `registry.load_library(path)` finds getPluginCreators by its name.
//
// Beside plugin_v3.cpp it shows what the third version changed: here a plugin writes its own bytes into the engine file, the creator
// has a second way in to read them, and one interface holds everything. Deprecated since TensorRT 10.

#include "core.h"

using namespace nvinfer1;

namespace course {
namespace {

class Rope final : public IPluginV2DynamicExt {
 public:
  explicit Rope(int32_t interleaved) : interleaved_(interleaved) {}

  IPluginV2DynamicExt* clone() const noexcept override { return new Rope(interleaved_); }
  void destroy() noexcept override { delete this; }
  int32_t initialize() noexcept override { return 0; }
  void terminate() noexcept override {}

  AsciiChar const* getPluginType() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  void setPluginNamespace(AsciiChar const*) noexcept override {}

  // ---- build

  int32_t getNbOutputs() const noexcept override { return kOutputs; }
  DataType getOutputDataType(int32_t, DataType const* inputs, int32_t) const noexcept override { return inputs[0]; }

  // Expressions, since a dimension may be known at run time only. Ours are those of x, as they are.
  DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) noexcept override { return inputs[0]; }

  bool supportsFormatCombination(int32_t position, PluginTensorDesc const* tensors, int32_t, int32_t) noexcept override {
    return supports(position, tensors[position], tensors[0]);
  }

  void configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override {}

  // ---- runtime

  size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override { return 0; }

  int32_t enqueue(PluginTensorDesc const* described, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                  void*, cudaStream_t stream) noexcept override {
    return course::enqueue(described, inputs, outputs, interleaved_ != 0, stream);
  }

  size_t getSerializationSize() const noexcept override { return sizeof interleaved_; }
  void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &interleaved_, sizeof interleaved_); }

 private:
  int32_t interleaved_;
};

class RopeCreator final : public IPluginCreator {
 public:
  AsciiChar const* getPluginName() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  void setPluginNamespace(AsciiChar const*) noexcept override {}
  PluginFieldCollection const* getFieldNames() noexcept override { return declaredFields(); }

  IPluginV2DynamicExt* createPlugin(AsciiChar const*, PluginFieldCollection const* fields) noexcept override {
    int32_t interleaved;
    return readFields(fields, interleaved) ? new Rope(interleaved) : nullptr;
  }

  IPluginV2DynamicExt* deserializePlugin(AsciiChar const*, void const* bytes, size_t size) noexcept override {
    int32_t interleaved;
    if (size != sizeof interleaved) return nullptr;
    std::memcpy(&interleaved, bytes, size);
    return new Rope(interleaved);
  }
};

}  // namespace
}  // namespace course

extern "C" TENSORRTAPI IPluginCreator* const* getPluginCreators(int32_t& count) {
  static course::RopeCreator creator;
  static IPluginCreator* const creators[] = {&creator};
  count = 1;
  return creators;
}

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder*) {}  // load_library asks for it; this plugin has nothing to log
