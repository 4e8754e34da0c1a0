// The frame of this folder's plugins as IPluginV2DynamicExt: one attribute, the number of heads, and FP16 in row order. The roles of the
// methods are explained in course_lib/plugins/rope/cpp/plugin_v2.cpp.
#pragma once

#include <NvInfer.h>

#include <cstring>

namespace course {

// An engine finds the plugins that it needs by their name and these two, and so does the ONNX parser.
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "course";

// What a plugin and its creator both say of themselves.
template <class Interface>
class Named : public Interface {
 public:
  nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return kNamespace; }
  void setPluginNamespace(nvinfer1::AsciiChar const*) noexcept override {}
};

// `Plugin`, the class that derives from it, has a constructor that takes the heads, and the constants kName and kOutputs.
template <class Plugin>
class HeadsPlugin : public Named<nvinfer1::IPluginV2DynamicExt> {
 public:
  explicit HeadsPlugin(int32_t heads) : heads_(heads) {}

  nvinfer1::IPluginV2DynamicExt* clone() const noexcept override { return new Plugin(heads_); }
  void destroy() noexcept override { delete static_cast<Plugin*>(this); }
  int32_t initialize() noexcept override { return 0; }
  void terminate() noexcept override {}
  nvinfer1::AsciiChar const* getPluginType() const noexcept override { return Plugin::kName; }

  int32_t getNbOutputs() const noexcept override { return Plugin::kOutputs; }
  nvinfer1::DataType getOutputDataType(int32_t, nvinfer1::DataType const* inputs, int32_t) const noexcept override { return inputs[0]; }
  void configurePlugin(nvinfer1::DynamicPluginTensorDesc const*, int32_t, nvinfer1::DynamicPluginTensorDesc const*,
                       int32_t) noexcept override {}

  size_t getSerializationSize() const noexcept override { return sizeof heads_; }
  void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &heads_, sizeof heads_); }

 protected:
  int32_t heads_;
};

template <class Plugin>
class HeadsCreator final : public Named<nvinfer1::IPluginCreator> {
 public:
  nvinfer1::AsciiChar const* getPluginName() const noexcept override { return Plugin::kName; }

  nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override {
    static nvinfer1::PluginField const field{"heads", nullptr, nvinfer1::PluginFieldType::kINT32, 1};
    static nvinfer1::PluginFieldCollection const fields{1, &field};
    return &fields;
  }

  nvinfer1::IPluginV2DynamicExt* createPlugin(nvinfer1::AsciiChar const*,
                                              nvinfer1::PluginFieldCollection const* fields) noexcept override {
    int32_t heads = 0;
    for (int32_t i = 0; i < fields->nbFields; ++i) {
      nvinfer1::PluginField const& field = fields->fields[i];
      bool const known = std::strcmp(field.name, "heads") == 0 && field.type == nvinfer1::PluginFieldType::kINT32 && field.length == 1;
      if (!known) return nullptr;  // better no plugin than one that ignores an attribute
      heads = *static_cast<int32_t const*>(field.data);
    }
    return heads > 0 ? new Plugin(heads) : nullptr;
  }

  nvinfer1::IPluginV2DynamicExt* deserializePlugin(nvinfer1::AsciiChar const*, void const* bytes, size_t size) noexcept override {
    int32_t heads;
    if (size != sizeof heads) return nullptr;
    std::memcpy(&heads, bytes, size);
    return new Plugin(heads);
  }
};

}  // namespace course
