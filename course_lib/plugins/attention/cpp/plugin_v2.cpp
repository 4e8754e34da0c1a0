// Fused attention as IPluginV2DynamicExt and its creator, for TensorRT 8.6. `registry.load_library(path)` finds getPluginCreators by its
// name. The roles of the methods are explained in ../../rope/cpp/plugin_v2.cpp; what differs here is the output's shape.

#include <NvInfer.h>

#include <cstring>

#include "../attention.h"

using namespace nvinfer1;

namespace course {
namespace {

// An engine finds the plugins that it needs by these three, and so does the ONNX parser.
constexpr char const* kName = "CourseAttention";
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "course";

class Attention final : public IPluginV2DynamicExt {
 public:
  explicit Attention(int32_t heads) : heads_(heads) {}

  IPluginV2DynamicExt* clone() const noexcept override { return new Attention(heads_); }
  void destroy() noexcept override { delete this; }
  int32_t initialize() noexcept override { return 0; }
  void terminate() noexcept override {}

  AsciiChar const* getPluginType() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  void setPluginNamespace(AsciiChar const*) noexcept override {}

  // ---- build

  int32_t getNbOutputs() const noexcept override { return 1; }
  DataType getOutputDataType(int32_t, DataType const* inputs, int32_t) const noexcept override { return inputs[0]; }

  // (batch, sequence, heads * 3 * 64) to (batch, sequence, heads * 64).
  DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder& expressions) noexcept override {
    DimsExprs output = inputs[0];
    output.d[2] = expressions.constant(heads_ * ATTENTION_HEAD_SIZE);
    return output;
  }

  // FP16 only, row by row: an engine in FP32 is turned away at build time instead of being converted without a word.
  bool supportsFormatCombination(int32_t position, PluginTensorDesc const* tensors, int32_t, int32_t) noexcept override {
    return tensors[position].format == TensorFormat::kLINEAR && tensors[position].type == DataType::kHALF;
  }

  void configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override {}

  // ---- runtime

  size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override { return 0; }

  int32_t enqueue(PluginTensorDesc const* described, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                  void*, cudaStream_t stream) noexcept override {
    Dims const& qkv = described[0].dims;
    if (qkv.nbDims != 3 || qkv.d[2] != heads_ * 3 * ATTENTION_HEAD_SIZE) return -1;  // another head size than the kernel's
    return attention_launch(inputs[0], outputs[0], qkv.d[0], qkv.d[1], heads_, stream);
  }

  size_t getSerializationSize() const noexcept override { return sizeof heads_; }
  void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &heads_, sizeof heads_); }

 private:
  int32_t heads_;
};

class AttentionCreator final : public IPluginCreator {
 public:
  AsciiChar const* getPluginName() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  void setPluginNamespace(AsciiChar const*) noexcept override {}

  PluginFieldCollection const* getFieldNames() noexcept override {
    static PluginField const field{"heads", nullptr, PluginFieldType::kINT32, 1};
    static PluginFieldCollection const fields{1, &field};
    return &fields;
  }

  IPluginV2DynamicExt* createPlugin(AsciiChar const*, PluginFieldCollection const* fields) noexcept override {
    int32_t heads = 0;
    for (int32_t i = 0; i < fields->nbFields; ++i) {
      PluginField const& field = fields->fields[i];
      bool const known = std::strcmp(field.name, "heads") == 0 && field.type == PluginFieldType::kINT32 && field.length == 1;
      if (!known) return nullptr;  // better no plugin than one that ignores an attribute
      heads = *static_cast<int32_t const*>(field.data);
    }
    return heads > 0 ? new Attention(heads) : nullptr;
  }

  IPluginV2DynamicExt* deserializePlugin(AsciiChar const*, void const* bytes, size_t size) noexcept override {
    int32_t heads;
    if (size != sizeof heads) return nullptr;
    std::memcpy(&heads, bytes, size);
    return new Attention(heads);
  }
};

}  // namespace
}  // namespace course

extern "C" TENSORRTAPI IPluginCreator* const* getPluginCreators(int32_t& count) {
  static course::AttentionCreator creator;
  static IPluginCreator* const creators[] = {&creator};
  count = 1;
  return creators;
}

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder*) {}  // load_library asks for it; this plugin has nothing to log
