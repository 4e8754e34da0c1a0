// What both plugins share: names, the one field, and the way from TensorRT's descriptions of tensors to rope_launch.
#pragma once

#include <NvInfer.h>

#include <cstring>

#include "../rope.h"

namespace course {

// An engine finds the plugins that it needs by these three, and so does the ONNX parser.
constexpr char const* kName = "CourseRope";
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "course";

constexpr int kInputs = 3;  // x, cos, sin
constexpr int kOutputs = 1;

// The RopeType of a TensorRT type, or -1.
inline int ropeType(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kFLOAT: return kRopeFloat32;
    case nvinfer1::DataType::kHALF: return kRopeFloat16;
#if NV_TENSORRT_MAJOR >= 10
    case nvinfer1::DataType::kBF16: return kRopeBFloat16;
#endif
    default: return -1;
  }
}

// Whether tensor `position` of x, cos, sin, y may be as described, given the description of x.
inline bool supports(int position, nvinfer1::PluginTensorDesc const& tensor, nvinfer1::PluginTensorDesc const& x) {
  if (tensor.format != nvinfer1::TensorFormat::kLINEAR) return false;
  if (position == 0) return ropeType(tensor.type) >= 0;
  return tensor.type == (position < kInputs ? nvinfer1::DataType::kFLOAT : x.type);
}

// Whether a table has a column for each pair of x and a row for each token.
inline bool tableFits(nvinfer1::Dims const& table, nvinfer1::Dims const& x) {
  return table.nbDims == 2 && table.d[0] >= x.d[1] && table.d[1] == x.d[3] / 2;
}

// Whether x, cos and sin have shapes that fit together.
inline bool shapesFit(nvinfer1::PluginTensorDesc const* inputs) {
  nvinfer1::Dims const& x = inputs[0].dims;
  return x.nbDims == 4 && x.d[3] % 2 == 0 && tableFits(inputs[1].dims, x) && tableFits(inputs[2].dims, x);
}

// Puts the work on the stream; 0 or an error, which TensorRT reports.
inline int32_t enqueue(nvinfer1::PluginTensorDesc const* described, void const* const* inputs, void* const* outputs,
                       bool interleaved, cudaStream_t stream) {
  if (!shapesFit(described)) return -1;
  nvinfer1::Dims const& x = described[0].dims;
  return rope_launch(ropeType(described[0].type), interleaved, inputs[0], static_cast<float const*>(inputs[1]),
                     static_cast<float const*>(inputs[2]), outputs[0], x.d[0], x.d[1], x.d[2], x.d[3], stream);
}

// The fields of a node or of an engine file. False if there is one that we do not know: better no plugin than a wrong one.
inline bool readFields(nvinfer1::PluginFieldCollection const* fields, int32_t& interleaved) {
  interleaved = 0;
  for (int32_t i = 0; i < fields->nbFields; ++i) {
    nvinfer1::PluginField const& field = fields->fields[i];
    bool const known = std::strcmp(field.name, "interleaved") == 0 && field.type == nvinfer1::PluginFieldType::kINT32;
    if (!known || field.length != 1) return false;
    interleaved = *static_cast<int32_t const*>(field.data);
  }
  return true;
}

// Names and types of the fields: what the ONNX parser hands over of a node's attributes.
inline nvinfer1::PluginFieldCollection const* declaredFields() {
  static nvinfer1::PluginField const field{"interleaved", nullptr, nvinfer1::PluginFieldType::kINT32, 1};
  static nvinfer1::PluginFieldCollection const fields{1, &field};
  return &fields;
}

}  // namespace course
