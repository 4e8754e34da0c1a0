// RoPE as IPluginV3 and its creator, for TensorRT 10 and 11. `registry.load_library(path)` finds getCreators by its name.
//
// One class answers TensorRT's three kinds of questions: what are you called (core), which shapes and types do you make of mine
// (build), and do it (runtime). Source: NVIDIA TensorRT documentation, "Adding Custom Layers Using the C++ API".

#include "core.h"

using namespace nvinfer1;

namespace course {
namespace {

class Rope final : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime {
 public:
  explicit Rope(int32_t interleaved) : interleaved_(interleaved) {}

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
      case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
      case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }
  IPluginV3* clone() noexcept override { return new Rope(interleaved_); }

  // ---- core

  AsciiChar const* getPluginName() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }

  // ---- build

  int32_t getNbOutputs() const noexcept override { return kOutputs; }

  int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }

  // Expressions, since a dimension may be known at run time only. Ours are those of x, as they are.
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
                          IExprBuilder&) noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }

  bool supportsFormatCombination(int32_t position, DynamicPluginTensorDesc const* tensors, int32_t, int32_t) noexcept override {
    return supports(position, tensors[position].desc, tensors[0].desc);
  }

  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t inputs, DynamicPluginTensorDesc const*,
                          int32_t outputs) noexcept override {
    return inputs == kInputs && outputs == kOutputs ? 0 : -1;
  }

  // ---- runtime

  int32_t onShapeChange(PluginTensorDesc const* inputs, int32_t, PluginTensorDesc const*, int32_t) noexcept override {
    return shapesFit(inputs) ? 0 : -1;
  }

  int32_t enqueue(PluginTensorDesc const* described, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                  void*, cudaStream_t stream) noexcept override {
    return course::enqueue(described, inputs, outputs, interleaved_ != 0, stream);
  }

  IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }

  PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &fields_; }  // what it points to lives as long

 private:
  int32_t interleaved_;
  PluginField field_{"interleaved", &interleaved_, PluginFieldType::kINT32, 1};
  PluginFieldCollection fields_{1, &field_};
};

class RopeCreator final : public IPluginCreatorV3One {
 public:
  AsciiChar const* getPluginName() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  PluginFieldCollection const* getFieldNames() noexcept override { return declaredFields(); }

  // From the fields of a node while an engine is built, from the engine file when it is loaded.
  IPluginV3* createPlugin(AsciiChar const*, PluginFieldCollection const* fields, TensorRTPhase) noexcept override {
    int32_t interleaved;
    return readFields(fields, interleaved) ? new Rope(interleaved) : nullptr;
  }
};

}  // namespace
}  // namespace course

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& count) {
  static course::RopeCreator creator;
  static IPluginCreatorInterface* const creators[] = {&creator};
  count = 1;
  return creators;
}

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder*) {}  // load_library asks for it; this plugin has nothing to log
